//! One kubelet with all the pods: what it did with them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crablet_proxy::{CriOptions, CriProxy, Values};
use crablet_testbed::cluster::{Cluster, Kubelet, NodeOptions};
use crablet_testbed::wait::{self, Deadline};
use serde_json::{Value, json};

use super::alike;
use super::corpus::{self, Case};

/// Longer than anything takes on a busy machine; who waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(180);
const NODE: &str = "node";
const NAMESPACE: &str = "corpus";

/// What one kubelet did.
pub struct Seen {
    pods: BTreeMap<String, Value>,
    /// Method and request of each call to the runtime, in order.
    calls: Vec<(String, Value)>,
    /// Words that are this run's own, and what stands for them.
    own: Vec<(String, String)>,
}

/// The first of each kind for a pod, by a name such as `CreateContainer main`. Later ones are restarts.
pub type Requests = BTreeMap<String, Value>;

impl Seen {
    /// Whether the pod came to the state that its case is about.
    pub fn has(&self, case: &Case) -> bool {
        self.pods.contains_key(&case.name)
    }

    pub fn status(&self, case: &Case) -> Value {
        let status = self.pods.get(&case.name).map(|pod| pod["status"].clone());
        alike::status(status.unwrap_or_default(), &self.own)
    }

    pub fn requests(&self, case: &Case) -> Requests {
        let mut requests = Requests::new();
        for (method, request) in &self.calls {
            let (of, container) = match method.as_str() {
                "RunPodSandbox" => (&request["config"]["metadata"]["name"], ""),
                "CreateContainer" => (
                    &request["sandbox_config"]["metadata"]["name"],
                    request["config"]["metadata"]["name"].as_str().unwrap_or_default(),
                ),
                _ => continue,
            };
            if *of == *case.name {
                let key = format!("{method} {container}");
                let first = requests.entry(key.trim_end().to_owned());
                first.or_insert_with(|| alike::request(request.clone(), &self.own));
            }
        }
        requests
    }
}

pub fn run(cluster: &Cluster, kubelet: Kubelet, cases: &[Case]) -> Result<Seen> {
    let (begin, name) = (Instant::now(), kubelet.name());
    let folder = cluster.dir();
    let (listen, socket) = (folder.join(format!("{name}.sock")), cluster.containerd().scratch().socket());
    let options = CriOptions::new(&listen, &socket, folder.join(format!("{name}-cri.jsonl")));
    let proxy = CriProxy::start_with(&CriOptions { values: Values::Shown, ..options })?;
    let node = cluster.join(NodeOptions {
        runtime_endpoint: Some(proxy.endpoint()),
        flags: vec!["--max-pods=400".into(), "--allowed-unsafe-sysctls=net.core.somaxconn".into()],
        ..NodeOptions::new(kubelet)
    })?;
    create_pods(cluster, cases)?;
    let pods = settled(cluster, cases)?;
    let seen = Seen { own: own_words(cluster, &pods)?, pods, calls: calls(&proxy) };
    eprintln!("{name}: {} pods had settled after {:.0?}", cases.len(), begin.elapsed());
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=300s"])?;
    eprintln!("{name}: and were gone after {:.0?}", begin.elapsed());
    drop(node);
    Ok(seen)
}

fn create_pods(cluster: &Cluster, cases: &[Case]) -> Result<()> {
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    // No pod is admitted before.
    let account =
        ["wait", "--for=create", "serviceaccount/default", "--timeout=60s", "--namespace", NAMESPACE];
    cluster.kubectl(&account)?;
    feed(cluster, &["apply", "-f", "-"], &corpus::objects()?)?;
    let pods: Vec<Value> = cases
        .iter()
        .map(|case| {
            let mut pod = case.pod.clone();
            pod["spec"]["nodeName"] = NODE.into();
            pod
        })
        .collect();
    feed(
        cluster,
        &["create", "-f", "-"],
        &json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string(),
    )
}

fn feed(cluster: &Cluster, args: &[&str], text: &str) -> Result<()> {
    let mut command = cluster.kubectl_command();
    command.args(["--namespace", NAMESPACE]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("the pipe was asked for")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Each pod in the state that its case is about.
fn settled(cluster: &Cluster, cases: &[Case]) -> Result<BTreeMap<String, Value>> {
    let mut caught: BTreeMap<String, Value> = BTreeMap::new();
    let mut asked = Vec::new();
    let mut failure = None;
    let all = wait::until(Deadline::after(PATIENCE), || {
        let looked = look(cluster, cases, &mut caught, &mut asked);
        let done = matches!(looked, Ok(true));
        failure = looked.err();
        done
    });
    if let Some(error) = failure {
        return Err(error);
    }
    // States in which a pod stays are compared as they are once everything is quiet.
    let now = pods(cluster)?;
    if !all {
        for case in cases.iter().filter(|case| !caught.contains_key(&case.name)) {
            eprintln!(
                "{}: never {:?}: {}",
                case.name,
                case.until,
                now.get(&case.name).unwrap_or(&Value::Null)["status"]
            );
        }
    }
    for case in cases.iter().filter(|case| !case.until.passes()) {
        if let Some(pod) = now.get(&case.name).filter(|pod| case.until.holds(&pod["status"])) {
            caught.insert(case.name.clone(), pod.clone());
        }
    }
    Ok(caught)
}

/// Takes the pods that have got there; says whether all have.
fn look(
    cluster: &Cluster,
    cases: &[Case],
    caught: &mut BTreeMap<String, Value>,
    asked: &mut Vec<String>,
) -> Result<bool> {
    let now = pods(cluster)?;
    for case in cases {
        let Some(pod) = now.get(&case.name) else { continue };
        let runs = pod["status"]["phase"] == "Running";
        if let Some(containers) = case.ephemeral.as_ref().filter(|_| runs && !asked.contains(&case.name)) {
            add_ephemeral(cluster, pod, containers)?;
            asked.push(case.name.clone());
        }
        if !caught.contains_key(&case.name) && case.until.holds(&pod["status"]) {
            caught.insert(case.name.clone(), pod.clone());
        }
    }
    Ok(caught.len() == cases.len())
}

fn add_ephemeral(cluster: &Cluster, pod: &Value, containers: &Value) -> Result<()> {
    let mut pod = pod.clone();
    pod["spec"]["ephemeralContainers"] = containers.clone();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/ephemeralcontainers");
    let mut command = cluster.kubectl_command();
    command.args(["replace", "--raw", &path, "-f", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("the pipe was asked for")?.write_all(pod.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn pods(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let text = cluster.kubectl(&["get", "pods", "--namespace", NAMESPACE, "--output=json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(items.into_iter().map(|pod| (name(&pod), pod)).collect())
}

fn calls(proxy: &CriProxy) -> Vec<(String, Value)> {
    let lines = proxy.record().lines();
    lines.iter().filter_map(|line| Some((line.method.clone(), line.request.clone()?))).collect()
}

/// UIDs, the random part of the names of volumes with tokens, addresses of services.
fn own_words(cluster: &Cluster, pods: &BTreeMap<String, Value>) -> Result<Vec<(String, String)>> {
    let address = ["get", "service", "shop", "--namespace", NAMESPACE, "--output=jsonpath={.spec.clusterIP}"];
    let mut words = vec![(cluster.kubectl(&address)?, "<service address>".to_owned())];
    for pod in pods.values() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        words.push((text(&pod["metadata"]["uid"]), "<uid>".to_owned()));
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        for name in volumes.map(|volume| text(&volume["name"])) {
            if name.starts_with("kube-api-access-") {
                words.push((name, "kube-api-access-<random>".to_owned()));
            }
        }
    }
    words.retain(|(word, _)| !word.is_empty());
    Ok(words)
}

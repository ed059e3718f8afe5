//! One kubelet with all the pods: what it did with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crablet_proxy::{CriOptions, CriProxy, Values};
use crablet_testbed::cluster::{Cluster, Kubelet, Node, NodeOptions};
use crablet_testbed::wait::Deadline;
use serde_json::{Value, json};

use super::corpus::{self, Case, Until};
use super::watch::{Watch, feed};
use crate::alike;

/// Longer than anything takes on a busy machine; who waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(300);
const NODE: &str = "node";
pub const NAMESPACE: &str = "corpus";
/// Reasons of events that a pod's end brings.
const AT_THE_END: [&str; 2] = ["Killing", "FailedPreStopHook"];
/// As many pods as there are addresses for.
const BATCH: usize = 200;

/// What one kubelet did.
#[derive(Default)]
pub struct Seen {
    pods: BTreeMap<String, Value>,
    /// Of all its pods, also of those that never got where they were wanted.
    uids: Vec<Value>,
    /// Method and request of each call to the runtime, in order.
    calls: Vec<(String, Value)>,
    /// Of the pods' whole life.
    events: Vec<Value>,
    own: Vec<alike::Own>,
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
                first.or_insert_with(|| alike::request(request, &self.own));
            }
        }
        requests
    }

    /// What a user is told of the pod, each thing once: how often depends on when one looks.
    pub fn events(&self, case: &Case) -> BTreeSet<String> {
        let of = self.events.iter().filter(|event| event["involvedObject"]["name"] == *case.name);
        // Whether a container runs when the pod is deleted is chance where it keeps ending.
        let by_chance = |event: &Value| {
            let text = event["message"].as_str().unwrap_or_default();
            let ends = event["reason"] == "Killing" && text.starts_with("Stopping container ");
            // While others settle, what runs again may end again, and wait.
            let waits = case.until == Until::Restarted && event["reason"] == "BackOff";
            case.until.passes() && (ends || waits)
        };
        of.filter(|event| !by_chance(event))
            .map(|event| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let place = text(&event["involvedObject"]["fieldPath"]);
                let message = text(&event["message"]);
                // Put before them once there were many that differ in a word.
                let message = message.strip_prefix("(combined from similar events): ").unwrap_or(&message);
                let message = alike::mask::text(message, &self.own);
                format!("{} {} {place}: {message}", text(&event["type"]), text(&event["reason"]))
            })
            .collect()
    }
}

/// Gives all the pods to one kubelet, a batch after the other: there are not addresses for all of them at once.
pub fn run(cluster: &Cluster, kubelet: Kubelet, cases: &[&Case]) -> Result<Seen> {
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
    put_profile(&node)?;
    let _ = fs::remove_dir_all(scratch(cluster));
    fs::create_dir_all(scratch(cluster))?;
    create_objects(cluster)?;
    let mut seen = Seen { own: own_words(cluster)?, ..Seen::default() };
    for batch in cases.chunks(BATCH) {
        create_pods(cluster, batch)?;
        let mut pods = settled(cluster, batch)?;
        eprintln!("{name}: {} pods had settled after {:.0?}", pods.len(), begin.elapsed());
        seen.uids.extend(self::pods(cluster)?.into_values().map(|mut pod| pod["metadata"]["uid"].take()));
        seen.pods.append(&mut pods);
        let mut events = items(cluster, "events")?;
        events.retain(|event| batch.iter().any(|case| event["involvedObject"]["name"] == *case.name));
        seen.events.extend(events);
        cluster.kubectl(&["delete", "pods", "--all", "--namespace", NAMESPACE, "--timeout=300s"])?;
        eprintln!("{name}: and were gone after {:.0?}", begin.elapsed());
    }
    seen.calls = calls(&proxy);
    // Of the end itself only what is meant for it: what else is told then is chance, as of a probe that met it.
    let mut events = items(cluster, "events")?;
    events.retain(|event| AT_THE_END.iter().any(|reason| event["reason"] == *reason));
    seen.events.extend(events);
    // Those of the other kubelet's pods are there, too.
    seen.events.retain(|event| seen.uids.contains(&event["involvedObject"]["uid"]));
    drop(node);
    Ok(seen)
}

/// A profile of seccomp that forbids nothing.
pub fn put_profile(node: &Node) -> Result<()> {
    let folder = node.home().join("root/seccomp/corpus");
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join("allow.json"), r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#)?)
}

/// What the pods refer to, unless it is there.
pub fn create_objects(cluster: &Cluster) -> Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    feed(cluster, &["apply", "-f", "-"], &namespace.to_string())?;
    // No pod is admitted before.
    let account =
        ["wait", "--for=create", "serviceaccount/default", "--timeout=60s", "--namespace", NAMESPACE];
    cluster.kubectl(&account)?;
    feed(cluster, &["apply", "--namespace", NAMESPACE, "-f", "-"], &corpus::objects()?)
}

pub fn create_pods(cluster: &Cluster, cases: &[&Case]) -> Result<()> {
    let pods: Vec<Value> = cases
        .iter()
        .map(|case| {
            let mut pod = case.pod.clone();
            pod["spec"]["nodeName"] = NODE.into();
            pod
        })
        .collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string();
    let list = list.replace("SCRATCH", &scratch(cluster).display().to_string());
    feed(cluster, &["create", "--namespace", NAMESPACE, "-f", "-"], &list)
}

/// A folder of the node for pods.
pub fn scratch(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("corpus")
}

/// Each pod in the state that its case is about.
pub fn settled(cluster: &Cluster, cases: &[&Case]) -> Result<BTreeMap<String, Value>> {
    let watch = Watch::start(cluster, NAMESPACE)?;
    let mut known = Known::default();
    let mut caught: BTreeMap<String, Value> = BTreeMap::new();
    let mut asked = BTreeSet::new();
    let deadline = Deadline::after(PATIENCE);
    while caught.len() < cases.len() {
        let Some(object) = watch.next(deadline)? else { break };
        let Some(name) = known.learn(object) else { continue };
        let Some((case, pod)) = cases.iter().find(|case| case.name == name).zip(known.pods.get(&name)) else {
            continue;
        };
        let runs = pod["status"]["phase"] == "Running";
        if let Some(containers) = case.ephemeral.as_ref().filter(|_| runs && !asked.contains(&name)) {
            add_ephemeral(cluster, pod, containers)?;
            asked.insert(name.clone());
        }
        if !caught.contains_key(&name) && known.holds(case, pod) {
            caught.insert(name, pod.clone());
        }
    }
    // States in which a pod stays are compared as they are once everything is quiet.
    known.pods = pods(cluster)?;
    for case in cases {
        let Some(pod) = known.pods.get(&case.name) else { continue };
        if !caught.contains_key(&case.name) {
            eprintln!("{}: never {:?}: {}", case.name, case.until, pod["status"]);
        }
        if !case.until.passes() && known.holds(case, pod) {
            let caught = caught.entry(case.name.clone()).or_insert_with(|| pod.clone());
            // What the pod as a whole may use is shown in one way at first, and in another a minute or more later.
            let resources = caught["status"]["resources"].take();
            caught.clone_from(pod);
            if resources.is_object() {
                caught["status"]["resources"] = resources;
            }
        }
    }
    Ok(caught)
}

/// What the API server has told so far.
#[derive(Default)]
struct Known {
    pods: BTreeMap<String, Value>,
    events: Vec<Value>,
}

impl Known {
    /// The name of the pod that this is about, if it is about one that is known.
    fn learn(&mut self, object: Value) -> Option<String> {
        let is_event = object["involvedObject"].is_object();
        let about = if is_event { &object["involvedObject"]["name"] } else { &object["metadata"]["name"] };
        let name = about.as_str()?.to_owned();
        if is_event {
            self.events.push(object);
        } else {
            self.pods.insert(name.clone(), object);
        }
        Some(name)
    }

    fn holds(&self, case: &Case, pod: &Value) -> bool {
        let of = self.events.iter().filter(|event| event["involvedObject"]["uid"] == pod["metadata"]["uid"]);
        case.until.holds(&pod["status"], &of.collect::<Vec<_>>())
    }
}

fn add_ephemeral(cluster: &Cluster, pod: &Value, containers: &Value) -> Result<()> {
    let mut pod = pod.clone();
    pod["spec"]["ephemeralContainers"] = containers.clone();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/ephemeralcontainers");
    feed(cluster, &["replace", "--raw", &path, "-f", "-"], &pod.to_string()).with_context(|| name.to_owned())
}

pub fn pods(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(items(cluster, "pods")?.into_iter().map(|pod| (name(&pod), pod)).collect())
}

fn items(cluster: &Cluster, kind: &str) -> Result<Vec<Value>> {
    let text = cluster.kubectl(&["get", kind, "--namespace", NAMESPACE, "--output=json"])?;
    let mut list: Value = serde_json::from_str(&text)?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn calls(proxy: &CriProxy) -> Vec<(String, Value)> {
    let lines = proxy.record().lines();
    lines.iter().filter_map(|line| Some((line.method.clone(), line.request.clone()?))).collect()
}

/// Addresses of services.
fn own_words(cluster: &Cluster) -> Result<Vec<alike::Own>> {
    let address = ["get", "service", "shop", "--namespace", NAMESPACE, "--output=jsonpath={.spec.clusterIP}"];
    Ok(vec![(cluster.kubectl(&address)?, "<service address>".to_owned())])
}

//! Crablet beside upstream's kubelet: the same manifests on both, each on a containerd of its own; what a user sees and
//! what the runtime is asked for must be equal. A difference that is meant is named in `alike/mod.rs`, nowhere else.

mod alike;
mod beside {
    pub mod pods;
}

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crablet_proxy::{CriOptions, CriProxy, Values};
use crablet_testbed::upstream::Upstream;
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{Agent, Containerd, Flavor, StartOptions, cluster, kube};
use serde_json::Value;

use beside::pods::{CASES, Case};

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(600);
const NODE: &str = "node";

/// Both kubelets with all cases at once: the waiting is done side by side.
#[test]
fn the_same_pods_have_the_same_status_and_ask_the_runtime_for_the_same() {
    if !cluster::is_under_test() {
        eprintln!("not run: upstream's kubelet is not under test (see CRABLET_TEST_CLUSTER)");
        return;
    }
    if let Err(error) = compare() {
        panic!("{error:?}");
    }
}

fn compare() -> Result<()> {
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(on_upstream);
        let ours = on_crablet();
        (theirs.join(), ours)
    });
    let (theirs, ours) = (theirs.expect("no panic in there")?, ours?);
    let mut differences = Vec::new();
    for case in CASES {
        let name = format!("{}-{NODE}", case.name);
        let mut look = |what: &str, ours: Value, theirs: Value| {
            let lines = alike::differences(what, &ours, &theirs);
            differences.extend(lines.into_iter().map(|line| format!("{}: {what} {line}", case.name)));
        };
        look("pod", ours.pod(&name)?, theirs.pod(&name)?);
        let (ours, theirs) = (ours.requests(&name), theirs.requests(&name));
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let one = |side: &Requests| side.get(key).cloned().unwrap_or(Value::Null);
            look(key, one(&ours), one(&theirs));
        }
    }
    ensure!(differences.is_empty(), "crablet and upstream's kubelet differ:\n{}", differences.join("\n"));
    Ok(())
}

/// What one kubelet did with the pods.
struct Seen {
    pods: Vec<Value>,
    /// Method and request of each call to the runtime, in order.
    calls: Vec<(String, Value)>,
    /// Paths that are this run's own, and what stands for them.
    own: Vec<alike::Own>,
}

/// The first of each kind for a pod, by a name such as `CreateContainer main`. Later ones are restarts.
type Requests = BTreeMap<String, Value>;

impl Seen {
    fn pod(&self, name: &str) -> Result<Value> {
        let pod = self.pods.iter().find(|pod| pod["metadata"]["name"] == name);
        let mut pod = pod.with_context(|| format!("no pod `{name}`"))?.clone();
        let status = pod["status"].take();
        alike::mask::all(&mut pod, &self.own);
        pod["status"] = alike::status(status, &self.own);
        Ok(pod)
    }

    fn requests(&self, pod: &str) -> Requests {
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
            if of == pod {
                let key = format!("{method} {container}");
                requests
                    .entry(key.trim_end().to_owned())
                    .or_insert_with(|| alike::request(request, &self.own));
            }
        }
        requests
    }
}

/// A proxy in front of a runtime that remembers every call.
fn record(containerd: &Containerd) -> Result<CriProxy> {
    let folder = containerd.scratch().dir();
    let (listen, socket) = (folder.join("recorder.sock"), containerd.scratch().socket());
    let options = CriOptions::new(&listen, &socket, folder.join("cri.jsonl"));
    Ok(CriProxy::start_with(&CriOptions { values: Values::Shown, ..options })?)
}

fn calls(proxy: &CriProxy) -> Vec<(String, Value)> {
    let lines = proxy.record().lines();
    lines.iter().filter_map(|line| Some((line.method.clone(), line.request.clone()?))).collect()
}

fn on_upstream() -> Result<Seen> {
    let containerd = Containerd::start(StartOptions::new(Flavor::Debian))?;
    let proxy = record(&containerd)?;
    let binary = kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name);
    let kubelet = Upstream::start(&containerd, &binary, NODE, &proxy.endpoint())?;
    for case in CASES {
        kubelet.put_manifest(&format!("{}.yaml", case.name), &case.manifest())?;
    }
    let mut pods = Settled::default();
    let begun = Instant::now();
    kubelet.wait_for(PATIENCE, |now| pods.look(now)).with_context(|| format!("upstream: {pods}"))?;
    eprintln!(
        "upstream: every pod was where it stays after {:?}; the last was {}",
        begun.elapsed(),
        pods.last()
    );
    let own = vec![(kubelet.home().display().to_string(), "<home>".to_owned())];
    let seen = Seen { pods: pods.pods, calls: calls(&proxy), own };
    drop(kubelet);
    drop(proxy);
    containerd.stop()?;
    Ok(seen)
}

fn on_crablet() -> Result<Seen> {
    let containerd = Containerd::start(StartOptions::new(Flavor::Debian))?;
    let proxy = record(&containerd)?;
    let agent = Agent::builder(env!("CARGO_BIN_EXE_crablet"), &containerd)
        .node_name(NODE)
        .endpoint(proxy.endpoint())
        // As the other kubelet here: names of cgroups are compared by tests of their own.
        .config("cgroupsPerQOS: false\nenforceNodeAllocatable: []")
        .build()?;
    for case in CASES {
        agent.put_manifest(&format!("{}.yaml", case.name), &case.manifest())?;
    }
    agent.start()?;
    let mut pods = Settled::default();
    let begun = Instant::now();
    // Asked again and again, as the other one is: both are looked at in the same way.
    let all = wait::until(Deadline::after(PATIENCE), || {
        let Ok((200, text)) = agent.http_get(agent.ports().read_only, "/pods") else { return false };
        let Ok(list) = serde_json::from_str::<Value>(&text) else { return false };
        pods.look(list["items"].as_array().map(Vec::as_slice).unwrap_or_default())
    });
    ensure!(all, "crablet: {pods}; the end of its log:\n{}", agent.log_tail(20));
    eprintln!(
        "crablet: every pod was where it stays after {:?}; the last was {}",
        begun.elapsed(),
        pods.last()
    );
    let own = vec![(agent.home().display().to_string(), "<home>".to_owned())];
    let seen = Seen { pods: pods.pods, calls: calls(&proxy), own };
    agent.stop()?;
    drop(agent);
    drop(proxy);
    containerd.stop()?;
    Ok(seen)
}

/// Each pod as it was when it first was in the state that its case is about: some states last for seconds only.
#[derive(Default)]
struct Settled {
    pods: Vec<Value>,
}

impl Settled {
    /// Takes the pods that have got there; says whether all have.
    fn look(&mut self, now: &[Value]) -> bool {
        for case in
            CASES.iter().filter(|case| named(now, case).is_some_and(|pod| (case.settled)(&pod["status"])))
        {
            if named(&self.pods, case).is_none() {
                self.pods.extend(named(now, case).cloned());
            }
        }
        self.pods.len() == CASES.len()
    }

    fn last(&self) -> &str {
        self.pods.last().and_then(|pod| pod["metadata"]["name"].as_str()).unwrap_or_default()
    }
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = CASES.iter().filter(|case| named(&self.pods, case).is_none()).map(|case| case.name);
        write!(f, "not settled: {}", missing.collect::<Vec<_>>().join(", "))
    }
}

fn named<'a>(pods: &'a [Value], case: &Case) -> Option<&'a Value> {
    let name = format!("{}-{NODE}", case.name);
    pods.iter().find(|pod| pod["metadata"]["name"] == name.as_str())
}

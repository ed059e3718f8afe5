//! A node to test on, and words to speak about it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_testbed::Flavor;
use crablet_testbed::agent::{Agent, Snapshot};
use crablet_testbed::containerd::{Containerd, StartOptions};
use serde_json::Value;

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Node {
    // Dropped in this order: the agent before its runtime.
    pub agent: Agent,
    pub containerd: Containerd,
}

/// Runs a scenario on one kind of containerd, if it is among those under test.
pub fn on(flavor: Flavor, scenario: fn(&Node) -> Result<()>) {
    if !Flavor::under_test().contains(&flavor) {
        eprintln!("not run: containerd `{}` is not under test (see CRABLET_TEST_RUNTIMES)", flavor.name());
        return;
    }
    let result = Node::new(flavor).and_then(|node| {
        scenario(&node).map_err(|error| error.context(format!("agent's log:\n{}", node.agent.log_tail(60))))
    });
    if let Err(error) = result {
        panic!("{error:?}");
    }
}

impl Node {
    /// The agent is built but not started: scenarios say when.
    fn new(flavor: Flavor) -> Result<Self> {
        let containerd = Containerd::start(StartOptions::new(flavor))?;
        let agent = Agent::builder(env!("CARGO_BIN_EXE_crablet"), &containerd).node_name("node1").build()?;
        Ok(Self { agent, containerd })
    }

    pub fn wait(&self, condition: impl FnMut(&Snapshot) -> bool) -> Result<Snapshot> {
        self.agent.wait_for(PATIENCE, condition)
    }

    pub fn wait_ready(&self, names: &[&str]) -> Result<Snapshot> {
        self.wait(|s| names.iter().all(|name| s.is_ready(name)))
    }

    /// Nothing of any pod is left: not in the agent's report, not in the runtime, not on disk.
    pub fn wait_empty(&self) -> Result<()> {
        self.wait(|s| s.inventoried && s.pods.is_empty())?;
        let left = self.containerd.leftovers();
        ensure!(left.no_pods(), "left in the runtime:\n{left}");
        for folder in
            [self.agent.pod_logs_dir(), self.agent.container_logs_dir(), self.agent.root_dir().join("pods")]
        {
            let entries: Vec<_> = match std::fs::read_dir(&folder) {
                Ok(entries) => entries.flatten().map(|e| e.file_name()).collect(),
                Err(_) => Vec::new(),
            };
            ensure!(entries.is_empty(), "left in {}: {entries:?}", folder.display());
        }
        Ok(())
    }

    /// The pod as the read-only port shows it.
    pub fn pod(&self, name: &str) -> Result<Value> {
        let pods = self.pods()?;
        let found = pods.into_iter().find(|p| p["metadata"]["name"] == format!("{name}-node1"));
        found.with_context(|| format!("no pod {name}-node1 on the read-only port"))
    }

    pub fn pods(&self) -> Result<Vec<Value>> {
        let (status, body) = self.agent.http_get(self.agent.ports().read_only, "/pods")?;
        ensure!(status == 200, "/pods answered {status}: {body}");
        let list: Value = serde_json::from_str(&body)?;
        ensure!(list["kind"] == "PodList" && list["apiVersion"] == "v1", "not a PodList: {list}");
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until the pod, as the read-only port shows it, is as wanted.
    pub fn wait_pod(&self, name: &str, mut wanted: impl FnMut(&Value) -> bool) -> Result<Value> {
        let mut found = None;
        self.wait(|_| match self.pod(name) {
            Ok(pod) if wanted(&pod) => {
                found = Some(pod);
                true
            }
            _ => false,
        })
        .with_context(|| format!("{:#}", self.pod(name).unwrap_or_default()["status"]))?;
        found.context("found")
    }
}

/// A pod of one busybox container that runs a shell script.
pub fn shell_pod(name: &str, script: &str, spec: &str) -> String {
    let spec = spec.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  labels:\n    app: {name}\nspec:\n{spec}  containers:\n  \
         - name: main\n    image: crablet.test/busybox:1\n    imagePullPolicy: IfNotPresent\n    command: [\"/bin/sh\", \
         \"-c\", {script:?}]\n"
    )
}

/// A pod that runs until it is told to stop, and then stops at once.
pub fn quiet_pod(name: &str) -> String {
    shell_pod(
        name,
        "trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done",
        "terminationGracePeriodSeconds: 20",
    )
}

pub fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

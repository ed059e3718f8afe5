//! What the agent reports on its watch stream: one of these as a JSON line at once, and one after each change.

use std::fmt;

use serde::Deserialize;

/// All that the agent looks after, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub pods: Vec<PodLine>,
    pub runtime: RuntimeLine,
    /// Whether every source of pods was read once.
    pub sources_ready: bool,
    /// Whether all that the runtime and the disk have is accounted for: only then is an empty list good news.
    #[serde(default)]
    pub inventoried: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLine {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub phase: String,
    pub ready: bool,
    #[serde(rename = "podIP", default)]
    pub pod_ip: String,
    pub restarts: u32,
    /// `false` while the pod is taken down; it vanishes when nothing of it is left.
    pub desired: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeLine {
    pub ready: bool,
    #[serde(default)]
    pub message: String,
}

impl Snapshot {
    /// The pod of a manifest: static pods carry the node's name behind a dash.
    pub fn pod(&self, name: &str) -> Option<&PodLine> {
        let is_it = |pod: &&PodLine| {
            pod.name == name || pod.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
        };
        let exact = self.pods.iter().find(|pod| pod.name == name);
        exact.or_else(|| self.pods.iter().filter(is_it).min_by_key(|pod| pod.name.len()))
    }

    /// Running with every container ready.
    pub fn is_ready(&self, name: &str) -> bool {
        self.pod(name).is_some_and(|pod| pod.phase == "Running" && pod.ready && pod.desired)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = if self.runtime.ready { "ready" } else { "not ready" };
        writeln!(f, "runtime {runtime} {}, sources ready: {}", self.runtime.message, self.sources_ready)?;
        for pod in &self.pods {
            let PodLine { name, namespace, phase, ready, pod_ip, restarts, desired, .. } = pod;
            writeln!(
                f,
                "  {namespace}/{name} {phase} ready={ready} ip={pod_ip} restarts={restarts} desired={desired}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_stream_is_read() {
        let line = r#"{"pods":[{"name":"web-node1","namespace":"default","uid":"1","phase":"Running","ready":true,
            "podIP":"10.213.1.2","restarts":0,"desired":true}],"runtime":{"ready":true,"message":""},"sourcesReady":true}"#;
        let snapshot: Snapshot = serde_json::from_str(line).unwrap();
        assert!(snapshot.is_ready("web"));
        assert!(!snapshot.is_ready("we"));
        assert_eq!(snapshot.pod("web-node1").unwrap().pod_ip, "10.213.1.2");
    }
}

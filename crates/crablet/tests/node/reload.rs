//! The configuration changes under running pods.

use std::fs;

use anyhow::Result;
use anyhow::ensure;

use super::support::{Node, PATIENCE, quiet_pod, shell_pod};

pub fn a_changed_configuration_touches_no_pod(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("stay", &quiet_pod("stay"))?;
    node.wait_ready(&["stay"])?;
    let before = node.pod("stay")?["status"].clone();

    let path = node.agent.home().join("config.yaml");
    let text = fs::read_to_string(&path)?;
    let lines = "clusterDNS: [10.9.8.7]\nclusterDomain: changed.local\ncpuCFSQuota: false\nregistryPullQPS: 1\n\
                 crashLoopBackOff: {maxContainerRestartPeriod: 20s}\nfileCheckFrequency: 3s\n";
    fs::write(path.with_extension("new"), format!("{text}{lines}"))?;
    fs::rename(path.with_extension("new"), &path)?;
    node.agent.wait_for_log(PATIENCE, "The configuration has changed")?;

    // A new pod is made as the new configuration says.
    let script = "grep -q 10.9.8.7 /etc/resolv.conf && grep -q changed.local /etc/resolv.conf && echo seen > /dev/termination-log";
    node.agent.put_manifest("new", &shell_pod("new", script, "restartPolicy: Never"))?;
    let new = node.wait_pod("new", |pod| pod["status"]["phase"] == "Succeeded")?;
    let words = &super::support::container(&new)["state"]["terminated"]["message"];
    ensure!(words.as_str().is_some_and(|words| words.contains("seen")), "{words}");
    ensure!(node.pod("stay")?["status"] == before, "{:#}", node.pod("stay")?);
    for name in ["stay", "new"] {
        node.agent.remove_manifest(name)?;
    }
    node.wait_empty()
}

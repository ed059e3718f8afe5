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

/// Other programs write the node's resolver settings, some of them only after the node has started.
pub fn resolver_settings_are_those_of_the_moment(node: &Node) -> Result<()> {
    let settings = node.agent.home().join("resolv.conf");
    let path = node.agent.home().join("config.yaml");
    let text = fs::read_to_string(&path)?;
    fs::write(&path, format!("{text}resolvConf: {}\n", settings.display()))?;
    node.agent.start()?;
    let pod = |name: &str, server: &str| {
        shell_pod(
            name,
            &format!("grep -q {server} /etc/resolv.conf"),
            "restartPolicy: Never\ndnsPolicy: Default",
        )
    };
    node.agent.put_manifest("early", &pod("early", "10.1.1.1"))?;
    let refusal = format!("open {}: no such file or directory", settings.display());
    node.agent.wait_for_log(PATIENCE, &refusal)?;

    for (name, server) in [("early", "10.1.1.1"), ("late", "10.2.2.2")] {
        fs::write(settings.with_extension("new"), format!("nameserver {server}\n"))?;
        fs::rename(settings.with_extension("new"), &settings)?;
        node.agent.put_manifest(name, &pod(name, server))?;
        let ended = node.wait_pod(name, |pod| {
            pod["status"]["phase"].as_str().is_some_and(|p| p != "Pending" && p != "Running")
        })?;
        ensure!(ended["status"]["phase"] == "Succeeded", "{ended:#}");
    }
    for name in ["early", "late"] {
        node.agent.remove_manifest(name)?;
    }
    node.wait_empty()
}

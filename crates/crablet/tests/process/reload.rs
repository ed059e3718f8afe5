//! The configuration changes while the agent runs.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};

use super::support::Home;

#[test]
fn what_can_change_does_and_the_rest_is_named() -> Result<()> {
    let home = Home::new()?;
    let mut agent = home.start(&[])?;
    agent.wait_ready()?;

    home.configure("clusterDomain: other.local\nlogging: {verbosity: 4}")?;
    agent.wait_log(&["The configuration has changed\"", "clusterDomain", "logging.verbosity"])?;

    home.configure("clusterDomain: other.local\nlogging: {verbosity: 4}\nimageGCHighThresholdPercent: 101")?;
    agent.wait_log(&["The new configuration is not used", "imageGCHighThresholdPercent"])?;

    home.configure("clusterDomain: other.local\nlogging: {verbosity: 4}\nmaxPods: 7")?;
    agent.wait_log(&["needs a restart", "maxPods"])?;
    agent.wait_log(&["The configuration is good again"])?;

    agent.signal(rustix::process::Signal::HUP);
    agent.wait_log(&["The configuration has not changed"])?;
    ensure!(agent.stop()?.success(), "{}", agent.log()?);
    ensure!(agent.log()?.matches("is not used").count() == 1, "{}", agent.log()?);
    Ok(())
}

#[test]
fn a_swapped_link_is_a_change() -> Result<()> {
    let home = Home::new()?;
    // As Kubernetes keeps files of a volume: the folder that a link leads to is swapped.
    for (version, domain) in [("1", "one"), ("2", "two")] {
        fs::create_dir(home.path(version))?;
        let configuration = home.configuration(&format!("clusterDomain: {domain}.local"));
        fs::write(home.path(version).join("config.yaml"), configuration)?;
    }
    symlink("1", home.path("data"))?;
    fs::remove_file(home.path("config.yaml"))?;
    symlink("data/config.yaml", home.path("config.yaml"))?;
    let agent = home.start(&[])?;
    agent.wait_ready()?;
    symlink("2", home.path("data.new"))?;
    fs::rename(home.path("data.new"), home.path("data"))?;
    agent.wait_log(&["The configuration has changed\"", "clusterDomain"])?;
    Ok(())
}

#[test]
fn drop_ins_are_watched_too() -> Result<()> {
    let home = Home::new()?;
    let folder = home.path("conf.d");
    fs::create_dir(&folder)?;
    let agent = home.start(&["--config-dir", &folder.to_string_lossy()])?;
    agent.wait_ready()?;
    let text =
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDomain: other.local\n";
    fs::write(folder.join("10-domain.new"), text)?;
    fs::rename(folder.join("10-domain.new"), folder.join("10-domain.conf"))?;
    agent.wait_log(&["The configuration has changed\"", "clusterDomain"])?;
    Ok(())
}

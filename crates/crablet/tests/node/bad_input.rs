//! Manifests that are wrong, and images that are not there.

use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Result, ensure};

use super::support::{Node, PATIENCE, container, quiet_pod, shell_pod};

pub fn bad_manifests_are_named_and_harm_nobody(node: &Node) -> Result<()> {
    node.agent.start()?;
    node.agent.put_manifest("fine.yaml", &quiet_pod("fine"))?;
    node.wait_ready(&["fine"])?;
    let before = node.pod("fine")?;

    let folder = node.agent.manifest_dir();
    node.agent.put_manifest("not-yaml", "{{{ this is: not: yaml")?;
    node.agent.put_manifest(
        "wrong-type.yaml",
        &quiet_pod("wrong")
            .replace("terminationGracePeriodSeconds: 20", "terminationGracePeriodSeconds: soon"),
    )?;
    node.agent.put_manifest(
        "padded-image.yaml",
        &quiet_pod("padded").replace("crablet.test/busybox:1", "\" crablet.test/busybox:1\""),
    )?;
    node.agent.put_manifest(
        "no-claims.yaml",
        &(quiet_pod("claims") + "    resources:\n      claims:\n      - name: device\n"),
    )?;
    // The later of two manifests with one name wins, as upstream: here it is the one that runs already.
    node.agent.put_manifest("clash.yaml", &quiet_pod("fine").replace("3600", "3601"))?;
    std::fs::File::create(folder.join("huge.yaml"))?.set_len(100 << 20)?;
    symlink("nowhere", folder.join("broken-link"))?;
    ensure!(Command::new("mkfifo").arg(folder.join("fifo")).status()?.success(), "mkfifo failed");
    std::fs::create_dir(folder.join("sub"))?;

    for (file, said) in [
        ("not-yaml", "not-yaml"),
        ("wrong-type.yaml", "terminationGracePeriodSeconds"),
        ("padded-image.yaml", "spec.containers[0].image"),
        ("no-claims.yaml", "spec.containers[0].resources.claims"),
        ("clash.yaml", "clash.yaml"),
        ("huge.yaml", "huge.yaml"),
        ("broken-link", "broken-link"),
        ("fifo", "fifo"),
        ("sub", "sub"),
    ] {
        node.agent.wait_for_log(PATIENCE, said)?;
        let log = std::fs::read_to_string(node.agent.log_path())?;
        let lines: Vec<_> = log.lines().filter(|l| l.contains(said) && l.contains(file)).collect();
        ensure!(lines.len() == 1, "one line about {file}, not {}: {lines:#?}", lines.len());
    }
    // An unknown field and a key that is there twice are said, and the pod runs as upstream runs it.
    let odd = "spec:\n  restartPolice: Never\n  hostname: one\n  hostname: two\n";
    node.agent.put_manifest("typo.yaml", &quiet_pod("typo").replace("spec:\n", odd))?;
    node.wait_ready(&["typo"])?;
    node.agent.wait_for_log(PATIENCE, "restartPolice")?;
    node.agent.wait_for_log(PATIENCE, "duplicate mapping key: hostname")?;
    // What is no name of an image is the pod's trouble, for all to see.
    let no_image = quiet_pod("image").replace("crablet.test/busybox:1", "UPPER CASE");
    node.agent.put_manifest("bad-image.yaml", &no_image)?;
    node.wait_pod("image", |p| container(p)["state"]["waiting"]["reason"] == "InvalidImageName")?;

    let after = node.pod("fine")?;
    ensure!(before["status"] == after["status"], "the good pod was touched: {after:#}");
    Ok(())
}

pub fn an_image_that_cannot_be_had_is_reported_and_tried_again(node: &Node) -> Result<()> {
    node.agent.start()?;
    let nowhere = quiet_pod("pull").replace("crablet.test/busybox:1", "127.0.0.1:9/nobody/home:1");
    node.agent.put_manifest("pull", &nowhere)?;
    let never =
        shell_pod("never", "true", "").replace("IfNotPresent", "Never").replace("busybox:1", "absent:1");
    node.agent.put_manifest("never", &never)?;
    // Its neighbour does not wait for it.
    node.agent.put_manifest("beside", &quiet_pod("beside"))?;
    node.wait_ready(&["beside"])?;

    let reason =
        |p: &serde_json::Value| container(p)["state"]["waiting"]["reason"].as_str().map(str::to_owned);
    node.wait_pod("pull", |p| reason(p).as_deref() == Some("ErrImagePull"))?;
    let pod = node.wait_pod("pull", |p| reason(p).as_deref() == Some("ImagePullBackOff"))?;
    let message = container(&pod)["state"]["waiting"]["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("Back-off pulling image \"127.0.0.1:9/nobody/home:1\": ErrImagePull: "),
        "{message}"
    );
    ensure!(pod["status"]["phase"] == "Pending", "{pod:#}");
    let pod = node.wait_pod("never", |p| reason(p).as_deref() == Some("ErrImageNeverPull"))?;
    ensure!(pod["status"]["phase"] == "Pending", "{pod:#}");

    node.agent.remove_manifest("pull")?;
    node.agent.remove_manifest("never")?;
    node.agent.remove_manifest("beside")?;
    node.wait_empty()
}

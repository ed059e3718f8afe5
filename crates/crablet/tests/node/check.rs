//! `crablet check` as an administrator runs it: on this machine, before the agent.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use crablet_testbed::Flavor;
use serde_json::Value;

use super::support::Node;

/// What a test machine may well be, and what must not decide whether this test passes.
const LENIENT: &str =
    "failCgroupV1: false\nfailSwapOn: false\nenableServer: false\nevictionHard:\n  memory.available: 1Mi\n";

pub fn a_fit_machine_is_found_fit(node: &Node) -> Result<()> {
    fs::File::options()
        .append(true)
        .open(node.agent.home().join("config.yaml"))?
        .write_all(LENIENT.as_bytes())?;
    let report = check(node)?;
    ensure!(report["errors"] == 0, "{report:#}");
    ensure!(report["node"] == "node1", "{report:#}");
    let [version, network, events, driver] =
        [("runtime", "version"), ("network", "NetworkReady"), ("runtime", "events"), ("cgroups", "driver")]
            .map(|(group, name)| finding(&report, group, name));
    ensure!(version["seen"].as_str().is_some_and(|seen| seen.starts_with("containerd ")), "{version:#}");
    ensure!(network["state"] == "ok", "{network:#}");
    // What the older one cannot do is a warning with a way out, not an error.
    let told = if node.containerd.flavor() == Flavor::Debian { "warning" } else { "ok" };
    ensure!(events["state"] == told && driver["state"] == told, "{events:#} {driver:#}");
    let healthz = format!("{} healthz", node.agent.ports().healthz);
    ensure!(finding(&report, "ports", &healthz)["seen"] == "free", "{report:#}");

    node.agent.start()?;
    node.wait(|s| s.sources_ready)?;
    let report = check(node)?;
    let port = finding(&report, "ports", &healthz);
    ensure!(
        port["state"] == "warning"
            && port["seen"].as_str().is_some_and(|s| s.ends_with("the agent runs already")),
        "{port:#}"
    );
    Ok(())
}

/// With the agent's own flags and configuration.
fn check(node: &Node) -> Result<Value> {
    let agent = node.agent.command();
    let output = Command::new(agent.get_program())
        .arg("check")
        .args(agent.get_args())
        .args(["-o", "json"])
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(output.status.success() == (report["errors"] == 0), "{}: {report:#}", output.status);
    Ok(report)
}

fn finding<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().into_iter().flatten();
    checks.into_iter().find(|c| c["group"] == group && c["name"] == name).unwrap_or(&Value::Null)
}

fn check_with_socket(folder: &Path, socket: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crablet"))
        .args(["check", "--hostname-override", "node1", "--root-dir"])
        .arg(folder.join("root"))
        .arg(format!("--container-runtime-endpoint=unix://{}", socket.display()))
        .output()
        .expect("crablet runs")
}

#[test]
fn without_a_runtime_the_fix_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = check_with_socket(folder.path(), &folder.path().join("none.sock"));
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let (_, errors) = text.split_once("\nerrors\n").expect("errors");
    let mut lines = errors.lines().skip_while(|line| !line.starts_with("  runtime, socket: unix://"));
    assert!(lines.next().is_some_and(|line| line.ends_with("/none.sock does not exist")), "{text}");
    assert!(lines.next().is_some_and(|line| line.starts_with("      fix: ")), "{text}");
    assert!(text.trim_end().lines().last().is_some_and(|line| line.contains(" fine, ")), "{text}");
}

#[test]
fn a_runtime_that_hangs_does_not_hang_the_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hung.sock");
    let _never_accepts = UnixListener::bind(&socket).expect("a socket");
    let output = check_with_socket(folder.path(), &socket);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("/hung.sock does not answer: ") && text.contains("the runtime hangs"), "{text}");
    // Everything else was looked at all the same.
    assert!(text.contains("root space") && text.contains("node name"), "{text}");
}

//! Start, signs of life, end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use crablet_testbed::http;
use crablet_testbed::process::with_descendants;
use crablet_testbed::wait::{Deadline, until};
use serde_json::Value;

use super::support::{Home, PATIENCE, Running};

fn healthz(port: u16) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    http::tcp(address, "GET", "/healthz", Deadline::after(PATIENCE))?.text()
}

#[test]
fn systemd_is_told_and_nothing_stays_behind() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command(&[]);
    command.env("WATCHDOG_USEC", "2000000");
    let mut agent = Running::start(command, &home.path("."))?;
    agent.wait_ready()?;
    agent.wait_told("WATCHDOG=1")?;
    agent.wait_told("WATCHDOG=1")?;
    ensure!(healthz(home.healthz)? == "ok", "healthz");

    let processes = with_descendants(&[agent.id()]);
    ensure!(processes.len() == 2, "the agent and its keeper of connections: {processes:?}");
    agent.signal(rustix::process::Signal::TERM);
    agent.wait_told("STOPPING=1")?;
    ensure!(agent.wait_end()?.code() == Some(0), "{}", agent.log()?);
    for process in processes {
        ensure!(process.wait_gone(Deadline::after(PATIENCE)), "{process:?} is still there");
    }
    Ok(())
}

#[test]
fn a_watchdog_that_cannot_be_served_is_refused() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command(&[]);
    command.env("WATCHDOG_USEC", "1000000");
    let mut agent = Running::start(command, &home.path("."))?;
    ensure!(agent.wait_end()?.code() == Some(1), "{}", agent.log()?);
    agent.wait_log(&["create health checker: configure watchdog timeout too small"])?;
    Ok(())
}

#[test]
fn who_does_not_get_the_lock_file_waits_for_it() -> Result<()> {
    let (first_home, second_home) = (Home::new()?, Home::new()?);
    let lock = first_home.path("lock");
    let lock = lock.to_str().context("UTF-8")?;
    let mut first = first_home.start(&["--lock-file", lock])?;
    first.wait_ready()?;
    ensure!(fs::metadata(lock)?.permissions().mode() & 0o777 == 0o600, "mode of the lock file");
    let second = second_home.start(&["--lock-file", lock])?;
    second.wait_log(&["Acquiring file lock"])?;
    ensure!(!second.log()?.contains("Listening on the local socket"), "{}", second.log()?);
    ensure!(first.stop()?.success(), "{}", first.log()?);
    second.wait_ready()
}

#[test]
fn who_shall_leave_on_contention_makes_room_for_the_next() -> Result<()> {
    let (first_home, second_home) = (Home::new()?, Home::new()?);
    let lock = first_home.path("lock");
    let flags = ["--lock-file", lock.to_str().context("UTF-8")?, "--exit-on-lock-contention"];
    let mut first = first_home.start(&flags)?;
    first.wait_ready()?;
    let second = second_home.start(&flags)?;
    ensure!(first.wait_end()?.code() == Some(0), "{}", first.log()?);
    second.wait_ready()
}

#[test]
fn folders_and_limits_are_upstreams() -> Result<()> {
    let home = Home::new()?;
    let agent = home.start(&["--oom-score-adj=500", "--max-open-files=4321"])?;
    agent.wait_ready()?;
    for (folder, mode) in [
        ("root", 0o750),
        ("root/pods", 0o750),
        ("root/plugins", 0o750),
        ("root/plugins_registry", 0o750),
        ("root/pod-resources", 0o750),
        ("root/checkpoints", 0o700),
        ("pod-logs", 0o750),
        ("container-logs", 0o755),
    ] {
        let found = fs::metadata(home.path(folder)).with_context(|| folder.to_owned())?.permissions().mode();
        ensure!(found & 0o777 == mode, "{folder}: {found:o}");
    }
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", agent.child.id()));
    ensure!(proc("oom_score_adj")?.trim() == "500", "{}", proc("oom_score_adj")?);
    let limits = proc("limits")?;
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    ensure!(files.split_whitespace().filter(|word| *word == "4321").count() == 2, "{files}");
    Ok(())
}

#[test]
fn what_the_machine_does_not_grant_is_said_once() -> Result<()> {
    let home = Home::new()?;
    let agent = home.start(&["--oom-score-adj=-1000"])?;
    agent.wait_ready()?;
    let granted = fs::read_to_string(format!("/proc/{}/oom_score_adj", agent.child.id()))?;
    let warnings = agent.log()?.matches("does not grant this oom_score_adj").count();
    let expected = if granted.trim() == "-1000" { 0 } else { 1 };
    ensure!(warnings == expected, "oom_score_adj {granted}:\n{}", agent.log()?);
    Ok(())
}

#[test]
fn a_healthz_port_that_is_taken_is_tried_again() -> Result<()> {
    let home = Home::new()?;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, home.healthz))?;
    let agent = home.start(&[])?;
    agent.wait_ready()?;
    agent.wait_log(&["Failed to start healthz server"])?;
    drop(taken);
    ensure!(
        until(Deadline::after(PATIENCE), || healthz(home.healthz).is_ok_and(|body| body == "ok")),
        "healthz"
    );
    Ok(())
}

#[test]
fn every_line_of_a_json_log_is_json() -> Result<()> {
    let home = Home::new()?;
    let mut agent = home.start(&["--logging-format=json"])?;
    agent.wait_ready()?;
    ensure!(agent.stop()?.success(), "{}", agent.log()?);
    let log = agent.log()?;
    for line in log.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        for key in ["ts", "caller", "msg"] {
            ensure!(!value[key].is_null(), "{key}: {line}");
        }
    }
    ensure!(
        log.lines()
            .next()
            .is_some_and(|line| line.contains(r#""msg":"Kubelet version","v":0,"kubeletVersion":"v1."#)),
        "{log}"
    );
    Ok(())
}

#[test]
fn a_kubeconfig_is_checked_and_the_agent_runs_without_an_api_server() -> Result<()> {
    let home = Home::new()?;
    let path = home.path("kubeconfig");
    let kubeconfig = path.to_str().context("UTF-8")?;
    fs::write(&path, "current-context: nowhere")?;
    let mut agent = home.start(&["--kubeconfig", kubeconfig])?;
    ensure!(agent.wait_end()?.code() == Some(1), "{}", agent.log()?);
    agent.wait_log(&["invalid kubeconfig", kubeconfig, "there is no context"])?;

    fs::write(
        &path,
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]",
    )?;
    let agent = home.start(&["--kubeconfig", kubeconfig, "--enable-server=false"])?;
    agent.wait_ready()?;
    agent.wait_log(&["127.0.0.1:1", "connection refused"])?;
    Ok(())
}

#[test]
fn run_once_needs_manifests() -> Result<()> {
    let home = Home::new()?;
    fs::remove_dir(home.path("manifests"))?;
    let mut agent = home.start(&["--runonce"])?;
    ensure!(agent.wait_end()?.code() == Some(1), "{}", agent.log()?);
    agent.wait_log(&["runonce failed: the manifest path does not exist"])?;
    Ok(())
}

//! The agent's handle, against a program that only pretends: what is tested here is the waiting, not the agent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crablet_testbed::{Agent, Containerd, Flavor, StartOptions};

/// A runtime without images, for its scratch folder.
fn runtime() -> Option<Containerd> {
    let flavor = *Flavor::under_test().first()?;
    Some(Containerd::start(StartOptions { import_images: false, ..StartOptions::new(flavor) }).unwrap())
}

/// A program in the scratch folder that says something and then does as `script` tells.
fn pretender(containerd: &Containerd, script: &str) -> PathBuf {
    let path = containerd.scratch().dir().join("pretender");
    fs::write(&path, format!("#!/bin/sh\necho \"started with $*\" >&2\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Answers one connection with these lines as one chunk each, and closes it without a proper end, as a killed agent
/// would.
fn serve_once(listener: &UnixListener, lines: &[String]) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; 1024];
    let _ = stream.read(&mut request).unwrap();
    let chunks: String = lines.iter().map(|line| format!("{:x}\r\n{line}\n\r\n", line.len() + 1)).collect();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}{chunks}").as_bytes()).unwrap();
}

fn report(phase: &str, restarts: u32) -> String {
    format!(
        r#"{{"pods":[{{"name":"web-node1","namespace":"default","uid":"1","phase":"{phase}","ready":true,"podIP":"","restarts":{restarts},"desired":true}}],"runtime":{{"ready":true,"message":""}},"sourcesReady":true}}"#
    )
}

#[test]
fn waiting_survives_a_late_socket_and_a_restart() {
    let Some(containerd) = runtime() else { return };
    let agent = Agent::builder(pretender(&containerd, "exec sleep 1000"), &containerd).start().unwrap();
    agent.wait_for_log(Duration::from_secs(10), "--pod-manifest-path").unwrap();
    let socket = agent.socket();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let listener = UnixListener::bind(&socket).unwrap();
            serve_once(&listener, &[report("Pending", 0), report("Running", 0)]);
            agent.kill9().unwrap();
            drop(listener);
            fs::remove_file(&socket).unwrap();
            agent.start().unwrap();
            let listener = UnixListener::bind(&socket).unwrap();
            serve_once(&listener, &[report("Running", 7)]);
        });
        let found =
            agent.wait_for(Duration::from_secs(30), |snapshot| snapshot.pods[0].restarts == 7).unwrap();
        assert!(found.is_ready("web"));
        server.join().unwrap();
    });
    // `sleep` as an agent ends by the signal instead of leaving in peace, and that is reported.
    assert!(agent.stop().unwrap_err().to_string().contains("after SIGTERM"));
    drop(agent);
    containerd.stop().unwrap();
}

#[test]
fn an_agent_that_ends_by_itself_is_reported_at_once_with_its_log() {
    let Some(containerd) = runtime() else { return };
    let program = pretender(&containerd, "echo 'the config is bad' >&2; exit 3");
    let agent =
        Agent::builder(program, &containerd).node_name("n").config("syncFrequency: 1s").start().unwrap();
    let started = Instant::now();
    let error = agent.wait_for(Duration::from_secs(60), |_| true).unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(error.contains("exit status: 3") && error.contains("the config is bad"), "{error}");
    let config = fs::read_to_string(agent.home().join("config.yaml")).unwrap();
    assert!(config.ends_with("syncFrequency: 1s\n") && config.contains("podLogsDir: "), "{config}");
}

#[test]
fn a_manifest_appears_whole_and_goes() {
    let Some(containerd) = runtime() else { return };
    let agent = Agent::builder("/bin/true", &containerd).build().unwrap();
    agent.put_manifest("web.yaml", "kind: Pod").unwrap();
    let names: Vec<_> =
        fs::read_dir(agent.manifest_dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["web.yaml"]);
    agent.remove_manifest("web.yaml").unwrap();
    assert!(agent.remove_manifest("web.yaml").is_err());
}

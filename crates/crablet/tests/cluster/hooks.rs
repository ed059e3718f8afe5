//! Hooks after the start and before the end of containers: commands, requests, pauses; what fails; what takes too long.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::lifecycle::{diary, ensure_lines, lines, pod_of};
use super::support::{PATIENCE, Room, ensure_has, main_container, shell};

fn hooked(room: &Room<'_>, name: &str, lifecycle: Value) -> Value {
    let mut container = shell("main", &diary("main"));
    container["lifecycle"] = lifecycle;
    pod_of(room, name, json!([container]))
}

fn command(script: &str) -> Value {
    json!({ "exec": { "command": ["/bin/sh", "-c", script] } })
}

pub fn commands_run_at_begin_and_end(room: &Room<'_>) -> Result<()> {
    let begin = "until [ -s /room/diary ]; do sleep 0.1; done; sleep 1; echo after the begin >> /room/diary";
    let end = "sleep 1; echo before the end >> /room/diary";
    let mut pod = hooked(room, "told", json!({ "postStart": command(begin), "preStop": command(end) }));
    // The hook is part of the start, and the second container waits for that of the first.
    let second = "trap 'exit 0' TERM; echo second begins >> /room/diary; while true; do sleep 0.1; done";
    let mut second = shell("second", second);
    second["volumeMounts"] = pod["spec"]["containers"][0]["volumeMounts"].clone();
    pod["spec"]["containers"].as_array_mut().context("a list")?.push(second);
    room.create_ready(&pod)?;
    room.until("the second container's words", || Ok(lines(room).len() == 3))?;
    room.delete(&["pod", "told"])?;
    let expected = ["main begins", "after the begin", "second begins", "before the end", "main stops"];
    ensure_lines(room, &expected)
}

pub fn requests_are_sent_at_begin_and_end(room: &Room<'_>) -> Result<()> {
    let ear = Ear::start(room)?;
    let get = |path: &str, scheme: &str| {
        let headers = json!([{ "name": "X-Room", "value": "hooks" }]);
        let (host, port) = (ear.at.ip(), ear.at.port());
        json!({ "httpGet": { "host": host, "port": port, "path": path, "scheme": scheme, "httpHeaders": headers } })
    };
    // Any answer is a good one, and one in plain HTTP is as good where TLS was expected.
    let hooks = json!({ "postStart": get("/begin?a=b", "HTTP"), "preStop": get("/end", "HTTPS") });
    room.create_ready(&hooked(room, "asking", hooks))?;
    let heard = ear.next()?;
    ensure!(heard[0] == "GET /begin?a=b HTTP/1.1", "{heard:#?}");
    let head = heard.join("\n").to_lowercase();
    ensure_has(&head, &["user-agent: kube-lifecycle/1.36", "x-room: hooks", "accept: */*"])?;
    room.until("its begin", || Ok(lines(room).len() == 1))?;
    room.delete(&["pod", "asking"])?;
    ear.next().context("a greeting in TLS")?;
    // Upstream means to tell of this with an event, and never does.
    let heard = ear.next()?;
    ensure!(heard[0] == "GET /end HTTP/1.1", "{heard:#?}");
    ensure_lines(room, &["main begins", "main stops"])
}

pub fn a_pause_is_kept(room: &Room<'_>) -> Result<()> {
    let hooks =
        json!({ "postStart": { "sleep": { "seconds": 1 } }, "preStop": { "sleep": { "seconds": 4 } } });
    let mut pod = hooked(room, "slow", hooks);
    let mut quick = shell("quick", &diary("quick"));
    quick["volumeMounts"] = pod["spec"]["containers"][0]["volumeMounts"].clone();
    pod["spec"]["containers"].as_array_mut().context("a list")?.push(quick);
    room.create_ready(&pod)?;
    room.until("the begin of both", || Ok(lines(room).len() == 2))?;
    room.delete(&["pod", "slow"])?;
    ensure_lines(room, &["main begins", "quick begins", "quick stops", "main stops"])
}

pub fn a_failed_begin_ends_the_container(room: &Room<'_>) -> Result<()> {
    let fails = "until [ -s /room/diary ]; do sleep 0.1; done; echo in vain; echo for nothing >&2; exit 3";
    let hooks = json!({ "postStart": command(fails), "preStop": command("echo farewell >> /room/diary") });
    let pod = hooked(room, "sorry", hooks);
    let shown = "jsonpath={.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].state.waiting.message}{\"\\n\"}";
    let mut watch = room.follow(&["get", "pods", "--watch", "-o", shown])?;
    room.create(&pod)?;
    let told = watch.until(|line| line.starts_with("PostStartHookError"))?;
    ensure_has(
        &told,
        &[
            &format!("Exec lifecycle hook ([/bin/sh -c {fails}]) for Container \"main\" in Pod \"sorry_"),
            &format!("failed - error: command '/bin/sh -c {fails}' exited with 3: for nothing"),
        ],
    )?;
    ensure!(room.event("pod/sorry", "FailedPostStartHook")? == "PostStartHook failed", "another event");
    ensure!(room.event("pod/sorry", "Killing")? == "FailedPostStartHook", "another event");
    // It ends as any container does, and is begun again as any that ended.
    room.until("a second begin", || Ok(lines(room).len() > 3))?;
    ensure!(
        lines(room)[..4] == ["main begins", "farewell", "main stops", "main begins"],
        "{:#?}",
        lines(room)
    );
    room.wait("pod/sorry", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")?;
    let status = main_container(&room.get("pod/sorry")?).clone();
    ensure!(status["lastState"]["terminated"]["exitCode"] == 0, "the last state: {status:#}");
    room.delete(&["pod", "sorry"])
}

pub fn a_failed_end_is_told(room: &Room<'_>) -> Result<()> {
    room.create_ready(&hooked(room, "sulky", json!({ "preStop": command("exit 4") })))?;
    room.until("its begin", || Ok(lines(room).len() == 1))?;
    room.delete(&["pod", "sulky"])?;
    ensure!(room.event("pod/sulky", "FailedPreStopHook")? == "PreStopHook failed", "another event");
    ensure!(room.event("pod/sulky", "Killing")? == "Stopping container main", "another event");
    ensure_lines(room, &["main begins", "main stops"])
}

pub fn the_grace_is_longer_than_no_hook(room: &Room<'_>) -> Result<()> {
    let endless = command("echo waiting >> /room/diary; sleep 3600");
    let mut pod = hooked(room, "endless", json!({ "preStop": endless }));
    // Enough for a hook to begin on a busy machine.
    pod["spec"]["terminationGracePeriodSeconds"] = json!(15);
    room.create_ready(&pod)?;
    room.until("its begin", || Ok(lines(room).len() == 1))?;
    room.delete(&["pod", "endless"])?;
    // The container itself is asked to end, and has a moment for it.
    ensure_lines(room, &["main begins", "waiting", "main stops"])
}

/// Hears requests on the host, and answers all of them with a refusal in plain HTTP.
struct Ear {
    at: SocketAddr,
    heard: Receiver<Vec<String>>,
}

impl Ear {
    fn start(room: &Room<'_>) -> Result<Ear> {
        let listener = TcpListener::bind((room.cluster.network().gateway(), 0))?;
        let at = listener.local_addr()?;
        let (sender, heard) = channel();
        // Ends with the test's process at the latest: nobody else can wake it.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let Ok(copy) = stream.try_clone() else { break };
                let mut reader = BufReader::new(copy);
                let mut head = Vec::new();
                let is_tls = reader.fill_buf().is_ok_and(|bytes| bytes.first() == Some(&0x16));
                if !is_tls {
                    let lines = reader.lines().map_while(Result::ok);
                    head = lines.take_while(|line| !line.is_empty()).collect();
                }
                let _ = stream
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                if sender.send(head).is_err() {
                    break;
                }
            }
        });
        Ok(Ear { at, heard })
    }

    fn next(&self) -> Result<Vec<String>> {
        self.heard.recv_timeout(PATIENCE).context("nobody asks")
    }
}

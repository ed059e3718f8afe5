//! What the kubelet holds for its clients: given back when they vanish, and kept apart when they are many.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use crablet_testbed::cluster::{Cluster, Kubelet};
use crablet_testbed::kubelet_port::{KubeletPort, Outcome, Protocol, Session, Wanted};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{clients, direct};
use crate::cluster::pods::with_folder;
use crate::cluster::support::{PATIENCE, QUIET, Room, kubelet, shell_pod};

const VANISHING: usize = 5;
const TALKERS: usize = 10;
const SESSIONS: usize = 100;
/// An API server keeps this many connections to a kubelet for the next request.
const KEPT: usize = 25;
/// Handshakes under way at once: no more than a small machine can do.
const DIALS: usize = 16;

/// Of each talker: at the kubelet's own port, and through the API server, which has many of them on one connection.
/// Upstream opens an inotify instance for each follower, and Linux allows a user 128 of them unless it is told otherwise:
/// there the rest would read `failed to create fsnotify watcher: too many open files`.
fn followers() -> (usize, usize) {
    if kubelet() == Kubelet::Upstream { (5, 3) } else { (20, 12) }
}

/// Files, sockets and pipes that the process has open.
fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd")).context("the kubelet is gone")?.count())
}

fn until_given_back(room: &Room<'_>, pid: u32, before: usize) -> Result<()> {
    let mut now = 0;
    room.until("the kubelet gives back what it held", || {
        now = open_files(pid)?;
        Ok(now <= before)
    })
    .with_context(|| format!("{before} files were open before, {now} are now"))
}

/// Without a farewell, in the middle of what they do.
pub fn clients_vanish(room: &Room<'_>, pid: u32) -> Result<()> {
    room.create_ready(&shell_pod("deserted", QUIET))?;
    let clients = clients::both()?;
    for client in &clients {
        // The API server keeps a connection for plain requests: it is there before anything is counted.
        client.output(room, &["exec", "deserted", "--", "true"])?;
        client.output(room, &["logs", "deserted"])?;
    }
    let before = open_files(pid)?;
    let mut sessions = Vec::new();
    for client in clients.iter().cycle().take(2 * VANISHING) {
        let mut session = client.talk(room, &["exec", "-i", "deserted", "--", "cat"])?;
        session.say("hello\n")?;
        session.until(|line| line == "hello")?;
        sessions.push(session);
        let follow = client.follow(room, &["logs", "-f", "deserted"])?;
        sessions.push(follow);
    }
    let during = open_files(pid)?;
    ensure!(during > before, "sessions that hold nothing: {before} files, then {during}");
    for session in sessions {
        session.kill9()?;
    }
    room.until("the commands see the end of their input", || {
        Ok(clients[0].run(room, &["exec", "deserted", "--", "pidof", "cat"])?.code == Some(1))
    })?;
    until_given_back(room, pid, before)?;
    room.delete(&["pod", "deserted"])
}

/// Each gets what is meant for it, while pods come and go beside them.
pub fn many_sessions_at_once(room: &Room<'_>, pid: u32) -> Result<()> {
    // Says its name with a number ten times a second, until it is told to end.
    let script = "n=0; until [ -e /room/end ]; do n=$((n + 1)); echo \"$HOSTNAME $n\"; sleep 0.1; done; echo \"$HOSTNAME over\"";
    let names: Vec<String> = (0..TALKERS).map(|number| format!("talker-{number}")).collect();
    for name in &names {
        let mut pod = with_folder(room, shell_pod(name, script));
        pod["spec"]["restartPolicy"] = "Never".into();
        room.create(&pod)?;
    }
    room.create_ready(&shell_pod("sh", QUIET))?;
    for name in &names {
        room.wait_ready(name)?;
    }
    let before = open_files(pid)?;
    let runtime = direct::runtime()?;
    let crowd = runtime.block_on(Crowd::gather(room.cluster, room.namespace(), &names))?;
    eprintln!("{} files are open in the kubelet, {before} before", open_files(pid)?);
    churn(room)?;
    let begin = Instant::now();
    fs::write(room.folder().join("end"), "")?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, crowd.end()).await.context("a crowd without an end")?
    })?;
    eprintln!("all of them ended in {:.1?}", begin.elapsed());
    drop(runtime);
    until_given_back(room, pid, before + KEPT)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    room.delete(&[&["pod", "sh"], names.as_slice()].concat())
}

/// Pods come and go.
fn churn(room: &Room<'_>) -> Result<()> {
    let names = ["guest-0", "guest-1", "guest-2", "guest-3"];
    for name in names {
        room.create(&shell_pod(name, QUIET))?;
    }
    for name in names {
        room.wait_ready(name)?;
    }
    room.delete(&[&["pod"], names.as_slice()].concat())
}

struct Crowd {
    followers: JoinSet<Result<()>>,
    sessions: Vec<(String, Session)>,
}

impl Crowd {
    async fn gather(cluster: &Cluster, namespace: &str, names: &[String]) -> Result<Crowd> {
        let port = KubeletPort::of(cluster)?;
        let (followers, sessions) =
            tokio::try_join!(follow_all(cluster, namespace, names), open_all(&port, namespace))?;
        Ok(Crowd { followers, sessions })
    }

    async fn end(mut self) -> Result<()> {
        let mut ends = JoinSet::new();
        for (word, session) in self.sessions {
            ends.spawn(async move {
                session.talker.send(format!("bye from {word}\n").as_bytes()).await?;
                session.talker.close_input().await?;
                let outcome = session.finish().await?;
                ensure_own(&word, &outcome)
            });
        }
        while let Some(end) = ends.join_next().await {
            end??;
        }
        while let Some(end) = self.followers.join_next().await {
            end??;
        }
        Ok(())
    }
}

fn ensure_own(word: &str, outcome: &Outcome) -> Result<()> {
    ensure!(outcome.exit_code()? == 0, "{outcome:?}");
    let expected = format!("hello from {word}\nbye from {word}\n");
    ensure!(outcome.output_text() == expected, "session {word} heard {:?}", outcome.output_text());
    Ok(())
}

/// Each of them runs `cat`, and has heard its own first words.
async fn open_all(port: &KubeletPort, namespace: &str) -> Result<Vec<(String, Session)>> {
    let dials = Arc::new(Semaphore::new(DIALS));
    let mut opening = JoinSet::new();
    for number in 0..SESSIONS {
        let (port, dials, path) = (port.clone(), Arc::clone(&dials), format!("/exec/{namespace}/sh/main"));
        let protocol = if number % 2 == 0 { Protocol::Spdy } else { Protocol::WebSocketV5 };
        opening.spawn(async move {
            let _place = dials.acquire_owned().await?;
            let mut session = port.session(protocol, &path, &Wanted::command(&["cat"]).with_input()).await?;
            let word = number.to_string();
            let hello = format!("hello from {word}\n");
            session.talker.send(hello.as_bytes()).await?;
            let heard = session.listener.until(|output| output.len() >= hello.len());
            let heard = tokio::time::timeout(PATIENCE, heard).await.context("no echo")??;
            ensure!(heard == hello.as_bytes(), "session {word} heard {heard:?}");
            Ok((word, session))
        });
    }
    let mut sessions = Vec::new();
    while let Some(opened) = opening.join_next().await {
        sessions.push(opened??);
    }
    Ok(sessions)
}

/// They have all begun to hear when this comes back, and check what they hear until its end.
async fn follow_all(cluster: &Cluster, namespace: &str, names: &[String]) -> Result<JoinSet<Result<()>>> {
    let (direct, behind) = followers();
    let places = [(KubeletPort::of(cluster)?, direct), (KubeletPort::behind_api_server(cluster)?, behind)];
    let dials = Arc::new(Semaphore::new(DIALS));
    let mut opening = JoinSet::new();
    for (index, (port, count)) in places.into_iter().enumerate() {
        for name in names.iter().cycle().take(names.len() * count) {
            let path = match index {
                0 => format!("/containerLogs/{namespace}/{name}/main?follow=true"),
                _ => format!("/api/v1/namespaces/{namespace}/pods/{name}/log?follow=true"),
            };
            let (port, dials, name) = (port.clone(), Arc::clone(&dials), name.clone());
            opening.spawn(async move {
                let _place = dials.acquire_owned().await?;
                let mut body = port.get(&path).await?;
                let first = tokio::time::timeout(PATIENCE, next(&mut body)).await.context("no line")??;
                anyhow::Ok((name, first, body))
            });
        }
    }
    let mut followers = JoinSet::new();
    while let Some(opened) = opening.join_next().await {
        let (name, first, body) = opened??;
        followers.spawn(async move { listen(&name, first.context("no log")?, body).await });
    }
    Ok(followers)
}

/// Every line from the first to the last, and nobody else's.
async fn listen(name: &str, first: Bytes, mut body: Incoming) -> Result<()> {
    let mut text = first.to_vec();
    while let Some(bytes) = next(&mut body).await? {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text)?;
    let count = text.lines().count();
    for (index, line) in text.lines().enumerate() {
        let is_last = index + 1 == count;
        let expected = if is_last { format!("{name} over") } else { format!("{name} {}", index + 1) };
        if line != expected {
            bail!("line {} of {count} of `{name}` is {line:?}", index + 1);
        }
    }
    ensure!(count > 1, "`{name}` said only {text:?}");
    Ok(())
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

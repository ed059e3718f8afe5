//! Reading logs.

use std::fs;

use anyhow::{Context, Result, ensure};
use crablet_protos::cri::ReopenContainerLogRequest;
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::json;

use super::clients;
use crate::cluster::pods::with_folder;
use crate::cluster::support::{QUIET, Room, main_container, shell, shell_pod};

pub fn logs_are_read_in_every_way(room: &Room<'_>) -> Result<()> {
    // A second and more lies between the first two lines: clients ask for times in whole seconds.
    let script = "if [ -e /room/ran ]; then echo one; sleep 1.2; echo two; echo three; \
                  until [ -e /room/end ]; do sleep 0.1; done; echo last; exit 0; fi; \
                  touch /room/ran; echo first; exit 3";
    let mut pod = with_folder(room, shell_pod("talker", script));
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    room.create(&pod)?;
    room.wait("pod/talker", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    let clients = clients::both()?;
    let mut following = Vec::new();
    for client in &clients {
        let mut follow = client.follow(room, &["logs", "-f", "talker"])?;
        follow.until(|line| line == "three")?;
        following.push(follow);
    }
    let stamped = clients[0].output(room, &["logs", "talker", "--timestamps"])?;
    let first: Timestamp =
        stamped.split(' ').next().unwrap_or_default().parse().with_context(|| stamped.clone())?;
    let after = first.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Ceil))?;
    let after_first = format!("--since-time={after}");
    for client in &clients {
        for (asked, expected) in [
            (&["talker"][..], "one\ntwo\nthree\n"),
            (&["talker", "--previous"], "first\n"),
            (&["talker", "--tail=2"], "two\nthree\n"),
            (&["talker", "--tail=0"], ""),
            (&["talker", "--limit-bytes=5"], "one\nt"),
            (&["talker", "--since=1h"], "one\ntwo\nthree\n"),
            (&["talker", &after_first], "two\nthree\n"),
            (&["talker", &after_first, "--tail=1"], "three\n"),
        ] {
            let said = client.output(room, &[&["logs"], asked].concat())?;
            ensure!(said == expected, "the {} kubectl with {asked:?} shows {said:?}", client.name);
        }
        let said = client.output(room, &["logs", "talker", "--timestamps"])?;
        ensure!(said == stamped, "the {} kubectl shows other times: {said}", client.name);
        room.until("lines become older than a second", || {
            Ok(client.output(room, &["logs", "talker", "--since=1s"])?.is_empty())
        })?;
    }
    fs::write(room.folder().join("end"), "")?;
    for follow in following {
        let said = follow.until_its_end()?;
        ensure!(said == ["one", "two", "three", "last"], "logs -f said {said:?}");
    }
    room.delete(&["pod", "talker"])
}

/// What a kubelet does once a log is too long, done by hand: the file is moved away, and the runtime begins a new one.
pub fn a_rotated_log_is_followed_on(room: &Room<'_>) -> Result<()> {
    let script = "echo before; until [ -e /room/go ]; do sleep 0.1; done; echo after; \
                  until [ -e /room/end ]; do sleep 0.1; done; echo last";
    let mut pod = with_folder(room, shell_pod("turned", script));
    pod["spec"]["restartPolicy"] = json!("Never");
    room.create_ready(&pod)?;
    let mut following = Vec::new();
    for client in clients::both()? {
        let mut follow = client.follow(room, &["logs", "-f", "turned"])?;
        follow.until(|line| line == "before")?;
        following.push(follow);
    }
    let pod = room.get("pod/turned")?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let folder = format!("node/pod-logs/{}_turned_{uid}/main", room.namespace());
    let folder = room.cluster.dir().join(folder);
    fs::rename(folder.join("0.log"), folder.join("0.log.20000101-000000"))?;
    reopen(room, main_container(&pod)["containerID"].as_str().context("no container")?)?;
    fs::write(room.folder().join("go"), "")?;
    for follow in &mut following {
        follow.until(|line| line == "after")?;
    }
    let rest = clients::both()?[0].output(room, &["logs", "turned"])?;
    ensure!(rest == "after\n", "logs show more than the file in use: {rest:?}");
    fs::write(room.folder().join("end"), "")?;
    for follow in following {
        let said = follow.until_its_end()?;
        ensure!(said == ["before", "after", "last"], "logs -f said {said:?}");
    }
    room.delete(&["pod", "turned"])
}

fn reopen(room: &Room<'_>, container: &str) -> Result<()> {
    let id = container.trim_start_matches("containerd://").to_owned();
    let socket = room.cluster.containerd().endpoint();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = tonic::transport::Endpoint::try_from(socket)?.connect().await?;
        let request = ReopenContainerLogRequest { container_id: id };
        RuntimeServiceClient::new(channel).reopen_container_log(request).await?;
        anyhow::Ok(())
    })
}

pub fn logs_that_cannot_be_had_are_refused(room: &Room<'_>) -> Result<()> {
    let mut pod = shell_pod("partly", QUIET);
    let mut lacking = shell("lacking", QUIET);
    lacking["image"] = json!("crablet.test/nothing:1");
    lacking["imagePullPolicy"] = json!("Never");
    pod["spec"]["containers"] = json!([shell("main", QUIET), lacking]);
    room.create(&pod)?;
    let waits =
        "jsonpath={.status.containerStatuses[?(@.name=='lacking')].state.waiting.reason}=ErrImageNeverPull";
    room.wait("pod/partly", waits)?;
    let runs = "jsonpath={.status.containerStatuses[?(@.name=='main')].started}=true";
    room.wait("pod/partly", runs)?;
    for client in clients::both()? {
        client.run(room, &["logs", "partly", "-c", "lacking"])?.ensure_refused(&[
            "Error from server (BadRequest): container \"lacking\" in pod \"partly\" is waiting to start: ErrImageNeverPull",
        ])?;
        client.run(room, &["logs", "partly", "-c", "main", "--previous"])?.ensure_refused(&[
            "Error from server (BadRequest): previous terminated container \"main\" in pod \"partly\" not found",
        ])?;
        ensure!(client.output(room, &["logs", "partly", "-c", "main"])?.is_empty(), "it says something");
    }
    room.delete(&["pod", "partly"])
}

//! Single pods, as a person handles them.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::Kubelet;
use crablet_testbed::wait::Deadline;
use crablet_testbed::{http, images};
use serde_json::json;

use super::support::{QUIET, Room, ensure_has, kubelet, main_container, shell_pod};

pub fn a_pod_runs_and_can_be_looked_at(room: &Room<'_>) -> Result<()> {
    let image = format!("--image={}", images::WEB);
    room.kubectl(&["run", "web", &image, "--image-pull-policy=IfNotPresent"])?;
    room.wait_ready("web")?;
    let pod = room.get("pod/web")?;
    let address = pod["status"]["podIP"].as_str().context("no podIP")?;
    let wide = room.kubectl(&["get", "pod", "web", "-o", "wide"])?;
    ensure_has(&wide, &["1/1", "Running", address, " node "])?;
    let gateway = room.cluster.network().gateway().to_string();
    ensure!(pod["status"]["hostIP"] == gateway.as_str(), "hostIP is {}", pod["status"]["hostIP"]);
    ensure!(pod["status"]["qosClass"] == "BestEffort", "qosClass is {}", pod["status"]["qosClass"]);
    ensure!(pod["status"]["observedGeneration"] == pod["metadata"]["generation"], "{:#}", pod["status"]);

    let at: SocketAddr = format!("{address}:{}", images::WEB_PORT).parse()?;
    let page = http::tcp(at, "GET", "/", Deadline::after(Duration::from_secs(20)))?.text()?;
    ensure!(page == images::WEB_PAGE, "the page is {page:?}");
    room.says("web", "response:200")?;

    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        room.event("pod/web", reason)?;
    }
    let described = room.kubectl(&["describe", "pod", "web"])?;
    ensure_has(
        &described,
        &["Successfully assigned", "already present on machine", "Container created", "Container started"],
    )?;
    room.delete(&["pod", "web", "--now"])?;
    Ok(())
}

pub fn logs_can_be_read_in_every_way(room: &Room<'_>) -> Result<()> {
    // The second run of the container finds the first one's mark.
    let script = "if [ -e /room/ran ]; then echo second; echo more; touch /room/again; \
                  until [ -e /room/end ]; do sleep 0.2; done; echo last; exit 0; fi; \
                  touch /room/ran; echo first; exit 3";
    let mut pod = with_folder(room, shell_pod("talker", script));
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    room.create(&pod)?;
    room.until("a second run of the container", || Ok(room.folder().join("again").exists()))?;
    room.wait("pod/talker", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    ensure!(
        room.kubectl(&["logs", "talker", "--previous"])? == "first\n",
        "--previous is not the first run's"
    );
    ensure!(room.kubectl(&["logs", "talker"])? == "second\nmore\n", "logs are not the second run's");
    ensure!(room.kubectl(&["logs", "talker", "--tail=1"])? == "more\n", "--tail=1 is not the last line");
    let stamped = room.kubectl(&["logs", "talker", "--timestamps", "--tail=1"])?;
    let time = stamped.split(' ').next().unwrap_or_default();
    ensure!(time.parse::<jiff::Timestamp>().is_ok(), "--timestamps shows {stamped:?}");
    let last = &main_container(&room.get("pod/talker")?)["lastState"]["terminated"].clone();
    ensure!(last["exitCode"] == 3 && last["reason"] == "Error", "the last state is {last}");

    let mut following = room.follow(&["logs", "-f", "talker"])?;
    following.until(|line| line == "more")?;
    fs::write(room.folder().join("end"), "")?;
    let said = following.until_its_end()?;
    ensure!(said == ["second", "more", "last"], "logs -f said {said:?}");
    room.wait("pod/talker", "jsonpath={.status.phase}=Succeeded")?;
    room.delete(&["pod", "talker"])?;
    Ok(())
}

pub fn grace_is_given_and_the_end_is_told(room: &Room<'_>) -> Result<()> {
    // An hour of grace: who would use it up would miss every deadline here.
    let fails = "trap 'echo told; exit 7' TERM; while true; do sleep 3600 & wait $!; done";
    for (name, script) in [("polite", QUIET), ("sulky", fails)] {
        let mut pod = shell_pod(name, script);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(3600);
        room.create(&pod)?;
    }
    for (name, end) in [("polite", "Succeeded 0 False"), ("sulky", "Failed 7 False")] {
        room.wait_ready(name)?;
        let shown = "jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.exitCode} \
                     {.status.conditions[?(@.type=='Ready')].status}{\"\\n\"}";
        let mut watch = room.follow(&["get", "pod", name, "--watch", "-o", shown])?;
        // It has to watch before there is an end to see.
        watch.until(|line| line.starts_with("Running"))?;
        room.delete(&["pod", name])?;
        watch.until(|line| line == end).with_context(|| format!("`{name}` did not end as `{end}`"))?;
        ensure!(room.running(name)?.is_empty(), "a container of `{name}` outlives its pod");
        room.until("the removal of the containers", || Ok(room.containers(name)?.is_empty()))?;
    }
    Ok(())
}

pub fn force_does_not_wait(room: &Room<'_>) -> Result<()> {
    let mut pod = shell_pod("deaf", "trap '' TERM; while true; do sleep 3600; done");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    room.create_ready(&pod)?;
    ensure!(room.running("deaf")?.len() == 1, "one container runs");
    room.delete(&["pod", "deaf", "--force", "--grace-period=0"])?;
    room.until("the end of the container", || Ok(room.containers("deaf")?.is_empty()))
}

pub fn what_is_not_supported_waits_and_says_so(room: &Room<'_>) -> Result<()> {
    if kubelet() == Kubelet::Upstream {
        return Ok(());
    }
    let mut claiming = shell_pod("claiming", QUIET);
    claiming["spec"]["nodeName"] = json!("node");
    claiming["spec"]["resourceClaims"] = json!([{ "name": "device", "resourceClaimName": "nobody-has-it" }]);
    let mut cloned = shell_pod("cloned", QUIET);
    cloned["spec"]["volumes"] = json!([{ "name": "code", "gitRepo": { "repository": "file:///nowhere" } }]);
    for (pod, field) in [(&claiming, "spec.resourceClaims"), (&cloned, "spec.volumes[0].gitRepo")] {
        let name = pod["metadata"]["name"].as_str().context("it has a name")?;
        room.create(pod)?;
        let reason =
            "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError";
        room.wait(&format!("pod/{name}"), reason)?;
        let seen = room.get(&format!("pod/{name}"))?;
        ensure!(seen["status"]["phase"] == "Pending", "phase is {}", seen["status"]["phase"]);
        let message =
            main_container(&seen)["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
        ensure_has(&message, &[field])?;
        let event = room.event(&format!("pod/{name}"), "FailedValidation")?;
        ensure_has(&event, &[field])?;
        room.delete(&["pod", name])?;
    }
    Ok(())
}

/// The room's folder, at `/room` in the first container.
pub fn with_folder(room: &Room<'_>, mut pod: serde_json::Value) -> serde_json::Value {
    pod["spec"]["volumes"] =
        json!([{ "name": "room", "hostPath": { "path": room.folder(), "type": "Directory" } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "room", "mountPath": "/room" }]);
    pod
}

//! Ends that wait for others, that are hurried, and that come while something else is under way.

use std::fs;

use anyhow::{Result, ensure};
use crablet_testbed::cluster::Kubelet;
use serde_json::{Value, json};

use super::lifecycle::{diary, ensure_lines, lines, pod_of, sidecar, with_init};
use super::support::{Room, kubelet, shell};

fn with_pre_stop(mut container: Value, script: &str) -> Value {
    container["lifecycle"] = json!({ "preStop": { "exec": { "command": ["/bin/sh", "-c", script] } } });
    container
}

/// Hooks run when the end begins, whoever's they are; what is stopped in order is the containers. Everybody's end is told
/// when it begins.
pub fn a_sidecar_waits_for_others_with_its_hook_behind_it(room: &Room<'_>) -> Result<()> {
    let main = with_pre_stop(
        shell("main", &diary("main")),
        "echo main asks >> /room/diary; until [ -e /room/go ]; do sleep 0.1; done",
    );
    let hooked = with_pre_stop(sidecar("hooked"), "echo hooked asks >> /room/diary");
    let pod = with_init(pod_of(room, "escorted", json!([main])), json!([sidecar("plain"), hooked]));
    room.create_ready(&pod)?;
    room.until("everybody's begin", || Ok(lines(room).len() == 3))?;
    let shown = "jsonpath={.involvedObject.fieldPath} {.message}{\"\\n\"}";
    let about = "--field-selector=involvedObject.name=escorted,reason=Killing";
    let mut killing = room.follow(&["get", "events", about, "--watch", "-o", shown])?;
    room.kubectl(&["delete", "pod", "escorted", "--wait=false"])?;
    // All of them are told of while the first one's hook still runs.
    let mut told = Vec::new();
    while told.len() < 3 {
        told.push(killing.until(|_| true)?);
    }
    told.sort();
    let expected = [
        "spec.containers{main} Stopping container main",
        "spec.initContainers{hooked} Stopping container hooked",
        "spec.initContainers{plain} Stopping container plain",
    ];
    ensure!(told == expected, "told was {told:#?}");
    room.until("both hooks", || Ok(lines(room).len() == 5))?;
    let mut asked = lines(room)[3..].to_vec();
    asked.sort();
    ensure!(asked == ["hooked asks", "main asks"], "the diary says {:#?}", lines(room));
    fs::write(room.folder().join("go"), "")?;
    room.wait("pod/escorted", "delete")?;
    ensure!(lines(room)[5..] == ["main stops", "hooked stops", "plain stops"], "{:#?}", lines(room));
    Ok(())
}

/// Those before a sidecar use up the grace: it is stopped all the same, and has a moment for it.
pub fn a_sidecar_has_a_moment_when_the_grace_is_used_up(room: &Room<'_>) -> Result<()> {
    let deaf = "trap '' TERM; echo main begins >> /room/diary; while true; do sleep 0.1; done";
    let mut pod = with_init(pod_of(room, "late", json!([shell("main", deaf)])), json!([sidecar("beside")]));
    pod["spec"]["terminationGracePeriodSeconds"] = json!(4);
    room.create_ready(&pod)?;
    room.until("the begin of both", || Ok(lines(room).len() == 2))?;
    room.delete(&["pod", "late"])?;
    ensure!(lines(room)[2..] == ["beside stops"], "{:#?}", lines(room));
    Ok(())
}

/// Somebody loses patience with a container that takes its time. Upstream's kubelet lets a stop that is under way go on
/// with the time that it began with.
pub fn a_grace_can_be_made_shorter(room: &Room<'_>) -> Result<()> {
    if kubelet() == Kubelet::Upstream {
        return Ok(());
    }
    let deaf = "trap '' TERM; echo main begins >> /room/diary; while true; do sleep 0.1; done";
    let mut pod = pod_of(room, "stubborn", json!([shell("main", deaf)]));
    pod["spec"]["terminationGracePeriodSeconds"] = json!(3600);
    room.create_ready(&pod)?;
    ensure_lines(room, &["main begins"])?;
    room.kubectl(&["delete", "pod", "stubborn", "--wait=false"])?;
    room.event("pod/stubborn", "Killing")?;
    room.delete(&["pod", "stubborn", "--grace-period=1"])?;
    room.until("the container's end", || Ok(room.running("stubborn")?.is_empty()))
}

/// What waits for something that never comes goes at once when it is deleted, whatever its grace.
pub fn what_waits_can_be_deleted(room: &Room<'_>) -> Result<()> {
    let mut for_volume = pod_of(room, "for-volume", json!([shell("main", &diary("main"))]));
    for_volume["spec"]["volumes"].as_array_mut().into_iter().for_each(|volumes| {
        volumes.push(json!({ "name": "lost", "secret": { "secretName": "nowhere" } }));
    });
    for_volume["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "lost", "mountPath": "/lost" }]);
    let mut for_variable = pod_of(room, "for-variable", json!([shell("main", &diary("main"))]));
    for_variable["spec"]["containers"][0]["envFrom"] = json!([{ "configMapRef": { "name": "nowhere" } }]);
    for pod in [&mut for_volume, &mut for_variable] {
        pod["spec"]["terminationGracePeriodSeconds"] = json!(3600);
        room.create(pod)?;
    }
    room.event("pod/for-volume", "FailedMount")?;
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError";
    room.wait("pod/for-variable", reason)?;
    room.delete(&["pod", "for-volume", "for-variable"])?;
    ensure_lines(room, &[])
}

/// A container whose environment lacks an object starts once the object is there.
pub fn what_a_variable_lacks_is_waited_for(room: &Room<'_>) -> Result<()> {
    let mut pod = pod_of(room, "patient", json!([shell("main", "echo $WORD >> /room/diary; sleep 3600")]));
    pod["spec"]["containers"][0]["env"] =
        json!([{ "name": "WORD", "valueFrom": { "secretKeyRef": { "name": "later", "key": "word" } } }]);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
    room.create(&pod)?;
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError";
    room.wait("pod/patient", reason)?;
    let message =
        room.get("pod/patient")?["status"]["containerStatuses"][0]["state"]["waiting"]["message"].clone();
    ensure!(message == "secret \"later\" not found", "it says {message}");
    room.kubectl(&["create", "secret", "generic", "later", "--from-literal=word=welcome"])?;
    room.wait_ready("patient")?;
    ensure_lines(room, &["welcome"])?;
    room.delete(&["pod", "patient"])
}

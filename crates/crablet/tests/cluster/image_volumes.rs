//! Images as volumes: what they show, and what is told when they cannot be had.

use anyhow::{Result, ensure};
use crablet_testbed::images;
use serde_json::{Value, json};

use super::support::{QUIET, Room, ensure_has, main_container, shell_pod};

/// A pod that shows an image at `/image`.
fn pod(name: &str, image: &str, policy: &str) -> Value {
    let mut pod = shell_pod(name, QUIET);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "image", "mountPath": "/image" }]);
    let source = json!({ "reference": image, "pullPolicy": policy });
    pod["spec"]["volumes"] = json!([{ "name": "image", "image": source }]);
    pod
}

pub fn an_image_is_a_volume(room: &Room<'_>) -> Result<()> {
    let mut whole = pod("whole", images::BUSYBOX, "Never");
    let part = json!({ "name": "image", "mountPath": "/part", "subPath": "bin" });
    if let Some(mounts) = whole["spec"]["containers"][0]["volumeMounts"].as_array_mut() {
        mounts.push(part);
    }
    room.create_ready(&whole)?;
    let seen = room.kubectl(&["exec", "whole", "--", "sh", "-c", "ls /image/bin/sh /part/sh"])?;
    ensure_has(&seen, &["/image/bin/sh", "/part/sh"])?;
    let write = room.kubectl(&["exec", "whole", "--", "touch", "/image/bin/new"]);
    ensure!(write.is_err(), "the image can be written to");
    room.delete(&["pod", "whole"])
}

/// As with a container's own image: the failure, then the back-off with the failure in it, and the same of events.
pub fn an_image_that_cannot_be_had_is_told(room: &Room<'_>) -> Result<()> {
    let absent = "crablet.test/absent:1";
    room.create(&pod("lacking", absent, "IfNotPresent"))?;
    room.create(&pod("refusing", absent, "Never"))?;
    let mut waits = Value::Null;
    room.until("the pod backs off", || {
        waits = main_container(&room.get("pod/lacking")?)["state"]["waiting"].clone();
        Ok(waits["reason"] == "ImagePullBackOff")
    })?;
    let message = waits["message"].as_str().unwrap_or_default();
    let begin = format!("Back-off pulling image \"{absent}\": ErrImagePull: ");
    ensure!(message.starts_with(&begin), "it says {message:?}");
    let told = room.event("pod/lacking", "BackOff")?;
    ensure!(told == format!("Back-off pulling image \"{absent}\""), "{told}");
    let events = room.get("events")?;
    let of = |reason: &str, text: &str| {
        events["items"].as_array().into_iter().flatten().find(|event| {
            let about = &event["involvedObject"];
            about["name"] == "lacking" && event["reason"] == reason && event["message"] == text
        })
    };
    let pulling = of("Pulling", &format!("Pulling image \"{absent}\""));
    let pulling = pulling.map(|event| event["involvedObject"]["fieldPath"].is_null());
    ensure!(pulling == Some(true), "pulling is not told of the pod: {events:#}");
    let failed = of("Failed", "Error: ErrImagePull").map(|event| &event["involvedObject"]["fieldPath"]);
    ensure!(failed == Some(&json!("spec.containers{main}")), "the container is not told of: {events:#}");

    room.until("the pod without a pull refuses", || {
        waits = main_container(&room.get("pod/refusing")?)["state"]["waiting"].clone();
        Ok(waits["reason"] == "ErrImageNeverPull")
    })?;
    let expected = format!("Container image \"{absent}\" is not present with pull policy of Never");
    ensure!(waits["message"] == expected, "it says {waits:#}");
    room.delete(&["pod", "lacking", "refusing"])
}

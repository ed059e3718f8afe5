//! Volumes that grow in the cluster while a pod has them, and volumes that the cluster must not take away, with a real
//! driver process and real mounts. Needs root, as the agent does.

mod csi_world;

use crablet_testbed::csi::Fault;
use crablet_volumes::csi::Grown;
use csi_world::{DRIVER, Life, Volume, World, driver_object, eventually, pod};
use serde_json::{Value, json};

const SMALL: i64 = 1 << 20;
const LARGE: i64 = 2 << 20;

/// As a resize controller leaves the claim, with more or other fields.
fn resizing(status: &str) -> Value {
    json!({
        "phase": "Bound",
        "capacity": { "storage": "1Mi" },
        "allocatedResources": { "storage": "2Mi" },
        "allocatedResourceStatuses": { "storage": status },
        "conditions": [{ "type": "FileSystemResizePending", "status": "True" }],
    })
}

/// A pod has the volume, which is small.
fn in_use() -> (World, Life, Volume) {
    let world = World::start(&["stage", "expand"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    life.set_up(&volume, &pod("one")).unwrap();
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    assert_eq!(world.count("NodeExpandVolume"), 0, "it has not grown yet");
    (world, life, volume)
}

fn condition(status: &Value, kind: &str) -> Option<Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
}

#[test]
fn a_volume_grows_while_its_pod_has_it() {
    let (world, life, mut volume) = in_use();
    world.grow(&mut volume, "2Mi", resizing("NodeResizePending"));
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    assert_eq!(world.driver().size_on_node(&volume.handle), Some(LARGE));
    let asked = world.asked("NodeExpandVolume");
    assert_eq!(asked["bytes"], LARGE);
    let status = world.status_of_claim("v");
    assert_eq!(status["capacity"]["storage"], "2Mi");
    assert!(status["allocatedResourceStatuses"]["storage"].is_null(), "{status}");
    assert_eq!(condition(&status, "FileSystemResizePending"), None, "{status}");
    let text = "FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume \"pv-v\" n";
    assert_eq!(life.events(), [text.to_owned(), format!("claim ns/v: {text}")]);
    // Once is enough.
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    assert_eq!(world.count("NodeExpandVolume"), 1);
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_volume_does_not_grow_before_the_cluster_allows_it() {
    let (world, life, mut volume) = in_use();
    for status in ["ControllerResizeInProgress", "NodeResizeInfeasible"] {
        world.grow(&mut volume, "2Mi", resizing(status));
        assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::NotYet), "{status}");
    }
    assert_eq!(world.count("NodeExpandVolume"), 0);
    world.grow(&mut volume, "2Mi", resizing("NodeResizeInProgress"));
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    assert_eq!(world.driver().size_on_node(&volume.handle), Some(LARGE));
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn an_old_resize_controller_is_served_too() {
    let (world, life, mut volume) = in_use();
    world.grow(&mut volume, "2Mi", json!({ "phase": "Bound", "capacity": { "storage": "1Mi" } }));
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    assert_eq!(world.status_of_claim("v")["capacity"]["storage"], "2Mi");
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_driver_that_cannot_expand_what_is_used_is_not_asked_again() {
    let (world, life, mut volume) = in_use();
    let failed_precondition = 9;
    world
        .driver()
        .fault("NodeExpandVolume", &Fault::Fail(failed_precondition, "it is used".to_owned()))
        .unwrap();
    world.grow(&mut volume, "2Mi", resizing("NodeResizePending"));
    for _ in 0..2 {
        assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    }
    assert_eq!(world.count("NodeExpandVolume"), 1);
    let status = world.status_of_claim("v");
    let told = condition(&status, "NodeResizeError").expect("the claim says why");
    assert_eq!(
        told["message"],
        "failed to expand pvc with Expander.NodeExpand failed to expand the volume : rpc error: code = \
         FailedPrecondition desc = it is used"
    );
    assert_eq!(status["capacity"]["storage"], "1Mi");
    // Whoever gets the volume next has it in its new size.
    life.tear_down(&volume, &pod("one")).unwrap();
    world.driver().heal("NodeExpandVolume").unwrap();
    eventually("it is unstaged", || world.count("NodeUnstageVolume") == 1);
    life.set_up(&volume, &pod("two")).unwrap();
    assert_eq!(world.driver().size_on_node(&volume.handle), Some(LARGE));
    assert_eq!(world.status_of_claim("v")["capacity"]["storage"], "2Mi");
    life.tear_down(&volume, &pod("two")).unwrap();
}

#[test]
fn what_can_never_succeed_is_left_to_the_controller_and_what_can_is_tried_again() {
    let (world, life, mut volume) = in_use();
    let (out_of_range, unavailable) = (11, 14);
    world.grow(&mut volume, "2Mi", resizing("NodeResizePending"));
    world.driver().fault("NodeExpandVolume", &Fault::Fail(unavailable, "busy".to_owned())).unwrap();
    life.grow(&volume, &pod("one")).unwrap_err();
    let status = world.status_of_claim("v");
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    assert_eq!(condition(&status, "NodeResizeError"), None, "nobody knows how it ended");
    world.driver().fault("NodeExpandVolume", &Fault::Fail(out_of_range, "too large".to_owned())).unwrap();
    let error = life.grow(&volume, &pod("one")).unwrap_err();
    assert_eq!(
        error,
        "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too large"
    );
    let status = world.status_of_claim("v");
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInfeasible");
    assert!(condition(&status, "NodeResizeError").is_some(), "{status}");
    assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::NotYet));
    assert_eq!(world.driver().size_on_node(&volume.handle), Some(SMALL));
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_volume_of_many_nodes_grows_on_each() {
    let (world, life, mut volume) = in_use();
    world.share(&mut volume);
    // Another node has done its part and told.
    let status = json!({
        "phase": "Bound", "capacity": { "storage": "2Mi" }, "allocatedResources": { "storage": "2Mi" },
    });
    world.grow(&mut volume, "2Mi", status);
    for _ in 0..2 {
        assert_eq!(life.grow(&volume, &pod("one")), Ok(Grown::Settled));
    }
    assert_eq!(world.count("NodeExpandVolume"), 1);
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_volume_is_held_until_its_driver_has_let_go_of_it() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    assert!(!life.holds(&volume));
    life.set_up(&volume, &pod("one")).unwrap();
    assert!(life.holds(&volume));
    world.driver().fault("NodeUnstageVolume", &Fault::Fail(14, "not now".to_owned())).unwrap();
    life.tear_down(&volume, &pod("one")).unwrap();
    eventually("it was tried", || world.count("NodeUnstageVolume") > 0);
    assert!(life.holds(&volume), "the driver still has it");
    // Neither does the agent's death make it free.
    drop(life);
    let life = world.live();
    life.look_back();
    assert!(life.holds(&volume));
    world.driver().heal("NodeUnstageVolume").unwrap();
    eventually("it is let go of", || !life.holds(&volume));
    world.is_clean();
    // A driver that refuses has nothing to give back.
    world.driver().fault("NodeStageVolume", &Fault::Fail(13, "broken".to_owned())).unwrap();
    life.set_up(&volume, &pod("two")).unwrap_err();
    eventually("nothing is held", || !life.holds(&volume));
}

#[test]
fn a_node_that_can_have_no_more_volumes_is_known_by_the_attachment() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let name = format!("csi-{}", csi_world::sha256(&format!("{}{DRIVER}n", volume.handle)));
    let attachment = |code: i32| {
        let error = json!({ "message": "no room", "errorCode": code });
        json!({
            "metadata": { "name": name }, "spec": {}, "status": { "attached": false, "attachError": error },
        })
    };
    world.api().put("volumeattachments", attachment(8));
    assert!(!life.is_exhausted(&volume), "the driver does not tell how many it can have");
    let spec = json!({ "attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 3600 });
    world.api().put("csidrivers", driver_object(spec));
    eventually("it does now", || life.is_exhausted(&volume));
    world.api().put("volumeattachments", attachment(14));
    assert!(!life.is_exhausted(&volume));
}

//! Volumes of a real driver process, with real mounts. Needs root, as the agent does.

mod csi_world;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crablet_testbed::csi::Fault;
use csi_world::{DRIVER, World, driver_object, eventually, pod};
use serde_json::{Value, json};

const CHANGES: [&str; 4] =
    ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];

#[test]
fn a_volume_is_staged_once_published_for_each_pod_and_unstaged_after_the_last() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let (one, two) = (pod("one"), pod("two"));
    let path = life.set_up(&volume, &one).unwrap();
    fs::write(world.driver().content(&volume.handle).join("hello"), "from the driver").unwrap();
    assert_eq!(fs::read_to_string(path.join("hello")).unwrap(), "from the driver");
    life.set_up(&volume, &two).unwrap();
    assert_eq!(world.driver().changes(), ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]);

    let folder = world.root().join("pods/one/volumes/kubernetes.io~csi/pv-v");
    assert_eq!(path, folder.join("mount"));
    let data: Value = serde_json::from_slice(&fs::read(folder.join("vol_data.json")).unwrap()).unwrap();
    assert_eq!(data["driverName"], DRIVER);
    assert_eq!(data["volumeHandle"], volume.handle.as_str());
    assert_eq!(data["specVolID"], "pv-v");
    assert_eq!(data["volumeLifecycleMode"], "Persistent");
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o750);

    life.tear_down(&volume, &one).unwrap();
    assert!(!folder.exists());
    assert!(world.root().join("pods/two/volumes/kubernetes.io~csi/pv-v/mount/hello").exists());
    life.tear_down(&volume, &two).unwrap();
    eventually("it is unstaged", || {
        world.driver().changes().last().is_some_and(|last| last == "NodeUnstageVolume")
    });
    world.is_clean();
}

#[test]
fn a_driver_that_does_not_stage_is_not_asked_to() {
    let world = World::start(&[]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    life.set_up(&volume, &pod("one")).unwrap();
    life.tear_down(&volume, &pod("one")).unwrap();
    world.is_clean();
    assert_eq!(world.driver().changes(), ["NodePublishVolume", "NodeUnpublishVolume"]);
}

#[test]
fn an_inline_volume_lives_with_its_pod_and_its_driver_is_told_of_it() {
    let world = World::start(&["stage"]);
    let volume = world.inline(
        "scratch",
        json!({ "volumeAttributes": { "size": "1" }, "nodePublishSecretRef": { "name": "key" } }),
    );
    let life = world.live();
    let one = pod("one");
    let refused = life.set_up(&volume, &one).unwrap_err();
    assert!(
        refused.message.ends_with(&format!(
            "volume mode \"Ephemeral\" not supported by driver {DRIVER} (only supports [\"Persistent\"])"
        )),
        "{refused}"
    );
    world.api().put(
        "csidrivers",
        driver_object(json!({
            "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"], "requiresRepublish": true,
            "tokenRequests": [{ "audience": "vault", "expirationSeconds": 600 }, { "audience": "" }],
        })),
    );
    eventually("the secret is asked for", || {
        let failed = life.set_up(&volume, &one).unwrap_err();
        failed.message.starts_with("fetching NodePublishSecretRef ns/key failed: ")
    });
    world.api().put(
        "secrets",
        json!({
            "metadata": { "name": "key", "namespace": "ns" }, "data": { "password": "c2VzYW1l" },
        }),
    );
    let published = life.published(&volume, &one).unwrap();
    assert!(published.refresh_at.is_some(), "the token has to be renewed");
    let asked = world.asked("NodePublishVolume");
    assert_eq!(
        asked["context"],
        json!({
            "size": "1",
            "csi.storage.k8s.io/pod.name": "one",
            "csi.storage.k8s.io/pod.namespace": "ns",
            "csi.storage.k8s.io/pod.uid": "one",
            "csi.storage.k8s.io/serviceAccount.name": "robot",
            "csi.storage.k8s.io/ephemeral": "true",
            "csi.storage.k8s.io/serviceAccount.tokens": "hidden",
        })
    );
    assert_eq!(asked["secrets"], json!(["password"]));
    life.tear_down(&volume, &one).unwrap();
    assert_eq!(world.driver().changes(), ["NodePublishVolume", "NodeUnpublishVolume"]);
    world.is_clean();
}

#[test]
fn tokens_go_where_the_driver_wants_them() {
    let world = World::start(&[]);
    world.api().put(
        "csidrivers",
        driver_object(json!({
            "tokenRequests": [{ "audience": "vault" }], "serviceAccountTokenInSecrets": true,
        })),
    );
    let volume = world.volume("v", json!({}));
    let life = world.live();
    life.set_up(&volume, &pod("one")).unwrap();
    assert_eq!(
        world.asked("NodePublishVolume")["secrets"],
        json!(["csi.storage.k8s.io/serviceAccount.tokens"])
    );
    assert_eq!(world.asked("NodePublishVolume")["context"], json!({}));
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_volume_that_must_be_attached_waits_for_its_attachment() {
    let world = World::start(&["stage"]);
    world.api().put("csidrivers", driver_object(json!({ "attachRequired": true })));
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let failed = life.set_up(&volume, &pod("one")).unwrap_err();
    assert_eq!(failed.step, "MountVolume.WaitForAttach");
    let name = format!("csi-{}", csi_world::sha256(&format!("{}{DRIVER}n", volume.handle)));
    let attachment = |status: Value| json!({ "metadata": { "name": name }, "spec": {}, "status": status });
    world.api().put(
        "volumeattachments",
        attachment(json!({ "attached": false, "attachError": { "message": "no room" } })),
    );
    assert_eq!(life.set_up(&volume, &pod("one")).unwrap_err().message, "no room");
    world.api().put(
        "volumeattachments",
        attachment(json!({ "attached": true, "attachmentMetadata": { "lun": "7" } })),
    );
    life.set_up(&volume, &pod("one")).unwrap();
    assert_eq!(world.asked("NodeStageVolume")["publishContext"], json!({ "lun": "7" }));
    life.tear_down(&volume, &pod("one")).unwrap();
    world.is_clean();
}

#[test]
fn the_group_of_the_pod_is_set_as_the_driver_wishes() {
    for (policy, fs_type, capabilities, by_agent, told) in [
        ("File", "", &["stage"][..], true, ""),
        ("None", "ext4", &["stage"], false, ""),
        ("ReadWriteOnceWithFSType", "", &["stage"], false, ""),
        ("ReadWriteOnceWithFSType", "ext4", &["stage"], true, ""),
        ("File", "ext4", &["stage", "mount-group"], false, "4321"),
    ] {
        let world = World::start(capabilities);
        world.api().put("csidrivers", driver_object(json!({ "fsGroupPolicy": policy })));
        let volume = world.volume("v", json!({ "fsType": fs_type }));
        let life = world.live();
        let path = life.with_group(&volume, &pod("one"), 4321).unwrap();
        let group = fs::metadata(&path).unwrap().gid();
        assert_eq!(group == 4321, by_agent, "{policy} {fs_type:?} {capabilities:?}");
        for method in ["NodeStageVolume", "NodePublishVolume"] {
            assert_eq!(world.asked(method)["capability"]["group"], told, "{policy} {method}");
        }
        life.tear_down(&volume, &pod("one")).unwrap();
    }
}

#[test]
fn a_volume_that_has_grown_grows_on_the_node_and_its_claim_says_so() {
    let world = World::start(&["stage", "expand"]);
    let mut volume = world.volume("v", json!({}));
    world.grow(
        &mut volume,
        "2Mi",
        json!({
            "capacity": { "storage": "1Mi" },
            "allocatedResources": { "storage": "2Mi" },
            "allocatedResourceStatuses": { "storage": "NodeResizePending" },
            "conditions": [{ "type": "FileSystemResizePending", "status": "True" }],
        }),
    );
    let life = world.live();
    life.set_up(&volume, &pod("one")).unwrap();
    assert_eq!(world.driver().size_on_node(&volume.handle), Some(2 << 20));
    let status = world.api().get("persistentvolumeclaims", "ns", "v").unwrap()["status"].clone();
    assert_eq!(status["capacity"]["storage"], "2Mi");
    assert!(status["allocatedResourceStatuses"]["storage"].is_null(), "{status}");
    assert!(
        life.events().iter().any(|text| text.starts_with("FileSystemResizeSuccessful ")),
        "{:?}",
        life.events()
    );
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_driver_tells_how_full_and_how_well_a_volume_is() {
    let world = World::start(&["stage", "stats", "condition"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    life.set_up(&volume, &pod("one")).unwrap();
    fs::write(world.driver().content(&volume.handle).join("data"), [0; 1000]).unwrap();
    let stats = life.stats(&volume, &pod("one")).unwrap().unwrap();
    assert_eq!((stats.capacity, stats.used, stats.inodes_used), (1 << 20, 1000, 1));
    assert_eq!(stats.condition, Some((false, "all is well".to_owned())));
    world.driver().make_sick(&volume.handle, "it creaks").unwrap();
    let stats = life.stats(&volume, &pod("one")).unwrap().unwrap();
    assert_eq!(stats.condition, Some((true, "it creaks".to_owned())));
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_block_volume_is_a_device() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let mapped = life.map(&volume, &pod("one")).unwrap();
    assert!(fs::metadata(&mapped.device).unwrap().file_type().is_block_device());
    assert_eq!(mapped.device, world.root().join("plugins/kubernetes.io/csi/volumeDevices/publish/pv-v/one"));
    assert_eq!(mapped.global_map, world.root().join("plugins/kubernetes.io/csi/volumeDevices/pv-v/dev"));
    // A death here leaves no link in the pod's folder; the next life finds the device all the same.
    drop(life);
    let life = world.live();
    assert_eq!(life.mapped(&pod("one")), ["pv-v"]);
    life.unmap(&volume, &pod("one")).unwrap();
    eventually("it is unstaged", || {
        world.driver().changes().last().is_some_and(|last| last == "NodeUnstageVolume")
    });
    eventually("nothing is left", || {
        fs::read_dir(world.root().join("plugins/kubernetes.io/csi/volumeDevices"))
            .unwrap()
            .flatten()
            .all(|entry| fs::read_dir(entry.path()).unwrap().next().is_none())
    });
    world.is_clean();
}

#[test]
fn a_refused_volume_leaves_nothing_and_an_unclear_one_is_taken_back() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let (internal, unavailable) = (13, 14);
    world.driver().fault("NodeStageVolume", &Fault::Fail(internal, "broken disk".to_owned())).unwrap();
    let failed = life.set_up(&volume, &pod("one")).unwrap_err();
    assert_eq!(
        (failed.step, &*failed.message),
        ("MountVolume.MountDevice", "rpc error: code = Internal desc = broken disk")
    );
    assert!(!world.root().join("pods/one/volumes/kubernetes.io~csi/pv-v").exists());
    world.driver().heal("NodeStageVolume").unwrap();
    // Nobody knows how far this one came: the pod's end takes it back.
    world.driver().fault("NodePublishVolume", &Fault::Fail(unavailable, "busy".to_owned())).unwrap();
    life.set_up(&volume, &pod("one")).unwrap_err();
    assert!(world.root().join("pods/one/volumes/kubernetes.io~csi/pv-v/vol_data.json").exists());
    life.tear_down(&volume, &pod("one")).unwrap();
    eventually("it is unstaged", || {
        world.driver().changes().last().is_some_and(|last| last == "NodeUnstageVolume")
    });
    world.is_clean();
}

#[test]
fn a_failed_publishing_again_keeps_what_the_pod_has() {
    let world = World::start(&["stage"]);
    let volume = world.volume("v", json!({}));
    let life = world.live();
    let path = life.set_up(&volume, &pod("one")).unwrap();
    fs::write(path.join("file"), "mine").unwrap();
    world.driver().fault("NodePublishVolume", &Fault::Fail(13, "no".to_owned())).unwrap();
    life.again(&volume, &pod("one")).unwrap_err();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "mine");
    life.tear_down(&volume, &pod("one")).unwrap();
}

#[test]
fn a_hung_driver_holds_only_the_volume_it_hangs_on() {
    let world = World::start(&["stage"]);
    let (stuck, free) = (world.volume("stuck", json!({})), world.volume("free", json!({})));
    let life = world.live();
    world.driver().fault(&format!("NodeStageVolume@{}", stuck.handle), &Fault::HangBefore).unwrap();
    let waiting = life.begin_set_up(&stuck, &pod("one"));
    eventually("it hangs", || world.driver().changes() == ["NodeStageVolume"]);
    life.set_up(&free, &pod("two")).unwrap();
    life.tear_down(&free, &pod("two")).unwrap();
    assert!(!waiting.is_finished());
    world.driver().heal(&format!("NodeStageVolume@{}", stuck.handle)).unwrap();
    life.end(waiting).unwrap();
    life.tear_down(&stuck, &pod("one")).unwrap();
    world.is_clean();
}

/// The driver is killed in the middle of each call, before and after its effect.
#[test]
fn a_driver_that_dies_in_the_middle_of_a_call_is_met_again() {
    for method in CHANGES {
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            let world = World::start(&["stage"]);
            let volume = world.volume("v", json!({}));
            let life = world.live();
            world.driver().fault(method, &fault).unwrap();
            let whole = life.begin_whole_life(&volume, &pod("one"));
            eventually("the call hangs", || world.driver().changes().iter().any(|seen| seen == method));
            world.driver().kill9();
            world.driver().heal(method).unwrap();
            // Unstaging is nobody's business but the agent's own.
            let result =
                if method == "NodeUnstageVolume" { Err(life.end(whole).err()) } else { Ok(life.end(whole)) };
            if let Ok(result) = result {
                result.expect_err("the driver is gone");
            }
            world.driver().restart().unwrap();
            if method == "NodeStageVolume" || method == "NodePublishVolume" {
                life.set_up(&volume, &pod("one"))
                    .unwrap_or_else(|error| panic!("{method} {fault:?}: {error}"));
            }
            life.tear_down(&volume, &pod("one"))
                .unwrap_or_else(|error| panic!("{method} {fault:?}: {error}"));
            world.is_clean();
        }
    }
}

/// The agent is killed in the middle of each call; the pod lives on, or is gone when the agent comes back.
#[test]
fn an_agent_that_dies_in_the_middle_of_a_call_leaves_nothing_behind() {
    for method in CHANGES {
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            for pod_stays in [true, false] {
                let world = World::start(&["stage"]);
                let volume = world.volume("v", json!({}));
                let life = world.live();
                world.driver().fault(method, &fault).unwrap();
                let _lost = life.begin_whole_life(&volume, &pod("one"));
                eventually("the call hangs", || world.driver().changes().iter().any(|seen| seen == method));
                drop(life);
                world.driver().heal(method).unwrap();
                let what = format!("{method} {fault:?}, pod stays: {pod_stays}");
                let life = world.live();
                if pod_stays {
                    let path = life.set_up(&volume, &pod("one")).unwrap_or_else(|e| panic!("{what}: {e}"));
                    fs::write(path.join("file"), "mine").unwrap();
                }
                life.tear_down_all(&pod("one")).unwrap_or_else(|error| panic!("{what}: {error}"));
                world.is_clean();
                assert_eq!(world.driver().content(&volume.handle).join("file").exists(), pod_stays, "{what}");
            }
        }
    }
}

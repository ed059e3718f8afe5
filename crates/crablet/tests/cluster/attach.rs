//! Volumes that have to be attached first: the cluster's own controller asks for it, the test is the attacher that
//! answers, and the driver is a process on the node.

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, NodeOptions};
use crablet_testbed::csi::{Driver, DriverOptions, Fault};
use crablet_testbed::sha256;
use serde_json::{Value, json};

use super::support::{QUIET, Room, ensure_has, kubelet, shell_pod};

const DRIVER: &str = "attached.csi.crablet.example";
/// It came after volumes of the kind `cinder`.
const OF_CLOUD: &str = "cinder.csi.openstack.org";
const UNAVAILABLE: i32 = 14;
const RESOURCE_EXHAUSTED: i32 = 8;

/// A volume and the names that go with it.
struct Attached {
    handle: String,
    /// Of its VolumeAttachment.
    attachment: String,
    /// As the Node has it.
    unique: String,
}

pub fn all(cluster: &Cluster) -> Result<()> {
    let node = cluster.join(NodeOptions::new(kubelet()))?;
    let log = node.log_path().to_owned();
    let driver = Driver::start(DriverOptions {
        registry: Some(node.home().join("root/plugins_registry")),
        max_volumes: 3,
        ..DriverOptions::new(DRIVER, &cluster.dir().join("attached"))
    })?;
    let room = Room::new(cluster, &log, "attached")?;
    room.create(&json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": DRIVER },
        "spec": {
            "attachRequired": true,
            "requiresRepublish": true,
            "tokenRequests": [{ "audience": "vault", "expirationSeconds": 600 }],
            // The shortest that the API takes.
            "nodeAllocatableUpdatePeriodSeconds": 10,
        },
    }))?;
    is_registered(&room, DRIVER)?;
    // This one waits for two minutes, as upstream's kubelet lets it: the others go on meanwhile.
    let refused = one_more_than_fits(&room, &driver)?;
    let data = a_volume_waits_for_its_attachment(&room, &driver)?;
    limits_are_asked_for_again(&room, &driver)?;
    the_driver_is_told_again(&room, &driver, &data)?;
    what_is_staged_is_not_detached(&room, &driver, &data)?;
    a_pod_too_many_is_refused(&room, &refused)?;
    let of_cloud = Driver::start(DriverOptions {
        registry: Some(node.home().join("root/plugins_registry")),
        topology: Some(format!("topology.{OF_CLOUD}/zone=east")),
        ..DriverOptions::new(OF_CLOUD, &cluster.dir().join("cloud"))
    })?;
    a_disk_of_old_goes_to_its_driver(&room, &of_cloud)?;
    drop(of_cloud);
    drop(driver);
    drop(node);
    Ok(())
}

fn is_registered(room: &Room<'_>, name: &str) -> Result<()> {
    room.until("the driver is registered", || {
        let drivers = room.get("csinode/node")?["spec"]["drivers"].clone();
        Ok(drivers.as_array().is_some_and(|all| all.iter().any(|driver| driver["name"] == name)))
    })
}

fn one_more_than_fits(room: &Room<'_>, driver: &Driver) -> Result<Attached> {
    let volume = claimed(room, driver, "more")?;
    room.create(&user("too-many", "more"))?;
    is_asked_for(room, &volume)?;
    let error =
        json!({ "time": "2026-01-01T00:00:00Z", "message": "no room", "errorCode": RESOURCE_EXHAUSTED });
    answer(room, &volume, &json!({ "attached": false, "attachError": error }))?;
    Ok(volume)
}

fn a_pod_too_many_is_refused(room: &Room<'_>, volume: &Attached) -> Result<()> {
    room.wait("pod/too-many", "jsonpath={.status.phase}=Failed")?;
    let status = room.get("pod/too-many")?["status"].clone();
    ensure!(status["reason"] == "VolumeAttachmentLimitExceeded", "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    ensure_has(
        message,
        &["Pod was rejected: Node has reached its volume attachment limit, rejecting pod. unmounted \
             volumes=[data], unattached volumes=[data], failed to process volumes=[]: "],
    )?;
    ensure_has(
        &room.event("pod/too-many", "VolumeAttachmentLimitExceeded")?,
        &["Node has reached its volume attachment limit"],
    )?;
    room.delete(&["pod", "too-many"])?;
    is_detached(room, volume)
}

fn a_volume_waits_for_its_attachment(room: &Room<'_>, driver: &Driver) -> Result<Attached> {
    let volume = claimed(room, driver, "data")?;
    room.create(&user("holder", "data"))?;
    is_asked_for(room, &volume)?;
    room.until("the node says that it needs the volume", || in_use(room, &volume))?;
    ensure!(asked(driver, &volume, "NodeStageVolume").is_empty(), "it was staged before it was attached");
    answer(room, &volume, &json!({ "attached": true, "attachmentMetadata": { "lun": "7" } }))?;
    room.wait_ready("holder")?;
    let staged = asked(driver, &volume, "NodeStageVolume");
    ensure!(staged.first().is_some_and(|first| first["publishContext"]["lun"] == "7"), "{staged:?}");
    Ok(volume)
}

/// A driver may change its mind about how many volumes the node can have.
fn limits_are_asked_for_again(room: &Room<'_>, driver: &Driver) -> Result<()> {
    let count = || driver.seen().iter().filter(|seen| seen.begun && seen.method == "NodeGetInfo").count();
    let before = count();
    room.until("the driver is asked for its limit again", || Ok(count() > before))?;
    let drivers = room.get("csinode/node")?["spec"]["drivers"].clone();
    ensure!(drivers[0]["allocatable"]["count"] == 3, "{drivers}");
    Ok(())
}

/// For drivers with `requiresRepublish`, with the tokens of then.
fn the_driver_is_told_again(room: &Room<'_>, driver: &Driver, volume: &Attached) -> Result<()> {
    let published = || asked(driver, volume, "NodePublishVolume");
    room.until("the volume is published again", || Ok(published().len() > 1))?;
    for request in published() {
        let told = &request["context"]["csi.storage.k8s.io/serviceAccount.tokens"];
        ensure!(told == "hidden", "the driver was told {request}");
    }
    ensure!(asked(driver, volume, "NodeStageVolume").len() == 1, "it was staged again");
    Ok(())
}

fn what_is_staged_is_not_detached(room: &Room<'_>, driver: &Driver, volume: &Attached) -> Result<()> {
    driver.fault("NodeUnstageVolume", &Fault::Fail(UNAVAILABLE, "not now".to_owned()))?;
    room.delete(&["pod", "holder"])?;
    let tries = || asked(driver, volume, "NodeUnstageVolume").len();
    // With the second try the node has had the time to tell what it does not need any more.
    room.until("it cannot be unstaged", || Ok(tries() > 1))?;
    ensure!(in_use(room, volume)?, "the node says that it does not need the volume");
    let attachment = room.get(&format!("volumeattachment/{}", volume.attachment))?;
    ensure!(attachment["metadata"]["deletionTimestamp"].is_null(), "it is being detached: {attachment}");
    driver.heal("NodeUnstageVolume")?;
    is_detached(room, volume)?;
    ensure!(!in_use(room, volume)?, "the node still says that it needs the volume");
    Ok(())
}

/// A volume of the time before drivers. The controller has it attached by the one that came after, and so the
/// node goes by that too, also for where the volume is.
fn a_disk_of_old_goes_to_its_driver(room: &Room<'_>, driver: &Driver) -> Result<()> {
    room.create(&json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": OF_CLOUD },
        "spec": { "attachRequired": true },
    }))?;
    is_registered(room, OF_CLOUD)?;
    let labels = json!({ "topology.kubernetes.io/zone": "east" });
    let volume =
        claimed_as(room, driver, "old", &labels, |handle| ("cinder", json!({ "volumeID": handle })))?;
    room.create(&user("of-old", "old"))?;
    is_asked_for(room, &volume)?;
    answer(room, &volume, &json!({ "attached": true }))?;
    room.wait_ready("of-old")?;
    for method in ["NodeStageVolume", "NodePublishVolume"] {
        ensure!(!asked(driver, &volume, method).is_empty(), "the driver was not asked for {method}");
    }
    room.delete(&["pod", "of-old"])?;
    is_detached(room, &volume)
}

/// A persistent volume of the driver, and a claim that has it.
fn claimed(room: &Room<'_>, driver: &Driver, name: &str) -> Result<Attached> {
    let source = |handle: &str| ("csi", json!({ "driver": DRIVER, "volumeHandle": handle }));
    claimed_as(room, driver, name, &json!({}), source)
}

/// `source` is the field of the volume that names its handle.
fn claimed_as(
    room: &Room<'_>,
    driver: &Driver,
    name: &str,
    labels: &Value,
    source: impl Fn(&str) -> (&'static str, Value),
) -> Result<Attached> {
    let pv = format!("{}-{name}", room.namespace());
    let handle = driver.create_volume(&pv, 10 << 20)?;
    let (kind, source) = source(&handle);
    room.create(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": pv, "labels": labels },
        "spec": {
            "capacity": { "storage": "10Mi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": { "namespace": room.namespace(), "name": name },
            kind: source,
        },
    }))?;
    room.create(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": pv,
            "resources": { "requests": { "storage": "10Mi" } },
        },
    }))?;
    let driver = &driver.options().name;
    let attachment = format!("csi-{}", sha256::hex(format!("{handle}{driver}node").as_bytes()));
    let unique = format!("kubernetes.io/csi/{driver}^{handle}");
    Ok(Attached { handle, attachment, unique })
}

fn user(pod: &str, claim: &str) -> Value {
    let mut pod = shell_pod(pod, QUIET);
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    pod
}

/// The requests of a method that were begun for the volume.
fn asked(driver: &Driver, volume: &Attached, method: &str) -> Vec<Value> {
    let seen = driver.seen().into_iter();
    let begun = seen.filter(|seen| seen.begun && seen.volume == volume.handle && seen.method == method);
    begun.map(|seen| seen.request).collect()
}

fn is_asked_for(room: &Room<'_>, volume: &Attached) -> Result<()> {
    let name = format!("volumeattachment/{}", volume.attachment);
    room.until("the controller wants it attached", || Ok(room.get(&name).is_ok()))
}

fn answer(room: &Room<'_>, volume: &Attached, status: &Value) -> Result<()> {
    let patch = json!({ "status": status }).to_string();
    let name = &volume.attachment;
    room.kubectl(&["patch", "volumeattachment", name, "--subresource=status", "--type=merge", "-p", &patch])
        .map(drop)
}

fn in_use(room: &Room<'_>, volume: &Attached) -> Result<bool> {
    let node = room.get("node/node").context("the Node")?;
    let all = node["status"]["volumesInUse"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().any(|name| name == volume.unique.as_str()))
}

/// The controller has given it up: nobody needs it.
fn is_detached(room: &Room<'_>, volume: &Attached) -> Result<()> {
    let name = format!("volumeattachment/{}", volume.attachment);
    room.until("it is detached", || Ok(room.get(&name).is_err()))
}

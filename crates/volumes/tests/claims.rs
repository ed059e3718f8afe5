//! Claims, and what they are bound to, on a host in memory.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Agent, UID, claim_volume, pod, pod_with};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use serde_json::{Value, json};

const ROOT: &str = "/r";

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    (Agent::start(Path::new(ROOT), Arc::new(host.clone())), host)
}

fn folder(plugin: &str, volume: &str) -> String {
    format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~{plugin}/{volume}")
}

fn table(host: &FakeVolumeHost) -> Vec<String> {
    let mounts = host.mounted_below(ROOT);
    mounts.iter().map(|m| format!("{} {} {}", m.fs_type, m.options, m.path.display())).collect()
}

/// The error of a pod that is given up at once, and the events.
async fn refused(agent: &Agent, volume: Value) -> (String, Vec<String>) {
    let error = agent.volumes.set_up(&pod(json!([volume]))).await.unwrap_err();
    (error, agent.events.texts())
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_claim_is_told_in_upstreams_words() {
    let claim = |fields: Value| {
        let mut claim = json!({ "metadata": { "name": "c", "namespace": "ns", "uid": "u" },
            "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } });
        for (key, value) in fields.as_object().unwrap() {
            claim[key] = value.clone();
        }
        claim
    };
    let volume = |spec: Value| json!({ "metadata": { "name": "pv" }, "spec": spec });
    let cases = [
        (None, None, "failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found"),
        (Some(claim(json!({ "status": { "phase": "Pending" } }))), None, "PVC is not bound"),
        (Some(claim(json!({ "spec": {} }))), None, "PVC has empty pvc.Spec.VolumeName"),
        (
            Some(claim(json!({}))),
            None,
            "failed to fetch PV pv from API server: persistentvolumes \"pv\" not found",
        ),
        (
            Some(claim(json!({}))),
            Some(volume(json!({}))),
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            Some(claim(json!({}))),
            Some(volume(json!({ "claimRef": { "uid": "x" } }))),
            "found PV object pv but its pv.Spec.ClaimRef.UID x does not point to claim.UID u",
        ),
    ];
    for (claim, volume, why) in cases {
        let (agent, _) = start();
        claim.map(|claim| agent.api.put("persistentvolumeclaims", claim));
        volume.map(|volume| agent.api.put("persistentvolumes", volume));
        let (error, events) = refused(&agent, claim_volume("c")).await;
        let text = format!(
            "unmounted volumes=[c], unattached volumes=[], failed to process volumes=[c]: error processing PVC ns/c: {why}"
        );
        assert_eq!(error, text);
        let told = format!("FailedMount Unable to attach or mount volumes: {text}");
        assert_eq!(events, [told.clone(), told], "said at once, and again after two minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_as_soon_as_its_claim_is_bound() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    let pod = pod(json!([claim_volume("c")]));
    let bound = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        agent.put_claim("c", json!({ "local": { "path": "/data" } }));
    };
    let begun = tokio::time::Instant::now();
    let mounted = tokio::join!(agent.volumes.set_up(&pod), bound).0.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(31), "looked again within ten seconds");
    assert_eq!(mounted["c"].host_path, folder("local-volume", "pv-c"));
}

#[tokio::test]
async fn folders_of_the_node_are_bound_by_the_volumes_name() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    let source = json!({ "local": { "path": "/data" }, "mountOptions": ["noexec"] });
    agent.put_claim("c", source);
    let read_only = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } });
    let context = json!({ "securityContext": { "fsGroup": 2000 } });
    let pod = pod_with(json!([claim_volume("c"), read_only]), context);
    // The same claim twice in a pod is one folder, with the last word of the two.
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    assert!(mounted["v"].read_only && !mounted["c"].read_only);
    assert_eq!(mounted["c"].host_path, mounted["v"].host_path);
    let id = PodRef::of(&pod);
    let part = agent.volumes.sub_path(&id, "c", 0, "c", "x").await.unwrap();
    assert_eq!(part, format!("{ROOT}/pods/{UID}/volume-subpaths/pv-c/c/0"));
    agent.volumes.tear_down(&id).await.unwrap();
    assert!(table(&host).is_empty());
    assert_eq!(host.paths_below("/data"), ["/data/", "/data/x/"], "what is in the volume stays");
}

#[tokio::test]
async fn a_disk_of_the_node_is_formatted_mounted_once_and_given_back_by_the_last_pod() {
    let (agent, host) = start();
    host.put("/dev/sdx", PathKind::BlockDevice);
    host.answer("blkid", 2, "");
    agent.put_claim("c", json!({ "local": { "path": "/dev/sdx", "fsType": "xfs" } }));
    let first = pod(json!([claim_volume("c")]));
    let mut second = first.clone();
    second.metadata.uid = Some("second".to_owned());
    agent.volumes.set_up(&first).await.unwrap();
    host.answer("blkid", 0, "TYPE=xfs\n");
    agent.volumes.set_up(&second).await.unwrap();
    assert_eq!(
        host.take_commands(),
        ["blkid -p -s TYPE -s PTTYPE -o export /dev/sdx", "mkfs.xfs -f /dev/sdx"]
    );
    let global = format!("{ROOT}/plugins/kubernetes.io/local-volume/mounts/pv-c");
    assert_eq!(
        table(&host),
        [
            format!("xfs defaults {global}"),
            format!("bind {global} {}", folder("local-volume", "pv-c")),
            format!("bind {global} {}", folder("local-volume", "pv-c").replace(UID, "second")),
        ]
    );
    agent.volumes.tear_down(&PodRef::of(&first)).await.unwrap();
    assert_eq!(table(&host).len(), 2);
    agent.volumes.tear_down(&PodRef::of(&second)).await.unwrap();
    assert!(table(&host).is_empty());
    assert_eq!(host.paths_below(&global), [""; 0]);
}

#[tokio::test]
async fn a_volume_of_another_node_or_of_another_pod_is_refused() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    let term = json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["there"] }] }]);
    let affinity = json!({ "required": { "nodeSelectorTerms": term } });
    agent.put_claim("far", json!({ "local": { "path": "/data" }, "nodeAffinity": affinity }));
    let (error, events) = refused(&agent, claim_volume("far")).await;
    assert_eq!(
        error,
        "MountVolume.NodeAffinity check failed for volume \"pv-far\" : no matching NodeSelectorTerms"
    );
    assert_eq!(events, [format!("FailedMount {error}")]);

    agent.put_claim("mine", json!({ "local": { "path": "/data" }, "accessModes": ["ReadWriteOncePod"] }));
    let mut first = pod(json!([claim_volume("mine")]));
    first.metadata.uid = Some("first".to_owned());
    agent.volumes.set_up(&first).await.unwrap();
    let mut second = first.clone();
    second.metadata.uid = Some("second".to_owned());
    let error = agent.volumes.set_up(&second).await.unwrap_err();
    let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    assert_eq!(error, format!("MountVolume.SetUp failed for volume \"pv-mine\" : {why}"));
    agent.volumes.tear_down(&PodRef::of(&first)).await.unwrap();
    agent.volumes.set_up(&second).await.unwrap();

    // The next life knows what lies on disk, though nobody has told it of that pod yet.
    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    agent.put_claim("mine", json!({ "local": { "path": "/data" }, "accessModes": ["ReadWriteOncePod"] }));
    assert!(agent.volumes.set_up(&first).await.unwrap_err().ends_with(why));
    agent.volumes.set_up(&second).await.unwrap();
    agent.volumes.tear_down(&PodRef::of(&second)).await.unwrap();
    agent.volumes.set_up(&first).await.unwrap();
}

#[tokio::test]
async fn a_volume_for_one_pod_is_not_mistaken_for_an_inline_one_of_the_same_name() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    agent.put_claim("mine", json!({ "local": { "path": "/data" }, "accessModes": ["ReadWriteOncePod"] }));
    let pod = pod(json!([claim_volume("mine")]));
    let put = |mode: &str| {
        let data = json!({ "driverName": "d.io", "volumeHandle": "h", "volumeLifecycleMode": mode });
        let folder = format!("{ROOT}/pods/other/volumes/kubernetes.io~csi/pv-mine");
        host.put_file(format!("{folder}/vol_data.json"), &data.to_string());
    };
    put("Persistent");
    agent.volumes.set_up(&pod).await.unwrap_err();
    put("Ephemeral");
    agent.volumes.set_up(&pod).await.unwrap();
}

#[tokio::test]
async fn mount_options_that_are_empty_are_none() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    agent.put_claim("c", json!({}));
    let put = |options: &str, source: Value| {
        let annotations = json!({ "volume.beta.kubernetes.io/mount-options": options });
        let mut spec = json!({ "claimRef": { "uid": "uid-c" }, "accessModes": ["ReadWriteOnce"] });
        for (key, value) in source.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let metadata = json!({ "name": "pv-c", "annotations": annotations });
        agent.api.put("persistentvolumes", json!({ "metadata": metadata, "spec": spec }));
    };
    put("", json!({ "hostPath": { "path": "/data" } }));
    let mut first = pod(json!([claim_volume("c")]));
    first.metadata.uid = Some("first".to_owned());
    assert_eq!(agent.volumes.set_up(&first).await.unwrap()["c"].host_path, "/data");
    put("noatime,,discard", json!({ "local": { "path": "/data" } }));
    agent.volumes.set_up(&pod(json!([claim_volume("c")]))).await.unwrap();
    assert_eq!(table(&host), [format!("bind /data,noatime,discard {}", folder("local-volume", "pv-c"))]);
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_claim_must_be_the_pods_own() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    agent.put_claim("p-v", json!({ "hostPath": { "path": "/data" } }));
    let volume = json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } });
    let (error, _) = refused(&agent, volume.clone()).await;
    assert!(error.ends_with(": PVC ns/p-v was not created for pod ns/p (pod is not owner)"), "{error}");
    let mut claim = agent.api.get("persistentvolumeclaims", "ns", "p-v").unwrap();
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": UID, "controller": true });
    claim["metadata"]["ownerReferences"] = json!([owner]);
    agent.api.put("persistentvolumeclaims", claim);
    let mounted = agent.volumes.set_up(&pod(json!([volume]))).await.unwrap();
    assert_eq!(mounted["v"].host_path, "/data");
}

#[tokio::test]
async fn a_folder_of_another_machine_is_mounted_by_the_hosts_tool() {
    let (agent, host) = start();
    let source = json!({ "nfs": { "server": "10.0.0.1", "path": "/export" }, "mountOptions": ["vers=4"] });
    agent.put_claim("c", source);
    let volumes = json!([
        { "name": "ro", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } },
        { "name": "own", "nfs": { "server": "fd00::1", "path": "/x" } },
    ]);
    let pod = pod(volumes);
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    assert!(mounted["ro"].read_only && !mounted["ro"].relabel);
    let mut table: Vec<_> = host.mounted_below(ROOT);
    table.sort_by(|a, b| a.source.cmp(&b.source));
    let lines =
        table.iter().map(|m| format!("{} {} {} {}", m.source, m.fs_type, m.options, m.path.display()));
    let lines: Vec<_> = lines.collect();
    assert_eq!(
        lines,
        [
            format!("10.0.0.1:/export nfs ro,vers=4 {}", folder("nfs", "pv-c")),
            format!("[fd00::1]:/x nfs  {}", folder("nfs", "own")),
        ]
    );
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert!(host.mounted_below(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_given_to_containers_as_a_device() {
    let (agent, host) = start();
    host.put("/dev/sdx", PathKind::BlockDevice);
    agent.put_claim("c", json!({ "local": { "path": "/dev/sdx" }, "volumeMode": "Block" }));
    let (error, _) = refused(&agent, claim_volume("c")).await;
    assert!(error.ends_with(": volume c has volumeMode Block, but is specified in volumeMounts"), "{error}");

    let device = json!([{ "name": "c", "volumeDevices": [{ "name": "c", "devicePath": "/dev/x" }] }]);
    let pod = pod_with(json!([claim_volume("c")]), json!({ "containers": device }));
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    let link = format!("{ROOT}/pods/{UID}/volumeDevices/kubernetes.io~local-volume/pv-c");
    assert_eq!((mounted["c"].host_path.as_str(), mounted["c"].block), (link.as_str(), true));
    assert_eq!(host.paths_below(&link), [format!("{link} -> /dev/sdx")]);
    let global = format!("{ROOT}/plugins/kubernetes.io/local-volume/volumeDevices/pv-c");
    assert_eq!(table(&host), [format!("bind /dev/sdx {global}/{UID}")]);
    assert_eq!(host.take_commands(), [format!("losetup -f {global}/{UID}")]);
    let events = agent.events.texts();
    assert_eq!(
        events[events.len() - 2..],
        [
            format!(
                "SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume \"pv-c\" globalMapPath \"{global}\""
            ),
            format!(
                "SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume \"pv-c\" volumeMapPath \"{}\"",
                Path::new(&link).parent().unwrap().display()
            ),
        ]
    );
    // As the kernel shows the loop device.
    host.put_file("/sys/block/loop3/loop/backing_file", &format!("{global}/{UID}\n"));
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert_eq!(host.take_commands(), ["losetup -d /dev/loop3"]);
    assert!(table(&host).is_empty());
    assert_eq!(host.paths_below(&global), [""; 0]);
    assert_eq!(host.paths_below(format!("{ROOT}/pods/{UID}/volumeDevices")), [""; 0]);
}

#[tokio::test]
async fn files_belong_to_the_group_of_the_first_pod() {
    let (agent, host) = start();
    host.put("/data", PathKind::Folder);
    agent.put_claim("c", json!({ "local": { "path": "/data" } }));
    let of_group = |group: u32, uid: &str| {
        let context = json!({ "securityContext": { "fsGroup": group } });
        let mut pod = pod_with(json!([claim_volume("c")]), context);
        pod.metadata.uid = Some(uid.to_owned());
        pod
    };
    agent.volumes.set_up(&of_group(2000, "a")).await.unwrap();
    agent.volumes.set_up(&of_group(3000, "b")).await.unwrap();
    let text =
        "The requested fsGroup is 3000, but the volume pv-c has GID 0. The volume may not be shareable.";
    assert_eq!(agent.events.texts(), [format!("AlreadyMountedVolume {text}")]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_a_cloud_is_a_volume_of_its_driver() {
    let (agent, _) = start();
    agent.put_claim("c", json!({ "awsElasticBlockStore": { "volumeID": "aws://eu-1a/vol-1" } }));
    let why = "driver name ebs.csi.aws.com not found in the list of registered CSI drivers";
    let (error, _) = refused(&agent, claim_volume("c")).await;
    assert_eq!(error, format!("MountVolume.SetUp failed for volume \"pv-c\" : {why}"));

    let far = json!({ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["far"] });
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [far] }] } });
    let disk = json!({ "volumeID": "vol-1" });
    agent.put_claim("far", json!({ "awsElasticBlockStore": disk, "nodeAffinity": affinity }));
    let label = |key: &str| {
        agent.storage.send_modify(|storage| {
            Arc::make_mut(storage).labels.insert(key.to_owned(), "far".to_owned());
        });
    };
    label("topology.kubernetes.io/zone");
    let (error, _) = refused(&agent, claim_volume("far")).await;
    assert!(error.ends_with(": no matching NodeSelectorTerms"), "the driver's zone counts: {error}");
    label("topology.ebs.csi.aws.com/zone");
    let (error, _) = refused(&agent, claim_volume("far")).await;
    assert!(error.ends_with(why), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_a_cloud_without_a_driver_is_told_as_such() {
    let (agent, _) = start();
    let disk = json!({ "diskName": "d", "diskURI": "u", "kind": "Shared" });
    agent.put_claim("c", json!({ "azureDisk": disk }));
    let (error, events) = refused(&agent, claim_volume("c")).await;
    let text = "unmounted volumes=[c], unattached volumes=[], failed to process volumes=[c]: \
                failed to translate in-tree pv to CSI: kind(Shared) is not supported in csi migration";
    assert_eq!(error, text);
    assert_eq!(events, [format!("FailedMount Unable to attach or mount volumes: {text}")]);
}

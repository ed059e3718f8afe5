//! Each kind of volume, on a host in memory.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Agent, UID, pod, pod_with};
use crablet_apiserver::ObjectKind;
use crablet_host::fake::{FileFault, FileFaultKind};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use serde_json::json;

const ROOT: &str = "/var/lib/kubelet";

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    (Agent::start(Path::new(ROOT), Arc::new(host.clone())), host)
}

fn folder(plugin: &str, volume: &str) -> String {
    format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~{plugin}/{volume}")
}

fn text(host: &FakeVolumeHost, path: &str) -> Option<String> {
    host.content(path).map(|content| String::from_utf8(content).unwrap())
}

#[tokio::test]
async fn empty_folders_have_upstreams_places_modes_and_markers() {
    let (agent, host) = start();
    let limits = json!({ "limits": { "memory": "64Mi" }, "requests": { "hugepages-2Mi": "4Mi" } });
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/{name}") });
    let spec = json!({
        "containers": [{ "name": "c", "resources": limits,
            "volumeMounts": [mount("disk"), mount("mem"), mount("small"), mount("huge")] }],
        "securityContext": { "fsGroup": 2000 },
    });
    let pod = pod_with(
        json!([
            { "name": "disk", "emptyDir": {} },
            { "name": "mem", "emptyDir": { "medium": "Memory" } },
            { "name": "small", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
            { "name": "huge", "emptyDir": { "medium": "HugePages" } },
            { "name": "unused", "emptyDir": {} },
        ]),
        spec,
    );
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    assert_eq!(mounted.keys().collect::<Vec<_>>(), ["disk", "huge", "mem", "small"]);
    let disk = &mounted["disk"];
    assert_eq!(
        (disk.host_path.as_str(), disk.read_only, disk.relabel),
        (&*folder("empty-dir", "disk"), false, true)
    );
    assert_eq!(host.access(&disk.host_path), Some((0o2777, None, Some(2000))));
    let table = host.mounted_below(ROOT);
    let table: Vec<_> = table.iter().map(|m| (m.fs_type.as_str(), m.options.as_str())).collect();
    assert_eq!(table, [("tmpfs", "size=67108864"), ("tmpfs", "size=1048576"), ("hugetlbfs", "pagesize=2Mi")]);
    let marker = format!("{ROOT}/pods/{UID}/plugins/kubernetes.io~empty-dir/disk");
    assert_eq!(host.paths_below(&marker), [format!("{marker}/"), format!("{marker}/ready")]);
    assert_eq!(host.access(&marker), Some((0o750, None, None)));

    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert!(host.mounted_below(ROOT).is_empty());
    assert_eq!(host.paths_below(format!("{ROOT}/pods/{UID}/volumes")), [""; 0]);
}

#[tokio::test]
async fn media_that_cannot_be_had_are_refused_in_upstreams_words() {
    let (agent, _) = start();
    let pod = pod(json!([
        { "name": "a", "emptyDir": { "medium": "HugePages-1Gi" } },
        { "name": "b", "emptyDir": { "medium": "Tape" } },
        { "name": "c", "flocker": { "datasetName": "x" } },
    ]));
    let expected = [
        "MountVolume.SetUp failed for volume \"a\" : medium HugePages-1Gi: hugePages storage requested, but there is \
         no resource request for huge pages",
        "MountVolume.SetUp failed for volume \"b\" : unknown storage medium \"Tape\"",
        "MountVolume.SetUp failed for volume \"c\" : volumes of kind `flocker` are not supported yet",
    ];
    assert_eq!(agent.volumes.set_up(&pod).await.unwrap_err(), expected.join("; "));
    // The second try says the same and tells nobody again.
    assert_eq!(agent.volumes.set_up(&pod).await.unwrap_err(), expected.join("; "));
    let mut told = agent.events.texts();
    told.sort();
    assert_eq!(told, expected.map(|text| format!("FailedMount {text}")));
}

#[tokio::test]
async fn host_paths_are_checked_by_their_type() {
    let (agent, host) = start();
    host.put("/srv/dir", PathKind::Folder);
    host.put("/srv/file", PathKind::File);
    host.put("/srv/socket", PathKind::Socket);
    host.put_link("/srv/link", "/srv/dir");
    for (path, kind, refusal) in [
        ("/not/there", "", None),
        ("/srv/dir", "Directory", None),
        ("/srv/link", "Directory", None),
        ("/srv/file", "File", None),
        ("/srv/socket", "Socket", None),
        ("/srv/new/dir", "DirectoryOrCreate", None),
        ("/srv/dir/new", "FileOrCreate", None),
        ("/srv/no/parent", "FileOrCreate", Some("open /srv/no/parent: entity not found")),
        ("/srv/file", "Directory", Some("hostPath type check failed: /srv/file is not a directory")),
        ("/srv/file", "DirectoryOrCreate", Some("hostPath type check failed: /srv/file is not a directory")),
        ("/srv/dir", "FileOrCreate", Some("hostPath type check failed: /srv/dir is not a file")),
        ("/srv/dir", "Socket", Some("hostPath type check failed: /srv/dir is not a socket file")),
        ("/srv/dir", "CharDevice", Some("hostPath type check failed: /srv/dir is not a character device")),
        ("/srv/dir", "BlockDevice", Some("hostPath type check failed: /srv/dir is not a block device")),
        ("/srv/../etc", "", Some("invalid HostPath `/srv/../etc`: must not contain '..'")),
        ("/srv", "Odd", Some("Odd is an invalid volume type")),
    ] {
        let mut pod = pod(json!([{ "name": "v", "hostPath": { "path": path, "type": kind } }]));
        pod.metadata.uid = Some(format!("{kind}-{}", path.replace('/', "-")));
        let got = agent.volumes.set_up(&pod).await;
        let expected = refusal.map(|text| format!("MountVolume.SetUp failed for volume \"v\" : {text}"));
        assert_eq!(got.as_ref().err(), expected.as_ref(), "{path} {kind}");
        if let Ok(mounted) = got {
            let v = &mounted["v"];
            assert_eq!((v.host_path.as_str(), v.read_only, v.relabel), (path, false, false));
        }
    }
    assert_eq!(host.access("/srv/new/dir"), Some((0o755, None, None)));
    assert_eq!(host.access("/srv/dir/new"), Some((0o644, None, None)));
}

#[tokio::test]
async fn config_maps_and_secrets_become_files() {
    let (agent, host) = start();
    let map = json!({ "data": { "a": "1", "b": "2" }, "binaryData": { "bin": "AP8=" } });
    agent.objects.put(ObjectKind::ConfigMap, "map", Some(map));
    agent.objects.put(ObjectKind::Secret, "secret", Some(json!({ "data": { "key": "c2VjcmV0" } })));
    let items = json!([{ "key": "b", "path": "dir/bee", "mode": 0o400 }]);
    let pod = pod(json!([
        { "name": "all", "configMap": { "name": "map", "defaultMode": 0o644 } },
        { "name": "some", "configMap": { "name": "map", "defaultMode": 0o644, "items": items } },
        { "name": "hush", "secret": { "secretName": "secret", "defaultMode": 0o600 } },
        { "name": "later", "configMap": { "name": "none", "defaultMode": 0o644, "optional": true } },
    ]));
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    assert!(mounted.values().all(|volume| volume.read_only && volume.relabel));
    let all = folder("configmap", "all");
    assert_eq!(text(&host, &format!("{all}/a")).as_deref(), Some("1"));
    assert_eq!(host.content(format!("{all}/bin")), Some(vec![0, 255]));
    assert_eq!(host.access(format!("{all}/a")), Some((0o644, None, None)));
    let some = folder("configmap", "some");
    assert_eq!(text(&host, &format!("{some}/dir/bee")).as_deref(), Some("2"));
    assert_eq!(host.access(format!("{some}/dir/bee")), Some((0o400, None, None)));
    assert_eq!(text(&host, &format!("{some}/a")), None);
    let hush = folder("secret", "hush");
    assert_eq!(text(&host, &format!("{hush}/key")).as_deref(), Some("secret"));
    // Secrets are in memory, config maps on disk; both have the marker of what they wrap.
    let tmpfs: Vec<_> = host.mounted_below(ROOT).into_iter().map(|m| m.path.display().to_string()).collect();
    assert_eq!(tmpfs, [hush]);
    let markers = format!("{ROOT}/pods/{UID}/plugins/kubernetes.io~empty-dir");
    assert!(host.paths_below(&markers).contains(&format!("{markers}/wrapped_all/ready")));
}

#[tokio::test]
async fn what_is_missing_and_not_optional_is_an_error() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1" }));
    let items = json!([{ "key": "z", "path": "z" }]);
    let pod = pod(json!([
        { "name": "none", "secret": { "secretName": "none", "defaultMode": 0o644 } },
        { "name": "nokey", "configMap": { "name": "map", "defaultMode": 0o644, "items": items } },
        { "name": "nomode", "configMap": { "name": "map" } },
        { "name": "optkey", "configMap": { "name": "map", "defaultMode": 0o644, "items": items, "optional": true } },
    ]));
    let refusal = agent.volumes.set_up(&pod).await.unwrap_err();
    let expected = [
        "MountVolume.SetUp failed for volume \"none\" : secret \"none\" not found",
        "MountVolume.SetUp failed for volume \"nokey\" : configmap references non-existent config key: z",
        "MountVolume.SetUp failed for volume \"nomode\" : no defaultMode used, not even the default value for it",
    ];
    assert_eq!(refusal, expected.join("; "));
    assert_eq!(host.paths_below(folder("configmap", "optkey")).len(), 3, "an empty set");
}

#[tokio::test]
async fn sources_of_a_projected_volume_are_laid_over_each_other_in_order() {
    let (agent, host) = start();
    agent.objects.config_map("one", json!({ "x": "map", "y": "map" }));
    agent.objects.put(ObjectKind::Secret, "two", Some(json!({ "data": { "y": "c2VjcmV0" } })));
    let labels = json!({ "fieldPath": "metadata.labels" });
    let projected = json!({ "defaultMode": 0o644, "sources": [
        { "configMap": { "name": "one" } },
        { "secret": { "name": "two" } },
        { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": labels }] } },
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 7200, "audience": "vault" } },
        { "secret": { "name": "missing", "optional": true } },
    ]});
    let spec = json!({ "securityContext": { "fsGroup": 2000, "runAsUser": 1000 } });
    let pod = pod_with(json!([{ "name": "p", "projected": projected }]), spec);
    agent.volumes.set_up(&pod).await.unwrap();
    let p = folder("projected", "p");
    assert_eq!(text(&host, &format!("{p}/x")).as_deref(), Some("map"));
    assert_eq!(text(&host, &format!("{p}/y")).as_deref(), Some("secret"));
    assert_eq!(text(&host, &format!("{p}/labels")).as_deref(), Some("app=\"web\""));
    assert_eq!(text(&host, &format!("{p}/token")).as_deref(), Some("token-1"));
    assert_eq!(host.access(format!("{p}/token")), Some((0o640, Some(1000), Some(2000))));
    assert_eq!(host.access(format!("{p}/x")), Some((0o644, None, Some(2000))));
    let wanted = agent.objects.cluster.tokens.lock().unwrap().wanted.clone();
    assert_eq!((wanted[0].service_account.as_str(), wanted[0].expiration_seconds), ("robot", 7200));
    assert_eq!(wanted[0].audiences, ["vault"]);
}

#[tokio::test]
async fn errors_of_projected_sources_are_told_together() {
    let (agent, host) = start();
    let projected = json!({ "defaultMode": 0o644, "sources": [
        { "configMap": { "name": "one" } },
        { "clusterTrustBundle": { "path": "ca", "name": "b" } },
        { "podCertificate": { "keyType": "ED25519", "signerName": "s/s", "keyPath": "k" } },
    ]});
    let pod = pod(json!([{ "name": "p", "projected": projected }]));
    let expected = "MountVolume.SetUp failed for volume \"p\" : [configmap \"one\" not found, while getting \
                    ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"b\" not found, unimplemented]";
    assert_eq!(agent.volumes.set_up(&pod).await.unwrap_err(), expected);
    assert_eq!(host.paths_below(folder("projected", "p")), [""; 0], "nothing is made for nothing");
}

#[tokio::test]
async fn a_token_is_readable_to_all_where_no_user_is_known() {
    let (agent, host) = start();
    let sources = json!([{ "serviceAccountToken": { "path": "token" } }]);
    let volumes = json!([{ "name": "p", "projected": { "defaultMode": 0o644, "sources": sources } }]);
    agent.volumes.set_up(&pod(volumes)).await.unwrap();
    assert_eq!(host.access(format!("{}/token", folder("projected", "p"))), Some((0o644, None, None)));
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_and_the_next_try_succeeds() {
    let (agent, host) = start();
    agent.objects.config_map("map", json!({ "a": "1" }));
    let pod = pod(json!([{ "name": "v", "configMap": { "name": "map", "defaultMode": 0o644 } }]));
    host.add_fault(FileFault::on("write_payload", "/v", FileFaultKind::Errno(28)).times(1));
    let error = agent.volumes.set_up(&pod).await.unwrap_err();
    assert!(error.ends_with("/v: no space left on device"), "{error}");
    assert_eq!(host.paths_below(folder("configmap", "v")), [""; 0]);
    agent.volumes.set_up(&pod).await.unwrap();
    assert_eq!(text(&host, &format!("{}/a", folder("configmap", "v"))).as_deref(), Some("1"));
}

#[tokio::test]
async fn the_next_life_finds_what_is_there_and_can_take_it_down() {
    let (agent, host) = start();
    let volumes = json!([
        { "name": "mem", "emptyDir": { "medium": "Memory" } },
        { "name": "disk", "emptyDir": {} },
    ]);
    let pod = pod(volumes);
    let id = PodRef::of(&pod);
    let first = agent.volumes.set_up(&pod).await.unwrap();
    let bound = agent.volumes.sub_path(&id, "c", 0, "disk", "sub/dir").await.unwrap();
    assert_eq!(bound, format!("{ROOT}/pods/{UID}/volume-subpaths/disk/c/0"));
    drop(agent);

    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    let mounts = host.mounted_below(ROOT);
    assert_eq!(agent.volumes.set_up(&pod).await.unwrap(), first);
    assert_eq!(host.mounted_below(ROOT), mounts, "nothing is mounted twice");
    drop(agent);

    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    host.add_fault(FileFault::on("unmount", "volume-subpaths", FileFaultKind::Errno(16)).times(1));
    agent.volumes.tear_down(&id).await.unwrap_err();
    agent.volumes.tear_down(&id).await.unwrap();
    agent.volumes.tear_down(&id).await.unwrap();
    assert!(host.mounted_below(ROOT).is_empty());
    let left = host.paths_below(format!("{ROOT}/pods/{UID}"));
    assert_eq!(left, [format!("{ROOT}/pods/{UID}/"), format!("{ROOT}/pods/{UID}/plugins/")]);
}

#[tokio::test]
async fn memory_is_mounted_again_after_a_reboot() {
    let (agent, host) = start();
    agent.objects.put(ObjectKind::Secret, "s", Some(json!({ "data": { "key": "eA==" } })));
    let pod = pod(json!([{ "name": "v", "secret": { "secretName": "s", "defaultMode": 0o644 } }]));
    agent.volumes.set_up(&pod).await.unwrap();
    host.reboot();
    let next = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    next.objects.put(ObjectKind::Secret, "s", Some(json!({ "data": { "key": "eQ==" } })));
    next.volumes.set_up(&pod).await.unwrap();
    assert_eq!(host.mounted_below(ROOT).len(), 1);
    assert_eq!(text(&host, &format!("{}/key", folder("secret", "v"))).as_deref(), Some("y"));
}

#[tokio::test]
async fn sub_paths_that_lead_out_are_refused() {
    let (agent, host) = start();
    let pod = pod(json!([{ "name": "v", "emptyDir": {} }]));
    let id = PodRef::of(&pod);
    agent.volumes.set_up(&pod).await.unwrap();
    host.put("/etc", PathKind::Folder);
    host.put_link(format!("{}/out", folder("empty-dir", "v")), "/etc");
    for (volume, sub_path, refusal) in [
        ("v", "/a", "error SubPath `/a` must not be an absolute path"),
        ("v", "a/../../b", "unable to provision SubPath `a/../../b`: must not contain '..'"),
        ("v", "out", "failed to prepare subPath for volumeMount \"v\" of container \"c\""),
        ("w", "a", "cannot find volume \"w\" to mount into container \"c\""),
    ] {
        assert_eq!(agent.volumes.sub_path(&id, "c", 0, volume, sub_path).await.unwrap_err(), refusal);
    }
}

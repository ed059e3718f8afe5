//! Disks that are full, read-only or dead, servers that hang, mounts that are busy: the pod says so, nothing is left
//! behind, and it goes on by itself once the fault is gone.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Agent, UID, claim_volume, pod};
use crablet_host::fake::{FileFault, FileFaultKind};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use rustix::io::Errno;
use serde_json::json;

const ROOT: &str = "/r";

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    host.put("/data", PathKind::Folder);
    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    agent.put_claim("c", json!({ "local": { "path": "/data" } }));
    agent.put_claim("far", json!({ "nfs": { "server": "s", "path": "/x" } }));
    (agent, host)
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_says_is_told_once_and_goes_by_itself() {
    let faults = [
        ("make_folder", Errno::NOSPC, "no space left on device"),
        ("make_folder", Errno::ROFS, "read-only file system"),
        ("bind", Errno::NOENT, "no such file or directory"),
        ("bind", Errno::IO, "input/output error"),
        ("real_path", Errno::STALE, "stale file handle"),
    ];
    for (call, errno, words) in faults {
        let (agent, host) = start();
        let pod = pod(json!([claim_volume("c")]));
        let fault = FileFaultKind::Errno(errno.raw_os_error());
        host.add_fault(
            FileFault::on(call, if call == "real_path" { "/data" } else { "pv-c" }, fault).times(2),
        );
        for _ in 0..2 {
            let error = agent.volumes.set_up(&pod).await.unwrap_err();
            assert!(error.to_lowercase().contains(words), "{call} {errno}: {error}");
        }
        assert_eq!(agent.events.texts().len(), 1, "{call} {errno}: {:?}", agent.events.texts());
        assert!(host.mounted_below(ROOT).is_empty(), "{call} {errno}");
        agent.volumes.set_up(&pod).await.unwrap();
        agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
        assert!(host.mounted_below(ROOT).is_empty(), "{call} {errno}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_keeps_failing_is_told_again_before_the_cluster_forgets_it() {
    let (agent, host) = start();
    let pod = pod(json!([claim_volume("c")]));
    let fault = FileFaultKind::Errno(Errno::ROFS.raw_os_error());
    host.add_fault(FileFault::on("make_folder", "pv-c", fault));
    for _ in 0..60 {
        agent.volumes.set_up(&pod).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let told = agent.events.texts();
    assert_eq!(told.len(), 5, "now, and every 130 s: {told:?}");
    assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_volume_is_unmounted_by_a_later_try_and_nothing_is_lost() {
    let (agent, host) = start();
    let pod = pod(json!([claim_volume("c"), claim_volume("far"), { "name": "own", "emptyDir": {} }]));
    agent.volumes.set_up(&pod).await.unwrap();
    host.put_file("/data/precious", "x");
    let busy = FileFaultKind::Errno(Errno::BUSY.raw_os_error());
    host.add_fault(FileFault::on("unmount", "pv-c", busy).times(2));
    let id = PodRef::of(&pod);
    for _ in 0..2 {
        let error = agent.volumes.tear_down(&id).await.unwrap_err();
        assert!(error.starts_with("UnmountVolume.TearDown failed for volume \"pv-c\" : "), "{error}");
        // The others did not wait for it.
        let left: Vec<_> = host.mounted_below(ROOT).into_iter().map(|m| m.path).collect();
        assert_eq!(left, [Path::new(&format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~local-volume/pv-c"))]);
    }
    agent.volumes.tear_down(&id).await.unwrap();
    assert!(host.mounted_below(ROOT).is_empty());
    assert_eq!(host.content("/data/precious").unwrap(), b"x");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_holds_its_pod_alone_and_the_pod_can_go() {
    let (agent, host) = start();
    let stuck = pod(json!([claim_volume("far"), { "name": "own", "emptyDir": {} }]));
    let mut other = stuck.clone();
    other.metadata.uid = Some("other".to_owned());
    host.add_fault(FileFault::on("mount_from", UID, FileFaultKind::Slow(Duration::from_secs(3600))));
    let volumes = agent.volumes.clone();
    let waiting = tokio::spawn({
        let stuck = stuck.clone();
        async move { volumes.set_up(&stuck).await }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    agent.volumes.set_up(&other).await.unwrap();
    let begun = tokio::time::Instant::now();
    agent.volumes.tear_down(&PodRef::of(&stuck)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(waiting.await.unwrap().unwrap_err().ends_with("are being taken down"));
    assert!(host.paths_below(format!("{ROOT}/pods/{UID}/volumes")).is_empty());
    assert_eq!(host.mounted_below(ROOT).len(), 1, "the other pod's");
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_takes_long_is_told() {
    let (agent, host) = start();
    let slow = FileFaultKind::Slow(Duration::from_secs(100));
    host.add_fault(FileFault::on("set_group", "pv-c", slow).times(1));
    let context = json!({ "securityContext": { "fsGroup": 2000 } });
    let pod = common::pod_with(json!([claim_volume("c")]), context);
    agent.volumes.set_up(&pod).await.unwrap();
    let told = agent.events.texts();
    assert_eq!(told.len(), 2, "after 30 s and after 90 s: {told:?}");
    let name = format!("{UID}/volumes/kubernetes.io~local-volume/pv-c");
    let first = format!(
        "VolumePermissionChangeInProgress Setting volume ownership for {name} is taking longer than expected, consider \
         using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
    );
    assert!(told[0].starts_with(&first), "{}", told[0]);
    let second =
        format!("VolumePermissionChangeInProgress Setting volume ownership for {name}, processed 0 files.");
    assert_eq!(told[1], second);
}

#[tokio::test(start_paused = true)]
async fn what_the_pod_waits_for_is_known_as_soon_as_it_is_there() {
    let (agent, _) = start();
    let pod = pod(json!([{ "name": "v", "secret": { "secretName": "late", "defaultMode": 0o644 } }]));
    let comes = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let secret = json!({ "data": { "k": "eA==" } });
        agent.objects.put(crablet_apiserver::ObjectKind::Secret, "late", Some(secret));
        tokio::time::Instant::now()
    };
    let (set_up, came) = tokio::join!(
        async {
            agent.volumes.set_up(&pod).await.unwrap();
            tokio::time::Instant::now()
        },
        comes
    );
    assert!(set_up - came < Duration::from_secs(1), "by the event, not by the next look");
    let said = "FailedMount MountVolume.SetUp failed for volume \"v\" : secret \"late\" not found";
    assert_eq!(agent.events.texts(), [said]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_too_long_is_begun_anew() {
    let (agent, _) = start();
    agent.put_claim("net", json!({ "fc": { "wwids": ["3600"], "fsType": "xfs" } }));
    let error = agent.volumes.set_up(&pod(json!([claim_volume("net")]))).await.unwrap_err();
    assert_eq!(
        error,
        "unmounted volumes=[net], unattached volumes=[net], failed to process volumes=[]: context deadline exceeded"
    );
    assert!(agent.events.texts().is_empty(), "as upstream, waiting for an attachment is no event");
}

#[tokio::test(start_paused = true)]
async fn volumes_tell_how_full_they_are() {
    let (agent, _) = start();
    let pod = pod(json!([
        claim_volume("c"), { "name": "own", "emptyDir": {} }, { "name": "host", "hostPath": { "path": "/data" } },
    ]));
    assert!(agent.volumes.stats(&pod).await.is_empty());
    agent.volumes.set_up(&pod).await.unwrap();
    let stats = agent.volumes.stats(&pod).await;
    let shown: Vec<_> = stats
        .iter()
        .map(|s| (s.name.as_str(), s.claim.as_ref().map(|c| c.1.as_str()), s.usage.used))
        .collect();
    // A file system of its own, and a folder; a path of the host is not the pod's.
    assert_eq!(shown, [("c", Some("c"), 40), ("own", None, 5)]);
}

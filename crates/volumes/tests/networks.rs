//! Disks of storage networks, with a recording stand-in of the host's tools: no such hardware is at hand.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Agent, UID, claim_volume, pod};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use serde_json::json;

const ROOT: &str = "/r";
const IQN: &str = "iqn.2026-01.org.example:disk";

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    (Agent::start(Path::new(ROOT), Arc::new(host.clone())), host)
}

/// As the kernel shows a session with a disk.
fn log_in(host: &FakeVolumeHost) {
    let device = "/sys/class/iscsi_host/host4/device";
    host.put_file(format!("{device}/session1/iscsi_session/session1/targetname"), &format!("{IQN}\n"));
    let connection = format!("{device}/session1/connection1:0/iscsi_connection/connection1:0");
    for (file, text) in [("address", "10.0.0.1\n"), ("port", "3260\n")] {
        host.put_file(format!("{connection}/{file}"), text);
        host.put_file(format!("{connection}/persistent_{file}"), text);
    }
    host.put(format!("{device}/session1/target4:0:0/4:0:0:2/block/sdq"), PathKind::Folder);
    host.put("/dev/sdq", PathKind::BlockDevice);
    host.put_link(format!("/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-{IQN}-lun-2"), "/dev/sdq");
    host.put_file("/sys/block/sdq/device/delete", "");
}

#[tokio::test(start_paused = true)]
async fn an_iscsi_disk_is_attached_mounted_and_given_back() {
    let (agent, host) = start();
    host.answer("iscsiadm -m iface", 0, "iface.iscsi_ifacename = default\niface.transport_name = tcp\n");
    host.answer("blkid", 0, "TYPE=ext4\n");
    let source = json!({ "targetPortal": "10.0.0.1", "iqn": IQN, "lun": 2, "iscsiInterface": "default" });
    agent.put_claim("c", json!({ "iscsi": source }));
    let pod = pod(json!([claim_volume("c")]));
    let attached = async {
        let unique = format!("kubernetes.io/iscsi/10.0.0.1:{IQN}:2");
        // The controller attaches what the node says it needs.
        let mut in_use = agent.in_use.clone();
        let needs = |all: &Option<Arc<Vec<String>>>| all.as_ref().is_some_and(|all| all.contains(&unique));
        in_use.wait_for(needs).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(host.take_commands().is_empty(), "nothing is begun before");
        log_in(&host);
        agent.attach(&[&unique]);
    };
    tokio::join!(agent.volumes.set_up(&pod), attached).0.unwrap();
    let commands = host.take_commands();
    // The session was there already: no login, only the unit is looked for.
    assert_eq!(
        commands,
        [
            "iscsiadm -m iface -I default -o show",
            "blkid -p -s TYPE -s PTTYPE -o export /dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2026-01.org.example:disk-lun-2",
            "fsck -a /dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.2026-01.org.example:disk-lun-2",
        ]
    );
    assert_eq!(host.content("/sys/class/scsi_host/host4/scan").unwrap(), b"0 0 2");
    let global = format!("{ROOT}/plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-{IQN}-lun-2");
    let saved = host.content(format!("{global}/iscsi.json")).unwrap();
    let saved: serde_json::Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!((saved["Iqn"].as_str(), saved["Lun"].as_str()), (Some(IQN), Some("2")));
    let at: Vec<_> = host.mounted_below(ROOT).into_iter().map(|m| m.path.display().to_string()).collect();
    assert_eq!(at, [global.clone(), format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~iscsi/pv-c")]);

    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert!(host.mounted_below(ROOT).is_empty());
    assert_eq!(host.paths_below(&global), [""; 0]);
    assert_eq!(host.content("/sys/block/sdq/device/delete").unwrap(), b"1");
    assert_eq!(
        host.take_commands(),
        [
            format!("iscsiadm -m node -p 10.0.0.1:3260 -T {IQN} --logout -I default"),
            format!("iscsiadm -m node -p 10.0.0.1:3260 -T {IQN} -o delete -I default"),
        ]
    );
    assert_eq!(agent.in_use.borrow().as_ref().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_reached_is_told_and_forgotten() {
    let (agent, host) = start();
    let volume = json!({ "name": "v", "iscsi": { "targetPortal": "10.0.0.1:3260", "iqn": IQN, "lun": 2,
        "chapAuthSession": true, "secretRef": { "name": "chap" } } });
    agent.attach(&[&format!("kubernetes.io/iscsi/10.0.0.1:{IQN}:2")]);
    agent.objects.put(
        crablet_apiserver::ObjectKind::Secret,
        "chap",
        Some(json!({ "data": { "node.session.auth.password": "aHVzaA==" } })),
    );
    host.answer("iscsiadm -m iface", 0, "iface.transport_name = tcp\n");
    host.answer(
        "iscsiadm -m node -p 10.0.0.1:3260 -T iqn.2026-01.org.example:disk -I default --login",
        8,
        "no way",
    );
    let error = agent.volumes.set_up(&pod(json!([volume]))).await.unwrap_err();
    assert_eq!(
        error,
        "MountVolume.WaitForAttach failed for volume \"v\" : failed to get any path for iscsi disk, last err seen:\n\
         iscsi: failed to attach disk: Error: no way (exit status 8)"
    );
    let commands = host.take_commands();
    let has = |command: &str| commands.iter().any(|ran| ran.contains(command));
    assert!(has("-o update -n node.session.auth.password -v hush"));
    assert!(has("-I default -o delete"));
    assert!(!agent.events.texts().iter().any(|text| text.contains("hush")));
}

#[tokio::test(start_paused = true)]
async fn a_fibre_channel_disk_is_found_after_a_rescan_and_deleted_at_the_end() {
    let (agent, host) = start();
    let source = json!({ "targetWWNs": ["50060e801049cfd1"], "lun": 0, "fsType": "xfs" });
    agent.put_claim("c", json!({ "fc": source }));
    agent.attach(&["kubernetes.io/fc/[50060e801049cfd1]:0"]);
    host.put_file("/sys/class/scsi_host/host0/scan", "");
    let pod = pod(json!([claim_volume("c")]));
    let error = agent.volumes.set_up(&pod).await.unwrap_err();
    assert_eq!(error, "MountVolume.WaitForAttach failed for volume \"pv-c\" : no fc disk found");
    assert_eq!(host.content("/sys/class/scsi_host/host0/scan").unwrap(), b"- - -");

    host.put("/dev/sdf", PathKind::BlockDevice);
    host.put_link("/dev/disk/by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-0", "/dev/sdf");
    host.put_file("/sys/block/sdf/device/delete", "");
    host.answer("blkid", 0, "TYPE=xfs\n");
    agent.volumes.set_up(&pod).await.unwrap();
    let global = format!("{ROOT}/plugins/kubernetes.io/fc/50060e801049cfd1-lun-0");
    assert_eq!(host.mounted_below(&global)[0].source, "/dev/sdf");
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert_eq!(host.content("/sys/block/sdf/device/delete").unwrap(), b"1");
    assert!(host.take_commands().contains(&"blockdev --flushbufs /dev/sdf".to_owned()));
    assert!(host.mounted_below(ROOT).is_empty());
}

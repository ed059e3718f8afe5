//! The agent dies at every step of claims, disks and devices; the next life finds its way, or cleans up.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Agent, UID, claim_volume, pod_with};
use crablet_model::{PodRef, api};
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use serde_json::json;
use tokio::sync::Notify;

const ROOT: &str = "/r";
const UNIT: &str = "kubernetes.io/fc/[50060e801049cfd1]:0";

fn machine() -> FakeVolumeHost {
    let host = FakeVolumeHost::default();
    host.put("/data", PathKind::Folder);
    for disk in ["/dev/sda", "/dev/sdb", "/dev/sdf"] {
        host.put(disk, PathKind::BlockDevice);
    }
    host.put_link("/dev/disk/by-path/fc-0x50060e801049cfd1-lun-0", "/dev/sdf");
    host.answer("blkid", 0, "TYPE=ext4\n");
    host
}

fn start(host: &FakeVolumeHost) -> Agent {
    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    agent.put_claim("folder", json!({ "local": { "path": "/data" } }));
    agent.put_claim("disk", json!({ "local": { "path": "/dev/sda" } }));
    agent.put_claim("raw", json!({ "local": { "path": "/dev/sdb" }, "volumeMode": "Block" }));
    agent.put_claim("far", json!({ "nfs": { "server": "s", "path": "/x" } }));
    agent.put_claim("net", json!({ "fc": { "targetWWNs": ["50060e801049cfd1"], "lun": 0 } }));
    agent.attach(&[UNIT]);
    agent
}

fn wanted() -> api::Pod {
    let mounted = ["folder", "disk", "far", "net"];
    let mounts: Vec<_> =
        mounted.iter().map(|name| json!({ "name": name, "mountPath": format!("/{name}") })).collect();
    let container = json!([{ "name": "c", "volumeMounts": mounts,
        "volumeDevices": [{ "name": "raw", "devicePath": "/dev/x" }] }]);
    let volumes: Vec<_> = mounted.iter().chain(&["raw"]).map(|name| claim_volume(name)).collect();
    let spec = json!({ "containers": container, "securityContext": { "fsGroup": 2000 } });
    pod_with(json!(volumes), spec)
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_step_is_mended_or_cleaned_up_by_the_next_life() {
    let pod = wanted();
    let id = PodRef::of(&pod);
    // Every other time the pod is gone when the agent comes back.
    let mut last_step = 0;
    loop {
        let host = machine();
        let (calls, died) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        let gate = {
            let died = died.clone();
            move |_: &'static str| {
                let alive = calls.fetch_add(1, Ordering::Relaxed) < last_step;
                if !alive {
                    died.notify_one();
                }
                alive
            }
        };
        host.set_gate(Some(Arc::new(gate)));
        let agent = start(&host);
        let whole_life = async {
            agent.volumes.set_up(&pod).await.unwrap();
            agent.volumes.tear_down(&id).await.unwrap();
        };
        let survived = tokio::select! {
            biased;
            () = whole_life => true,
            () = died.notified() => false,
        };
        drop(agent);
        host.set_gate(None);

        let agent = start(&host);
        if last_step % 2 == 0 {
            let mounted = agent.volumes.set_up(&pod).await;
            mounted.unwrap_or_else(|error| panic!("step {last_step}: {error}"));
            // Folder, disk twice, far, net twice, raw.
            assert_eq!(host.mounted_below(ROOT).len(), 7, "step {last_step}");
        }
        agent.volumes.tear_down(&id).await.unwrap_or_else(|error| panic!("step {last_step}: {error}"));
        // What was mounted for the node without a pod to show for it goes with the look back at the start.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let table = host.mounted_below(ROOT);
        assert!(table.is_empty(), "step {last_step}: {table:?}");
        let left = host.paths_below(format!("{ROOT}/pods/{UID}"));
        let strange: Vec<_> = left.iter().filter(|path| !path.ends_with("/plugins/")).skip(1).collect();
        assert!(strange.is_empty(), "step {last_step}: {strange:?}");
        let of_node: Vec<_> = host.paths_below(format!("{ROOT}/plugins"));
        assert!(!of_node.iter().any(|path| path.contains("pv-") || path.contains("lun")), "{of_node:?}");
        assert_eq!(host.paths_below("/data"), ["/data/"], "step {last_step}: the volume stays");
        if survived {
            break;
        }
        last_step += 1;
    }
    assert!(last_step > 150, "the agent had only {last_step} chances to die");
}

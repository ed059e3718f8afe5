//! SELinux labels of volumes, on a node that is told to have SELinux. No machine with it was at hand.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Agent, claim_volume, pod_with};
use crablet_model::api;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use crablet_volumes::selinux::{Selinux, SelinuxLabels};
use serde_json::{Value, json};

const ROOT: &str = "/r";

/// As a policy with a file type for containers.
struct Labels;

impl SelinuxLabels for Labels {
    fn file_label(&self, options: &api::SELinuxOptions) -> Option<String> {
        options.level.as_ref().map(|level| format!("system_u:object_r:container_file_t:{level}"))
    }
}

/// Sets up a disk for a pod. Gives the options it is mounted with, and whether the runtime is to label its files.
async fn mounted(every_access_mode: bool, mode: &str, security: Value) -> (String, bool) {
    let host = FakeVolumeHost::default();
    let selinux = Selinux { labels: Arc::new(Labels), every_access_mode };
    let agent = Agent::start_labelling(Path::new(ROOT), Arc::new(host.clone()), selinux);
    let source = json!({ "targetWWNs": ["50060e801049cfd1"], "lun": 0, "fsType": "xfs" });
    agent.put_claim("c", json!({ "fc": source, "accessModes": [mode], "mountOptions": ["noatime"] }));
    agent.attach(&["kubernetes.io/fc/[50060e801049cfd1]:0"]);
    host.put("/dev/sdf", PathKind::BlockDevice);
    host.put_link("/dev/disk/by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-0", "/dev/sdf");
    host.answer("blkid", 0, "TYPE=xfs\n");
    let pod = pod_with(json!([claim_volume("c")]), json!({ "securityContext": security }));
    let volumes = agent.volumes.set_up(&pod).await.unwrap();
    let global = format!("{ROOT}/plugins/kubernetes.io/fc/50060e801049cfd1-lun-0");
    (host.mounted_below(&global)[0].options.clone(), volumes["c"].relabel)
}

#[tokio::test(start_paused = true)]
async fn a_disk_for_one_pod_is_mounted_with_its_label_and_others_are_labelled_by_the_runtime() {
    let labelled = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
    let security = json!({ "seLinuxOptions": { "level": "s0:c1,c2" } });
    let (options, relabel) = mounted(false, "ReadWriteOncePod", security.clone()).await;
    assert!(options.contains("noatime") && options.contains(labelled), "{options}");
    assert!(!relabel);

    let (options, relabel) = mounted(false, "ReadWriteOnce", security.clone()).await;
    assert!(!options.contains("context="), "{options}");
    assert!(relabel);

    let (options, relabel) = mounted(true, "ReadWriteOnce", security).await;
    assert!(options.contains(labelled), "{options}");
    assert!(!relabel);

    let recursive = json!({ "seLinuxOptions": { "level": "s0:c1" }, "seLinuxChangePolicy": "Recursive" });
    let (options, relabel) = mounted(true, "ReadWriteOncePod", recursive).await;
    assert!(!options.contains("context="), "{options}");
    assert!(relabel);
}

//! What goes wrong with volumes on a real node: disks that are full or read-only, mounts that are busy, servers that hang
//! or have forgotten what they served, an agent that is killed between any two changes it makes, and what dead pods left.
//! Real mounts, a real runtime, a real control plane. Each fault is told, harms nobody else, and goes by itself.
//!
//! | module | what it is about |
//! |---|---|
//! | `mounts` | busy, absent and stale mounts |
//! | `hung` | servers that give no answer |
//! | `disks` | the agent's own disk, full and read-only |
//! | `changes` | secrets, config maps and labels reach the files of running containers |
//! | `orphans` | what is found below `pods` and belongs to nobody |
//! | `deaths` | `kill -9` before each change to the file system |
//! | `objects` | pods, claims and volumes to say all that with |
//!
//! `CRABLET_TEST_KUBELET=upstream` puts upstream's kubelet under the same faults, except where it does not bear them.
//! `CRABLET_TEST_DEATHS=all` kills before each change of the whole set-up and teardown instead of a few: minutes.

#[allow(dead_code, reason = "of what the cluster's tests share, a part is needed here")]
#[path = "cluster"]
mod cluster {
    pub mod follow;
    pub mod support;
}
mod faults {
    pub mod changes;
    pub mod deaths;
    pub mod disks;
    pub mod hung;
    pub mod mounts;
    pub mod objects;
    pub mod orphans;
}

use anyhow::Result;
use crablet_testbed::cluster::{Cluster, ClusterOptions, NodeOptions};
use crablet_testbed::{Flavor, cluster as testbed};

use cluster::support::{Step, kubelet, one_by_one, side_by_side, step, told};
use faults::objects::{SmallDisk, is_upstream};
use faults::{changes, deaths, disks, hung, mounts, orphans};

/// Everything but deaths. Most of it is waiting, so it is done side by side.
#[test]
fn faults() {
    const TOGETHER: &[Step] = &[
        step!(mounts::what_is_absent_is_waited_for),
        step!(mounts::a_busy_volume_is_let_go_of_later),
        step!(mounts::a_stale_handle_is_told_and_comes_back),
        step!(changes::what_changes_reaches_the_containers),
    ];
    // Upstream's kubelet waits for ever where a call does.
    const OURS: &[Step] = &[
        step!(hung::a_hung_path_holds_its_pod_alone),
        step!(hung::a_hung_volume_comes_back),
        step!(hung::a_hung_driver_holds_its_pods_alone),
        step!(hung::a_runtime_that_hangs_in_a_path_lets_the_pod_go),
        step!(hung::more_hang_than_there_are_threads),
    ];
    // It would evict pods from a full disk.
    const ALONE: &[Step] = &[step!(disks::a_full_disk), step!(disks::a_read_only_disk)];
    on_a_cluster(|cluster| {
        let _disk = SmallDisk::mount(&cluster.dir().join("node/root"))?;
        let node = cluster.join(NodeOptions::new(kubelet()))?;
        side_by_side(cluster, node.log_path(), TOGETHER)?;
        if !is_upstream() {
            side_by_side(cluster, node.log_path(), OURS)?;
            one_by_one(cluster, node.log_path(), ALONE)?;
        }
        orphans::are_removed_safely(cluster, node)
    });
}

#[test]
fn deaths() {
    on_a_cluster(deaths::at_every_step);
}

/// Gives the test a cluster, if clusters are to be tested. A cluster that ends well has left nothing behind.
fn on_a_cluster(test: impl FnOnce(&Cluster) -> Result<()>) {
    if !testbed::is_under_test() {
        eprintln!("not run: clusters are not under test (see CRABLET_TEST_CLUSTER)");
        return;
    }
    let result = Cluster::start(ClusterOptions::new(Flavor::Pinned)).and_then(|cluster| {
        test(&cluster)?;
        cluster.stop()
    });
    if let Err(error) = result {
        panic!("{}", told(&error));
    }
}

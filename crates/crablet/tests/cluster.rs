//! Crablet as the node of a real control plane, judged by what `kubectl` shows, by what the runtime has and by what is
//! on disk. One cluster for each test; its steps have namespaces of their own and mostly run side by side.
//!
//! | module | what it is about |
//! |---|---|
//! | `pods` | run, look, logs, delete with grace and by force, what is not supported yet |
//! | `workloads` | deployment, daemon set, job, stateful set |
//! | `volumes` | config maps, secrets, tokens, the downward API, shared and host folders |
//! | `statics` | static pods and their mirrors |
//! | `whole_node` | the Node object, the kubelet's port, drain and taints |
//! | `streaming` | logs, exec, attach, port-forward, cp and debug, with a new and an old `kubectl` and without any |
//! | `weather` | the API server cut off, slow, refusing, silent; the agent killed; the Node object deleted |
//! | `joining` | a node that comes with nothing but a bootstrap token; a full node |
//! | `support`, `follow`, `wire` | a room for each step, programs whose lines are waited for, a line that can be cut |

mod cluster {
    pub mod follow;
    pub mod joining;
    pub mod pods;
    pub mod statics;
    pub mod streaming;
    pub mod support;
    pub mod volumes;
    pub mod weather;
    pub mod whole_node;
    pub mod wire;
    pub mod workloads;
}

use anyhow::Result;
use crablet_testbed::cluster::{Cluster, ClusterOptions};
use crablet_testbed::{Flavor, cluster as testbed};

use cluster::support::{Step, one_by_one, side_by_side, step, told};
use cluster::{joining, pods, statics, streaming, volumes, weather, whole_node, workloads};

/// What the users of a cluster do all day.
#[test]
fn life() {
    const TOGETHER: &[Step] = &[
        step!(pods::a_pod_runs_and_can_be_looked_at),
        step!(pods::logs_can_be_read_in_every_way),
        step!(pods::grace_is_given_and_the_end_is_told),
        step!(pods::force_does_not_wait),
        step!(pods::what_is_not_supported_waits_and_says_so),
        step!(workloads::a_deployment_rolls_and_scales),
        step!(workloads::a_daemon_set_runs_here),
        step!(workloads::a_job_completes),
        step!(workloads::a_stateful_pod_comes_back_under_its_name),
        step!(volumes::the_clusters_objects_reach_the_containers),
        step!(volumes::what_is_missing_is_waited_for),
        step!(volumes::folders_are_shared),
        step!(statics::a_static_pod_has_a_mirror),
        step!(whole_node::the_node_is_described),
        step!(whole_node::the_lease_is_renewed_and_no_more),
        step!(whole_node::the_kubelets_port_knows_its_callers),
    ];
    const ALONE: &[Step] =
        &[step!(whole_node::a_drained_node_is_empty), step!(whole_node::a_taint_drives_pods_away)];
    on_a_cluster(Flavor::Pinned, |cluster| {
        let node = cluster.join(whole_node::options())?;
        side_by_side(cluster, node.log_path(), TOGETHER)?;
        one_by_one(cluster, node.log_path(), ALONE)
    });
}

/// What goes wrong between an agent and its API server. Mostly waiting, so best begun first: tests begin by their names.
#[test]
fn bad_weather() {
    on_a_cluster(Flavor::Pinned, weather::all);
}

/// How a new machine becomes a node, and how much fits on it. On the containerd that has no event stream.
#[test]
fn joining() {
    on_a_cluster(Flavor::Debian, joining::all);
}

/// What goes through the kubelet's own port.
#[test]
fn streams() {
    on_a_cluster(Flavor::Pinned, streaming::all);
}

/// Gives the test a cluster, if clusters are to be tested. A cluster that ends well has left nothing behind.
fn on_a_cluster(flavor: Flavor, test: impl FnOnce(&Cluster) -> Result<()>) {
    if !testbed::is_under_test() {
        eprintln!("not run: clusters are not under test (see CRABLET_TEST_CLUSTER)");
        return;
    }
    let result = Cluster::start(ClusterOptions::new(flavor)).and_then(|cluster| {
        test(&cluster)?;
        cluster.stop()
    });
    if let Err(error) = result {
        panic!("{}", told(&error));
    }
}

//! Crablet as the node of a real control plane, judged by what `kubectl` shows, by what the runtime has and by what is
//! on disk. One cluster for each test; its steps have namespaces of their own and mostly run side by side.
//!
//! | module | what it is about |
//! |---|---|
//! | `pods` | run, look, logs, delete with grace and by force, what is not supported yet |
//! | `lifecycle` | containers of every role: order, restarts, deadlines |
//! | `endings` | ends that wait for others, that are hurried, that come while something is under way |
//! | `hooks` | what containers want at their begin and before their end |
//! | `probes` | liveness, readiness, startup: who is restarted, who is ready, and what a restart of the agent keeps |
//! | `admission` | pods that the node does not let run, and who makes room for a critical one |
//! | `resized` | other resources for pods that run |
//! | `private` | images behind a password: secrets, programs that know, and who may use what is there |
//! | `image_volumes` | images as volumes |
//! | `workloads` | deployment, daemon set, job, stateful set |
//! | `volumes` | config maps, secrets, tokens, the downward API, shared and host folders |
//! | `storage` | claims, disks as file systems and as devices, groups, parts of volumes |
//! | `attach` | volumes that a controller attaches, how many there may be, drivers that want to be told again |
//! | `certificates` | certificates that pods find in their volumes, and whom to trust |
//! | `csi` | a CSI driver on the node: registration, its volumes, its death and the agent's |
//! | `statics` | static pods and their mirrors |
//! | `whole_node` | the Node object, the kubelet's port, drain and taints |
//! | `streaming` | logs, exec, attach, port-forward, cp and debug, with a new and an old `kubectl` and without any |
//! | `weather` | the API server cut off, slow, refusing, silent; the agent killed; the Node object deleted |
//! | `joining` | a node that comes with nothing but a bootstrap token; a full node |
//! | `support`, `follow`, `wire` | a room for each step, programs whose lines are waited for, a line that can be cut |

mod cluster {
    pub mod admission;
    pub mod attach;
    pub mod certificates;
    pub mod csi;
    pub mod endings;
    pub mod follow;
    pub mod hooks;
    pub mod image_volumes;
    pub mod joining;
    pub mod lifecycle;
    pub mod pods;
    pub mod private;
    pub mod probes;
    pub mod resized;
    pub mod statics;
    pub mod storage;
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
use cluster::{
    admission, attach, certificates, csi, endings, hooks, image_volumes, joining, lifecycle, pods, private,
    probes, resized, statics, storage, streaming, volumes, weather, whole_node, workloads,
};

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
        step!(image_volumes::an_image_is_a_volume),
        step!(image_volumes::an_image_that_cannot_be_had_is_told),
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

/// Who may run on a node.
#[test]
fn admitted() {
    on_a_cluster(Flavor::Pinned, admission::all);
}

/// Pods that grow and shrink while they run.
#[test]
fn resizes() {
    on_a_cluster(Flavor::Pinned, resized::all);
}

/// What goes wrong between an agent and its API server. Mostly waiting, so best begun first: tests begin by their names.
#[test]
fn bad_weather() {
    on_a_cluster(Flavor::Pinned, weather::all);
}

/// Keys and certificates for pods, whose gates are closed on both sides unless somebody opens them.
#[test]
fn certified() {
    let options =
        ClusterOptions { api_flags: certificates::api_flags(), ..ClusterOptions::new(Flavor::Pinned) };
    on_such_a_cluster(options, certificates::all);
}

/// Volumes of a driver that is a process of its own.
#[test]
fn drivers() {
    on_a_cluster(Flavor::Pinned, csi::all);
}

/// Volumes of a driver that have to be attached first.
#[test]
fn attachments() {
    on_a_cluster(Flavor::Pinned, attach::all);
}

/// How a new machine becomes a node, and how much fits on it. On the containerd that has no event stream.
#[test]
fn joining() {
    on_a_cluster(Flavor::Debian, joining::all);
}

/// Everything that a pod can say about how its containers begin, live and end.
#[test]
fn lifecycle() {
    const TOGETHER: &[Step] = &[
        step!(lifecycle::init_containers_run_one_after_the_other),
        step!(lifecycle::a_failed_init_container_fails_the_pod),
        step!(lifecycle::sidecars_begin_first_and_end_last),
        step!(lifecycle::sidecars_do_not_keep_a_finished_pod),
        step!(lifecycle::an_ephemeral_container_runs_once),
        step!(lifecycle::rules_decide_about_restarts),
        step!(lifecycle::a_rule_begins_the_whole_pod_again),
        step!(lifecycle::a_deadline_ends_a_pod),
        step!(endings::a_sidecar_waits_for_others_with_its_hook_behind_it),
        step!(endings::a_sidecar_has_a_moment_when_the_grace_is_used_up),
        step!(endings::a_grace_can_be_made_shorter),
        step!(endings::what_waits_can_be_deleted),
        step!(endings::what_a_variable_lacks_is_waited_for),
        step!(statics::an_edited_static_pod_ends_before_the_next_begins),
        step!(statics::a_static_pod_that_comes_back_begins_after_its_end),
        step!(hooks::commands_run_at_begin_and_end),
        step!(hooks::requests_are_sent_at_begin_and_end),
        step!(hooks::a_pause_is_kept),
        step!(hooks::a_failed_begin_ends_the_container),
        step!(hooks::a_failed_end_is_told),
        step!(hooks::the_grace_is_longer_than_no_hook),
    ];
    on_a_cluster(Flavor::Pinned, |cluster| {
        let node = cluster.join(whole_node::options())?;
        side_by_side(cluster, node.log_path(), TOGETHER)
    });
}

/// Images that not everybody may have.
#[test]
fn private_images() {
    on_a_cluster(Flavor::Pinned, private::all);
}

/// What containers are asked while they run.
#[test]
fn probing() {
    on_a_cluster(Flavor::Pinned, probes::all);
}

/// Volumes that outlive pods.
#[test]
fn stored() {
    on_a_cluster(Flavor::Pinned, storage::all);
}

/// What goes through the kubelet's own port.
#[test]
fn streams() {
    on_a_cluster(Flavor::Pinned, streaming::all);
}

/// Gives the test a cluster, if clusters are to be tested. A cluster that ends well has left nothing behind.
fn on_a_cluster(flavor: Flavor, test: impl FnOnce(&Cluster) -> Result<()>) {
    on_such_a_cluster(ClusterOptions::new(flavor), test);
}

fn on_such_a_cluster(options: ClusterOptions, test: impl FnOnce(&Cluster) -> Result<()>) {
    if !testbed::is_under_test() {
        eprintln!("not run: clusters are not under test (see CRABLET_TEST_CLUSTER)");
        return;
    }
    let result = Cluster::start(options).and_then(|cluster| {
        test(&cluster)?;
        cluster.stop()
    });
    if let Err(error) = result {
        panic!("{}", told(&error));
    }
}

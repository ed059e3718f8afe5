//! The cluster test bed with upstream's kubelet: what a cluster is for works, and a cluster that ends leaves nothing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet, Node, NodeOptions};
use crablet_testbed::process::{self, ProcessId};
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{Flavor, cluster, images, scratch};

/// A cluster with one node, if clusters are to be tested.
fn start() -> Option<(Cluster, Node)> {
    if !cluster::is_under_test() {
        return None;
    }
    let cluster = Cluster::start(ClusterOptions::new(Flavor::Debian)).unwrap_or_else(|e| panic!("{e:#}"));
    let node = cluster.join(NodeOptions::new(Kubelet::Upstream)).unwrap_or_else(|e| panic!("{e:#}"));
    Some((cluster, node))
}

fn run_pod(cluster: &Cluster, name: &str) {
    let image = format!("--image={}", images::WEB);
    cluster.kubectl(&["run", name, &image, "--image-pull-policy=Never"]).unwrap();
    cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=120s"]).unwrap();
}

#[test]
fn a_pod_is_scheduled_runs_and_can_be_looked_into() {
    let Some((cluster, node)) = start() else { return };
    run_pod(&cluster, "web");
    let shown =
        cluster.kubectl(&["get", "pod", "web", "-o", "jsonpath={.spec.nodeName} {.status.phase}"]).unwrap();
    assert_eq!(shown, format!("{} Running", node.name()));
    // Both go from the API server to the kubelet, with certificates that each side checks.
    assert_eq!(cluster.kubectl(&["exec", "web", "--", "echo", "hello"]).unwrap(), "hello\n");
    cluster.kubectl(&["logs", "web"]).unwrap();
    cluster.kubectl(&["delete", "pod", "web", "--grace-period=1", "--timeout=60s"]).unwrap();
    drop(node);
    cluster.stop().unwrap();
}

#[test]
fn a_node_may_only_touch_what_is_its_own() {
    let Some((cluster, node)) = start() else { return };
    let config = node.home().join("kubeconfig");
    let as_node = |args: &[&str]| {
        let mut kubectl = Command::new(cluster.bin().join("kubectl"));
        process::output_of(kubectl.arg("--kubeconfig").arg(&config).args(args))
    };
    as_node(&["get", "node", node.name()]).unwrap();
    as_node(&["label", "node", node.name(), "example.com/colour=blue"]).unwrap();
    // The authorizer of nodes, and the admission plugin that looks at what they write.
    let foreign = as_node(&["get", "secrets", "--all-namespaces"]).unwrap_err().to_string();
    assert!(foreign.contains("Forbidden"), "{foreign}");
    let label = "node-restriction.kubernetes.io/a=b";
    let restricted = as_node(&["label", "node", node.name(), label]).unwrap_err().to_string();
    assert!(restricted.contains("is not allowed to modify labels"), "{restricted}");
}

#[test]
fn two_clusters_do_not_meet() {
    let Some((one, first)) = start() else { return };
    let Some((two, second)) = start() else { return };
    assert_ne!(one.server(), two.server());
    run_pod(&one, "only-here");
    run_pod(&two, "only-there");
    let names = |cluster: &Cluster| cluster.kubectl(&["get", "pods", "-o", "name"]).unwrap();
    assert_eq!((names(&one), names(&two)), ("pod/only-here\n".into(), "pod/only-there\n".into()));
    drop(first);
    one.stop().unwrap();
    // What is shared by the machine was left alone: the other's pod runs on and can be reached.
    assert_eq!(two.kubectl(&["exec", "only-there", "--", "echo", "still"]).unwrap(), "still\n");
    drop(second);
    two.stop().unwrap();
}

const KILLED: &str = "CRABLET_TEST_CLUSTER_TO_BE_KILLED";

/// Not a test by itself: the process that the next one kills.
#[test]
fn helper_with_a_cluster_that_waits_to_be_killed() {
    if std::env::var_os(KILLED).is_none() {
        return;
    }
    let (cluster, _node) = start().expect("the parent checked");
    run_pod(&cluster, "orphan");
    println!("\nready {} {}", cluster.dir().display(), cluster.network().bridge());
    std::thread::park();
}

#[test]
fn what_a_killed_run_left_of_a_cluster_is_swept() {
    if !cluster::is_under_test() {
        return;
    }
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "helper_with_a_cluster_that_waits_to_be_killed", "--nocapture"]).env(KILLED, "1");
    let mut helper = helper.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ready = lines.into_iter().find_map(|line| line.strip_prefix("ready ").map(str::to_owned));
    let ready = ready.expect("the helper's cluster comes up");
    let (folder, bridge) = ready.split_once(' ').unwrap();
    let left = processes_of(folder);
    assert!(left.len() >= 6, "a control plane, a kubelet and a runtime: {left:?}");
    helper.kill().unwrap();
    helper.wait().unwrap();

    scratch::sweep().unwrap();
    assert!(!Path::new(folder).exists());
    assert!(!Path::new("/sys/class/net").join(bridge).exists());
    // Someone else may be sweeping the same folder (another test's start): its last steps may be a moment away.
    let all_gone = || left.iter().all(|process| !process.is_alive());
    assert!(wait::until(Deadline::after(Duration::from_secs(10)), all_gone));
    assert_eq!(cgroups_of(bridge), Vec::<PathBuf>::new());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(folder), "{mounts}");
}

/// Everything that runs with the folder in its command line.
fn processes_of(folder: &str) -> Vec<ProcessId> {
    let names_it =
        |process: &ProcessId| process::command_line(*process).iter().any(|word| word.contains(folder));
    process::all().into_iter().filter(names_it).collect()
}

/// The cgroups of a cluster's kubelet, named after the network with the bridge's number.
fn cgroups_of(bridge: &str) -> Vec<PathBuf> {
    let name = format!("crablet-testbed-{}", bridge.trim_start_matches("crab"));
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    hierarchies.map(|hierarchy| hierarchy.join(&name)).filter(|cgroup| cgroup.exists()).collect()
}

//! A machine becomes a node by `kubeadm join`, with upstream's kubelet.

use std::fs;
use std::path::Path;

use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet};
use crablet_testbed::kubeadm::join::join;
use crablet_testbed::{Flavor, cluster, images, kube};

/// What kubeadm writes, at places that cannot be chosen.
const FILES: [&str; 2] = ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml"];

#[test]
fn a_machine_joins_and_runs_a_pod() {
    if !cluster::is_under_test() || !kube::has(&[kube::KUBEADM]) {
        return;
    }
    let before = FILES.map(|file| Path::new(file).exists());
    let cluster = Cluster::start(ClusterOptions::new(Flavor::Debian)).unwrap_or_else(|e| panic!("{e:#}"));
    let node = join(&cluster, &Kubelet::Upstream, "joined").unwrap_or_else(|e| panic!("{e:#}"));
    assert!(node.said().contains("This node has joined the cluster"), "{}", node.said());
    assert!(!node.etc().join("bootstrap-kubelet.conf").exists(), "the token is still there");
    let kubeconfig = fs::read_to_string(node.etc().join("kubelet.conf")).unwrap();
    assert!(kubeconfig.contains("kubelet-client-current.pem"), "{kubeconfig}");
    let image = format!("--image={}", images::WEB);
    cluster.kubectl(&["run", "web", &image, "--image-pull-policy=Never"]).unwrap();
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=120s"]).unwrap();
    cluster.kubectl(&["delete", "pod", "web", "--grace-period=1", "--timeout=60s"]).unwrap();
    drop(node);
    cluster.stop().unwrap_or_else(|e| panic!("{e:#}"));
    // They were the cluster's own, and went with it.
    assert_eq!(FILES.map(|file| Path::new(file).exists()), before);
}

//! Machines that become nodes by kubeadm.
//!
//! Here is what `kubeadm init` leaves in a cluster so that machines may join with a token, made by kubeadm's own phases:
//! the cluster's description, the kubelets' configuration, rules for those who have a token, and how a stranger knows the
//! cluster. [`join`] makes this very machine a node; a virtual one is another way (see [`crate::vm`]).

pub mod join;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use crate::cluster::{API_PORT, Cluster};
use crate::kube;
use crate::process::output_of;

/// Builds kubeadm if it is missing, and says where it is.
pub fn ensure() -> Result<PathBuf> {
    Ok(kube::ensure(&[kube::KUBEADM])?.join(kube::KUBEADM.name))
}

/// Prepares the cluster for machines that join, and gives the command for them: `kubeadm join …`.
pub fn invite(cluster: &Cluster) -> Result<String> {
    let config = cluster.dir().join("kubeadm.yaml");
    fs::write(&config, configuration(cluster))?;
    let kubeadm = ensure()?;
    let run = |args: &[&str]| {
        let mut command = Command::new(&kubeadm);
        command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
        output_of(command.arg("--config").arg(&config))
    };
    run(&["init", "phase", "upload-config", "all"])?;
    run(&["init", "phase", "bootstrap-token", "--skip-token-print"])?;
    Ok(run(&["token", "create", "--print-join-command"])?.trim().to_owned())
}

/// Three documents; JSON is YAML enough.
fn configuration(cluster: &Cluster) -> String {
    let network = cluster.network();
    let address = network.gateway();
    let api = "kubeadm.k8s.io/v1beta4";
    let documents = [
        json!({
            "apiVersion": api,
            "kind": "InitConfiguration",
            "localAPIEndpoint": { "advertiseAddress": address, "bindPort": API_PORT },
            "nodeRegistration": { "name": "control-plane", "criSocket": cluster.containerd().endpoint() },
        }),
        json!({
            "apiVersion": api,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": kube::VERSION,
            "controlPlaneEndpoint": format!("{address}:{API_PORT}"),
            "networking": { "serviceSubnet": network.service_subnet() },
        }),
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            // The API server trusts the cluster's authority only.
            "serverTLSBootstrap": true,
        }),
    ];
    documents.map(|document| format!("{document:#}\n")).join("---\n")
}

//! The node itself: its object, its port, and what happens when all pods are to leave it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::NodeOptions;
use crablet_testbed::cluster::pki::Identity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};

use super::support::{QUIET, Room, ensure_has, kubelet, shell_pod, template};

const KUBELET_PORT: u16 = 10250;

/// A node with a label and a taint of its own; the taint keeps nobody away who has nowhere else to go.
pub fn options() -> NodeOptions {
    NodeOptions {
        flags: vec![
            "--node-labels=example.com/colour=blue".into(),
            "--register-with-taints=example.com/quiet=yes:PreferNoSchedule".into(),
        ],
        ..NodeOptions::new(kubelet())
    }
}

pub fn the_node_is_described(room: &Room<'_>) -> Result<()> {
    let node = room.get("node/node")?;
    let labels = &node["metadata"]["labels"];
    for (label, value) in
        [("example.com/colour", "blue"), ("kubernetes.io/hostname", "node"), ("kubernetes.io/os", "linux")]
    {
        ensure!(labels[label] == value, "label `{label}` is not {value}: {labels:#}");
    }
    let taint = json!({ "key": "example.com/quiet", "value": "yes", "effect": "PreferNoSchedule" });
    ensure!(node["spec"]["taints"] == json!([taint]), "taints are {:#}", node["spec"]);
    let status = &node["status"];
    let gateway = room.cluster.network().gateway().to_string();
    let addresses =
        json!([{ "type": "InternalIP", "address": gateway }, { "type": "Hostname", "address": "node" }]);
    ensure!(status["addresses"] == addresses, "addresses are {:#}", status["addresses"]);
    let mut conditions = Vec::new();
    for condition in status["conditions"].as_array().context("no conditions")? {
        ensure!(
            condition["message"].is_string() && condition["lastHeartbeatTime"].is_string(),
            "{condition:#}"
        );
        conditions.push([&condition["type"], &condition["status"], &condition["reason"]]);
    }
    let expected = json!([
        ["MemoryPressure", "False", "KubeletHasSufficientMemory"],
        ["DiskPressure", "False", "KubeletHasNoDiskPressure"],
        ["PIDPressure", "False", "KubeletHasSufficientPID"],
        ["Ready", "True", "KubeletReady"],
    ]);
    ensure!(json!(conditions) == expected, "conditions are {:#}", status["conditions"]);
    for amount in ["cpu", "memory", "ephemeral-storage", "pods"] {
        for (what, amounts) in [("capacity", &status["capacity"]), ("allocatable", &status["allocatable"])] {
            ensure!(amounts[amount].is_string(), "no `{amount}` in {what}: {amounts:#}");
        }
    }
    ensure!(status["capacity"]["pods"] == "110", "{:#}", status["capacity"]);
    let info = &status["nodeInfo"];
    let told = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(told("kernelVersion") == kernel.trim(), "{info:#}");
    ensure!(told("kubeletVersion").starts_with("v1.36."), "{info:#}");
    ensure_has(&told("containerRuntimeVersion"), &["containerd://"])?;
    ensure!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == KUBELET_PORT, "{status:#}");
    let names = status["images"].to_string();
    ensure_has(&names, &[crablet_testbed::images::WEB, crablet_testbed::images::BUSYBOX])?;
    for reason in ["Starting", "NodeHasSufficientMemory", "NodeReady"] {
        room.event("node/node", reason)?;
    }
    ensure_has(&room.kubectl(&["describe", "node", "node"])?, &["KubeletReady", "Allocatable"])
}

/// The lease is the heartbeat; a status that says nothing new is sent every few minutes only.
pub fn the_lease_is_renewed_and_no_more(room: &Room<'_>) -> Result<()> {
    room.kubectl(&["--namespace=kube-node-lease", "wait", "lease/node", "--for=create", "--timeout=60s"])?;
    let shown = "jsonpath={.spec.holderIdentity} {.spec.leaseDurationSeconds} {.spec.renewTime}{\"\\n\"}";
    let mut leases =
        room.follow(&["--namespace=kube-node-lease", "get", "lease", "node", "--watch", "-o", shown])?;
    let mut last = leases.until(|line| line.starts_with("node 40 "))?;
    let mut renewed = || -> Result<()> {
        last = leases.until(|line| line.starts_with("node 40 ") && *line > *last)?;
        Ok(())
    };
    // By then the node is what it will be.
    renewed()?;
    let written = "jsonpath={.status.conditions[*].lastHeartbeatTime}";
    let before = room.kubectl(&["get", "node", "node", "-o", written])?;
    renewed()?;
    renewed()?;
    let after = room.kubectl(&["get", "node", "node", "-o", written])?;
    ensure!(
        before == after,
        "the status of a node that does not change was written at {before} and at {after}"
    );
    Ok(())
}

pub fn the_kubelets_port_knows_its_callers(room: &Room<'_>) -> Result<()> {
    ensure!(
        room.kubectl(&["get", "--raw", "/api/v1/nodes/node/proxy/healthz"])? == "ok",
        "/healthz is not ok"
    );
    let pods = room.kubectl(&["get", "--raw", "/api/v1/nodes/node/proxy/pods"])?;
    ensure!(serde_json::from_str::<Value>(&pods)?["kind"] == "PodList", "{pods}");
    let nobody = room.cluster.pki().cluster.client("nobody", Some("nothing"))?;
    let friend = room.cluster.pki().cluster.client("friend", Some("system:masters"))?;
    for (who, identity, path, status) in [
        ("who shows no certificate", None, "/pods", "401"),
        ("who may do nothing", Some(&nobody), "/pods", "403"),
        ("who may do nothing", Some(&nobody), "/containerLogs/a/b/c", "403"),
        ("an administrator", Some(&friend), "/pods", "200"),
    ] {
        let line = ask(room, identity, path)?;
        ensure!(line.split(' ').nth(1) == Some(status), "{who} gets `{line}` for {path}, not {status}");
    }
    Ok(())
}

/// The first line of the answer of the kubelet's own port.
fn ask(room: &Room<'_>, identity: Option<&Identity>, path: &str) -> Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(room.cluster.pki().ca_file())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
        )?,
    };
    let gateway = room.cluster.network().gateway();
    let session =
        rustls::ClientConnection::new(Arc::new(config), ServerName::from(std::net::IpAddr::from(gateway)))?;
    let socket = TcpStream::connect((gateway, KUBELET_PORT))?;
    socket.set_read_timeout(Some(super::support::PATIENCE))?;
    let mut stream = rustls::StreamOwned::new(session, socket);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).context("no answer")?;
    Ok(String::from_utf8_lossy(&start).into_owned())
}

pub fn a_drained_node_is_empty(room: &Room<'_>) -> Result<()> {
    room.create(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "tenant" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "tenant" } },
            "template": template("tenant", QUIET),
        },
    }))?;
    room.wait("deployment/tenant", "condition=Available")?;
    let names = room.kubectl(&["get", "pods", "-o", "name"])?;
    let flags = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"];
    room.kubectl(&[&["drain", "node"], flags.as_slice()].concat())?;
    let left = room.kubectl(&[
        "get",
        "pods",
        "--field-selector=spec.nodeName=node",
        "--all-namespaces",
        "-o",
        "name",
    ])?;
    ensure!(left.is_empty(), "after the drain there is still:\n{left}");
    for name in names.lines() {
        let pod = name.trim_start_matches("pod/");
        ensure!(room.running(pod)?.is_empty(), "a container of {pod} still runs");
    }
    room.kubectl(&["uncordon", "node"])?;
    room.wait("deployment/tenant", "condition=Available")?;
    room.delete(&["deployment", "tenant", "--cascade=foreground"])?;
    Ok(())
}

pub fn a_taint_drives_pods_away(room: &Room<'_>) -> Result<()> {
    let mut stays = shell_pod("stays", QUIET);
    stays["spec"]["tolerations"] = json!([{ "key": "example.com/smoke", "operator": "Exists" }]);
    room.create(&stays)?;
    room.create(&shell_pod("leaves", QUIET))?;
    room.wait_ready("stays")?;
    room.wait_ready("leaves")?;
    let before = room.containers("stays")?;
    room.kubectl(&["taint", "node", "node", "example.com/smoke=yes:NoExecute"])?;
    room.wait("pod/leaves", "delete")?;
    room.kubectl(&["taint", "node", "node", "example.com/smoke:NoExecute-"])?;
    ensure!(room.running("leaves")?.is_empty(), "the container outlives its pod");
    ensure!(room.containers("stays")? == before, "a pod that tolerates the taint was touched");
    room.delete(&["pod", "stays"])?;
    Ok(())
}

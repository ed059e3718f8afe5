//! What makes services work: kube-proxy beside the kubelet, CoreDNS in a pod.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::control_plane::Ground;
use super::{Cluster, DNS_HOST, SERVICE_DOMAIN};
use crate::daemon::Daemon;
use crate::{coredns, images, kube, scratch};

/// How long the name server's pod may take.
const READY: Duration = Duration::from_secs(180);

/// The archive of CoreDNS's image.
pub fn coredns_image() -> Result<PathBuf> {
    images::coredns(&coredns::ensure()?)
}

/// Starts kube-proxy on the node. Its rules are the whole machine's: it is one cluster's business at a time.
pub fn start_proxy(ground: &Ground<'_>, node: &str) -> Result<Daemon> {
    if scratch::others(ground.scratch).iter().any(|other| other.proxy_file().exists()) {
        bail!(
            "another cluster with kube-proxy runs on this machine, and their rules would mix\nhint: stop that one first"
        );
    }
    let address = ground.network.gateway();
    let kubeconfig = ground.kubeconfig("kube-proxy", "system:kube-proxy", None)?;
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": address,
        "healthzBindAddress": format!("{address}:10256"),
        "metricsBindAddress": format!("{address}:10249"),
        "clusterCIDR": ground.network.subnet(),
        "hostnameOverride": node,
        "clientConnection": { "kubeconfig": kubeconfig },
        // Limits of the whole machine stay as they are.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        // Node ports on the loopback address would need a sysctl of the whole machine.
        "iptables": { "localhostNodePorts": false },
    });
    let path = ground.home.join("kube-proxy.yaml");
    fs::write(&path, format!("{config:#}\n"))?;
    let binary = ground.bin.join(kube::PROXY.name);
    // For the removal, which may be the next run's.
    fs::write(ground.scratch.proxy_file(), binary.to_string_lossy().as_bytes())?;
    let mut command = Command::new(binary);
    command.arg(format!("--config={}", path.display()));
    Daemon::start(ground.scratch, "kube-proxy", &mut command)
}

/// Puts CoreDNS into the cluster and waits until it serves.
pub fn start_coredns(cluster: &Cluster) -> Result<()> {
    let mut apply = cluster.kubectl_command();
    apply.args(["apply", "-f", "-"]);
    let mut child = apply.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let objects = json!({ "apiVersion": "v1", "kind": "List", "items": objects(cluster) });
    child.stdin.take().context("the pipe was asked for")?.write_all(objects.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("CoreDNS cannot be put into the cluster: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let timeout = format!("--timeout={}s", READY.as_secs());
    cluster
        .kubectl(&["--namespace=kube-system", "rollout", "status", "deployment/coredns", &timeout])
        .context("CoreDNS does not come up")?;
    Ok(())
}

fn objects(cluster: &Cluster) -> Vec<Value> {
    let labels = json!({ "k8s-app": "kube-dns" });
    let meta = |name: &str| json!({ "name": name, "namespace": "kube-system", "labels": labels });
    let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["list", "watch"] });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns") }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "system:coredns" },
            "rules": [
                rule("", &["endpoints", "services", "pods", "namespaces"]),
                rule("discovery.k8s.io", &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "system:coredns" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns" },
            "subjects": [{ "kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system" }],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta("coredns"),
            "data": { "Corefile": corefile() },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta("kube-dns"),
            "spec": {
                "selector": labels,
                "clusterIP": cluster.network().service_address(DNS_HOST),
                "ports": [
                    { "name": "dns", "port": 53, "protocol": "UDP" },
                    { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
                ],
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("coredns"),
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod_spec() },
            },
        }),
    ]
}

fn pod_spec() -> Value {
    json!({
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "containers": [{
            "name": "coredns",
            "image": images::COREDNS,
            "imagePullPolicy": "Never",
            "args": ["-conf", "/etc/coredns/Corefile"],
            "ports": [
                { "containerPort": 53, "name": "dns", "protocol": "UDP" },
                { "containerPort": 53, "name": "dns-tcp", "protocol": "TCP" },
            ],
            "readinessProbe": { "httpGet": { "path": "/ready", "port": 8181 } },
            "livenessProbe": { "httpGet": { "path": "/health", "port": 8080 }, "initialDelaySeconds": 60 },
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns", "readOnly": true }],
        }],
        "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
    })
}

/// No forwarding: there is no name server beyond the machine that tests could rely on.
fn corefile() -> String {
    format!(
        ".:53 {{\n    errors\n    health\n    ready\n    kubernetes {SERVICE_DOMAIN} in-addr.arpa ip6.arpa {{\n        \
         pods insecure\n        fallthrough in-addr.arpa ip6.arpa\n    }}\n    cache 30\n    loadbalance\n}}\n"
    )
}

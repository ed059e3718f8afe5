//! Scenarios: a pod in, what the runtime is asked for out.

mod container;
mod environment;
mod fields;
mod sandbox;
mod volumes;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crablet_model::runtime::{ContainerConfig, SandboxConfig};
use serde_json::{Value, json};

use super::super::facts::{NodeFacts, PreparedImage, SwapControl};
use super::*;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn pod(spec: Value) -> api::Pod {
    let pod = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1",
            "labels": {"app": "web"}, "annotations": {"kubernetes.io/config.source": "file", "note": "a \"b\"\nc"},
        },
        "spec": spec,
    });
    serde_json::from_value(pod).expect("a pod")
}

fn one(container: Value) -> api::Pod {
    let mut spec = json!({"nodeName": "n1", "terminationGracePeriodSeconds": 30, "securityContext": {}});
    spec["containers"] = json!([container]);
    pod(spec)
}

const RESOLV_CONF: &str = "nameserver 192.0.2.53\nsearch corp.test\noptions ndots:2 rotate\n";

fn node() -> NodeFacts {
    NodeFacts {
        selinux_enabled: true,
        hugepage_sizes: vec!["2MB".to_owned()],
        swap_control: SwapControl::Together,
        name: "n1".to_owned(),
        host_ips: vec!["192.0.2.1".parse().expect("an address")],
        own_ips: vec!["192.0.2.1".parse().expect("an address")],
        memory_capacity: 4 << 30,
        allocatable_memory: 4 << 30,
        allocatable_milli_cpu: 3500,
        pod_logs_dir: "/var/log/pods".to_owned(),
        cluster_dns: strings(&["10.96.0.10"]),
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: parse_resolv_conf(RESOLV_CONF).ok(),
        cpu_cfs_quota: true,
        ..NodeFacts::default()
    }
}

fn image() -> PreparedImage {
    PreparedImage { image_ref: "sha256:abc".to_owned(), uid: None, username: String::new() }
}

fn sandbox_of(spec: Value) -> (SandboxConfig, Vec<String>) {
    let (config, events) = sandbox_config(&pod(spec), &node(), 2, &Placement::default()).expect("a sandbox");
    (config, events.into_iter().map(|e| format!("{} {} {}", e.kind, e.reason, e.message)).collect())
}

fn container_with(pod: &api::Pod, image: &PreparedImage) -> Result<ContainerConfig, ContainerError> {
    configure(pod, image, &node())
}

fn container_on(node: &NodeFacts, container: Value) -> ContainerConfig {
    configure(&one(container), &image(), node).expect("a container")
}

fn configure(
    pod: &api::Pod,
    image: &PreparedImage,
    node: &NodeFacts,
) -> Result<ContainerConfig, ContainerError> {
    Around::default().with_inputs(pod, image, node, container_config)
}

/// What lies ready for a container.
#[derive(Default)]
struct Around {
    objects: EnvObjects,
    volumes: BTreeMap<String, MountedVolume>,
    sub_paths: BTreeMap<usize, String>,
    image_volumes: BTreeMap<String, String>,
    placement: Placement,
    target_id: Option<String>,
}

impl Around {
    fn with_inputs<T>(
        &self,
        pod: &api::Pod,
        image: &PreparedImage,
        node: &NodeFacts,
        ask: impl FnOnce(&ContainerInputs<'_>) -> T,
    ) -> T {
        let ips: [IpAddr; 2] = ["10.0.0.7", "fd00::7"].map(|ip| ip.parse().expect("an address"));
        ask(&ContainerInputs {
            objects: &self.objects,
            volumes: &self.volumes,
            sub_paths: &self.sub_paths,
            image_volumes: &self.image_volumes,
            placement: &self.placement,
            target_id: self.target_id.as_deref(),
            pod,
            container: &pod.spec.as_ref().expect("a spec").containers[0],
            attempt: 4,
            image,
            node,
            pod_ips: &ips,
            etc_hosts: Some("/var/lib/kubelet/pods/u1/etc-hosts"),
            termination_file: Some("/var/lib/kubelet/pods/u1/containers/c/0a1b2c3d"),
        })
    }

    fn container(&self, container: Value) -> Result<ContainerConfig, String> {
        let made = self.with_inputs(&one(container), &image(), &node(), container_config);
        made.map_err(|error| error.to_string())
    }

    fn sub_paths(&self, container: Value) -> Result<Vec<SubPath>, String> {
        self.with_inputs(&one(container), &image(), &node(), sub_paths).map_err(|error| error.to_string())
    }
}

fn container_of(container: Value) -> ContainerConfig {
    container_with(&one(container), &image()).expect("a container")
}

fn refusal(container: Value) -> String {
    container_with(&one(container), &image()).expect_err("a refusal").to_string()
}

#[test]
fn a_log_link_fits_into_a_file_name() {
    let id = PodRef::new("web", "shop", "u1");
    assert_eq!(log_link_name(&id, "c", "0123"), "web_shop_c-0123.log");
    let id = PodRef::new(&"ü".repeat(200), "shop", "u1");
    let name = log_link_name(&id, "c", "0123");
    assert!(name.len() <= 255 && name.ends_with("ü.log"), "{name}");
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a manifest says, it becomes a configuration or a refusal.
        #[test]
        fn nothing_panics(text in "(\\$|\\(|\\)|A|ü| ){0,12}", name in "[a-zü.-]{0,80}", divisor in "[0-9a-zA-Z.-]{0,6}", path in "[a-z.'\\[\\]]{0,20}") {
            let mut pod = one(json!({
                "name": "c", "command": [text],
                "env": [
                    {"name": "A", "value": text},
                    {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": divisor}}},
                    {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}},
                ],
            }));
            pod.metadata.name = Some(name);
            let _ = container_with(&pod, &image());
            let _ = sandbox_config(&pod, &NodeFacts::default(), u32::MAX, &Placement::default());
            let _ = parse_resolv_conf(&text);
            pod.spec = None;
            prop_assert!(sandbox_config(&pod, &node(), 0, &Placement::default()).is_err());
            prop_assert!(hosts_file(&pod, &[], &node(), None).is_err());
        }
    }
}

//! The whole status, one setter after the other.

use crablet_model::api;
use crablet_model::events::NodeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::addresses::set_addresses;
use super::compare::status_changed;
use super::conditions::{PRESSURES, set_pressure, set_ready, status_event};
use super::facts::NodeFacts;
use super::resources::set_resources;

pub const OS: &str = "linux";
const MAX_NAMES_PER_IMAGE: usize = 5;

/// What this program was built for, in the API's words.
pub fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "amd64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else if cfg!(target_arch = "x86") {
        "386"
    } else if cfg!(target_arch = "powerpc64") {
        "ppc64le"
    } else if cfg!(target_arch = "s390x") {
        "s390x"
    } else if cfg!(target_arch = "arm") {
        "arm"
    } else {
        "unknown"
    }
}

/// What came of setting a status besides the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusOutcome {
    /// To be told once the status is known to the API server.
    pub events: Vec<NodeEvent>,
    /// What could not be set; the rest of the status was.
    pub errors: Vec<String>,
    /// Whether the Node says anything that it did not say before.
    pub changed: bool,
}

/// The Node as it should be now. Only what is the node agent's own is changed.
pub fn update_node(old: &api::Node, facts: &NodeFacts<'_>) -> (api::Node, StatusOutcome) {
    let mut node = old.clone();
    let mut labelled = false;
    let labels = node.metadata.labels.get_or_insert_default();
    for (key, value) in [("kubernetes.io/os", OS), ("kubernetes.io/arch", architecture())] {
        labelled |= labels.insert(key.to_owned(), value.to_owned()).as_deref() != Some(value);
    }
    let mut outcome = set_status(&mut node, facts);
    let none = api::NodeStatus::default();
    outcome.changed = labelled
        || status_changed(old.status.as_ref().unwrap_or(&none), node.status.as_ref().unwrap_or(&none));
    (node, outcome)
}

/// Sets everything. A setter that fails never keeps the others from their work.
pub fn set_status(node: &mut api::Node, facts: &NodeFacts<'_>) -> StatusOutcome {
    let mut outcome = StatusOutcome::default();
    let name = &facts.settings.node_name;
    outcome.errors.extend(set_addresses(node, facts.settings, facts.network).err());
    let status = node.status.get_or_insert_default();
    outcome.events.extend(set_machine(status, facts));
    set_resources(status, facts);
    status.daemon_endpoints = Some(api::NodeDaemonEndpoints {
        kubelet_endpoint: Some(api::DaemonEndpoint { port: i32::from(facts.settings.port) }),
    });
    status.images = filled(images(facts));
    set_runtime(status, facts);

    let now = Time(jiff::Timestamp::from_second(facts.now.as_second()).unwrap_or(facts.now));
    let mut tell =
        |event: Option<&'static str>| outcome.events.extend(event.map(|event| status_event(name, event)));
    for pressure in &PRESSURES {
        // Nothing measures pressure yet: eviction does.
        tell(set_pressure(status, pressure, false, &now));
    }
    tell(set_ready(status, facts, &now));
    if let Some(volumes) = facts.volumes_in_use {
        let mut volumes = volumes.to_vec();
        volumes.sort();
        volumes.dedup();
        status.volumes_in_use = filled(volumes);
    }
    let mut declared = facts.settings.declared_features.clone();
    declared.sort();
    status.declared_features = filled(declared);
    outcome
}

fn set_machine(status: &mut api::NodeStatus, facts: &NodeFacts<'_>) -> Option<NodeEvent> {
    let info = status.node_info.get_or_insert_default();
    info.operating_system = OS.to_owned();
    info.kubelet_version.clone_from(&facts.settings.kubelet_version);
    info.kube_proxy_version = String::new();
    architecture().clone_into(&mut info.architecture);
    if let Some(version) = &facts.runtime.version {
        info.container_runtime_version.clone_from(version);
    }
    let machine = facts.machine?;
    let rebooted = !info.boot_id.is_empty() && info.boot_id != machine.boot_id;
    info.boot_id.clone_from(&machine.boot_id);
    info.machine_id.clone_from(&machine.machine_id);
    info.system_uuid.clone_from(&machine.system_uuid);
    info.kernel_version.clone_from(&machine.kernel_version);
    info.os_image.clone_from(&machine.os_image);
    if machine.swap_bytes > 0 {
        info.swap = Some(api::NodeSwapStatus { capacity: i64::try_from(machine.swap_bytes).ok() });
    }
    rebooted.then(|| {
        let name = &facts.settings.node_name;
        NodeEvent::warning("Rebooted", format!("Node {name} has been rebooted, boot id: {}", machine.boot_id))
    })
}

fn images(facts: &NodeFacts<'_>) -> Vec<api::ContainerImage> {
    let most = usize::try_from(facts.settings.max_images).unwrap_or(usize::MAX);
    let mut largest: Vec<&api::ContainerImage> = facts.images.iter().collect();
    // Stable: images of one size stay in the order in which they came.
    largest.sort_by_key(|image| std::cmp::Reverse(image.size_bytes));
    let shown = largest.into_iter().take(most).map(|image| api::ContainerImage {
        // The API server knows no empty list: said with one, an image without a name would be news for ever.
        names: filled(image.names.iter().flatten().take(MAX_NAMES_PER_IMAGE).cloned().collect()),
        size_bytes: image.size_bytes,
    });
    shown.collect()
}

fn set_runtime(status: &mut api::NodeStatus, facts: &NodeFacts<'_>) {
    let mut handlers = facts.runtime.handlers.clone();
    handlers.sort();
    let handlers = handlers.into_iter().map(|handler| api::NodeRuntimeHandler {
        // The API server writes the empty name of the default handler out, and so it has to be said: else every look
        // at the Node would find a difference.
        name: Some(handler.name),
        features: Some(api::NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
            user_namespaces: Some(handler.user_namespaces),
        }),
    });
    status.runtime_handlers = filled(handlers.collect());
    if let Some(policy) = facts.runtime.supplemental_groups_policy {
        status.features = Some(api::NodeFeatures { supplemental_groups_policy: Some(policy) });
    }
}

fn filled<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

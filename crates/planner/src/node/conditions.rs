//! The pressure conditions and `Ready`.

use crablet_model::api::{NodeCondition, NodeStatus};
use crablet_model::events::NodeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::NodeFacts;
use super::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};

pub const READY: &str = "Ready";

/// What `Ready` says of a runtime that has not been heard of.
pub const RUNTIME_NOT_CHECKED: &str = "container runtime status check may not have completed yet";
pub const RUNTIME_DOWN: &str = "container runtime is down";
pub const NETWORK_UNKNOWN: &str = "network state unknown";
pub const CSI_NODE_NOT_INITIALIZED: &str = "CSINode is not yet initialized";
pub const SHUTTING_DOWN: &str = "node is shutting down";

/// A condition that says what the node lacks, in both its states: reason, message, event.
pub struct Pressure {
    pub type_: &'static str,
    pub under: [&'static str; 3],
    pub free: [&'static str; 3],
}

pub const PRESSURES: [Pressure; 3] = [
    Pressure {
        type_: "MemoryPressure",
        under: [
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            "NodeHasInsufficientMemory",
        ],
        free: [
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            "NodeHasSufficientMemory",
        ],
    },
    Pressure {
        type_: "DiskPressure",
        under: ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
        free: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
    },
    Pressure {
        type_: "PIDPressure",
        under: [
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
            "NodeHasInsufficientPID",
        ],
        free: ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
    },
];

/// The event that a change of the node's state is told with.
pub fn status_event(node: &str, reason: &'static str) -> NodeEvent {
    NodeEvent::normal(reason, format!("Node {node} status is now: {reason}"))
}

/// Sets a pressure condition. Reason, message and transition time change only with its status.
pub fn set_pressure(
    status: &mut NodeStatus,
    pressure: &Pressure,
    under: bool,
    now: &Time,
) -> Option<&'static str> {
    let conditions = status.conditions.get_or_insert_default();
    let at = conditions.iter().position(|c| c.type_ == pressure.type_).unwrap_or_else(|| {
        conditions.push(NodeCondition {
            type_: pressure.type_.to_owned(),
            status: "Unknown".to_owned(),
            ..NodeCondition::default()
        });
        conditions.len() - 1
    });
    let condition = &mut conditions[at];
    condition.last_heartbeat_time = Some(now.clone());
    let (wanted, [reason, message, event]) =
        if under { ("True", pressure.under) } else { ("False", pressure.free) };
    if condition.status == wanted {
        return None;
    }
    condition.status = wanted.to_owned();
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message.to_owned());
    condition.last_transition_time = Some(now.clone());
    Some(event)
}

/// Sets `Ready`, last of the conditions where it is new. The event is for a change, not for a beginning.
pub fn set_ready(status: &mut NodeStatus, facts: &NodeFacts<'_>, now: &Time) -> Option<&'static str> {
    let errors = not_ready_because(status, facts);
    let mut ready = NodeCondition {
        type_: READY.to_owned(),
        status: if errors.is_empty() { "True" } else { "False" }.to_owned(),
        reason: Some(if errors.is_empty() { "KubeletReady" } else { "KubeletNotReady" }.to_owned()),
        message: Some(aggregate(&errors).unwrap_or_else(|| "kubelet is posting ready status".to_owned())),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    let conditions = status.conditions.get_or_insert_default();
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == READY) else {
        conditions.push(ready);
        return None;
    };
    let same = old.status == ready.status;
    if same {
        ready.last_transition_time = old.last_transition_time.take();
    }
    *old = ready;
    (!same).then_some(if errors.is_empty() { "NodeReady" } else { "NodeNotReady" })
}

fn not_ready_because(status: &NodeStatus, facts: &NodeFacts<'_>) -> Vec<String> {
    let runtime = facts.runtime;
    let mut errors = Vec::new();
    if !runtime.checked {
        errors.push(RUNTIME_NOT_CHECKED.to_owned());
    }
    errors.extend(runtime.errors.iter().cloned());
    match &runtime.network_error {
        Some(error) => errors.push(error.clone()),
        None if !runtime.checked => errors.push(NETWORK_UNKNOWN.to_owned()),
        None => {}
    }
    errors.extend(facts.storage_error.map(str::to_owned));
    if runtime.shutting_down {
        errors.push(SHUTTING_DOWN.to_owned());
    }
    let wanted = [
        Some(CPU),
        Some(MEMORY),
        Some(PODS),
        facts.settings.local_storage_isolation.then_some(EPHEMERAL_STORAGE),
    ];
    let has = |name: &str| status.capacity.as_ref().is_some_and(|capacity| capacity.contains_key(name));
    let missing: Vec<_> = wanted.into_iter().flatten().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        errors.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    errors
}

/// Several errors as one text, each once, as upstream joins them.
pub fn aggregate(errors: &[String]) -> Option<String> {
    let mut unique: Vec<&str> = Vec::new();
    for error in errors {
        if !unique.contains(&error.as_str()) {
            unique.push(error);
        }
    }
    match unique[..] {
        [] => None,
        [one] => Some(one.to_owned()),
        _ => Some(format!("[{}]", unique.join(", "))),
    }
}

//! What a pod takes of the node.

use crablet_model::api;
use crablet_model::names::{annotation, source};
use crablet_model::qos::{QosClass, qos_class};

use super::amounts::{Amounts, reclaimed, requested};
use super::ports::{HostPort, host_ports};
use super::resize::as_it_counts;

/// Priorities from here on belong to pods without which a cluster or node does not work.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;
/// Upstream's default, for a pod that says nothing.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// All that is kept of a pod to judge others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// As the scheduler counts it.
    pub requested: Amounts,
    /// As it is counted when somebody has to make room.
    pub reclaimed: Amounts,
    pub ports: Vec<HostPort>,
    pub priority: Option<i32>,
    pub critical: bool,
    pub is_static: bool,
    pub qos: QosClass,
    /// How long its containers have to end.
    pub grace_seconds: i64,
}

impl Claim {
    pub fn of(pod: &api::Pod) -> Self {
        let empty = api::PodSpec::default();
        let raised = as_it_counts(pod);
        let spec = raised.as_ref().or(pod.spec.as_ref()).unwrap_or(&empty);
        let annotations = pod.metadata.annotations.as_ref();
        let noted = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
        let is_static = noted(annotation::CONFIG_SOURCE).is_some_and(|from| from != source::API);
        let is_system = spec.priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL);
        Self {
            requested: requested(spec, |_| true),
            reclaimed: reclaimed(spec),
            ports: host_ports(spec),
            priority: spec.priority,
            critical: is_static || noted(annotation::CONFIG_MIRROR).is_some() || is_system,
            is_static,
            qos: qos_class(pod.spec.as_ref().unwrap_or(spec)),
            grace_seconds: spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS),
        }
    }

    /// Whether this pod may make the other one go.
    pub fn outranks(&self, other: &Self) -> bool {
        let higher = matches!((self.priority, other.priority), (Some(own), Some(its)) if own > its);
        (self.critical && !other.critical) || higher
    }
}

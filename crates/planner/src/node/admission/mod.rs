//! Whether this node lets a pod run, in upstream's order and words.
//!
//! ```text
//!  sysctls ─> operating system ─> groups policy ─> resources, affinity, name, ports, taints ─> AppArmor ─> features
//!                                                       │ only resources are short, and the pod is critical
//!                                                       └─> preemption: who makes room
//! ```
//!
//! | module | decides |
//! |---|---|
//! | [`claim`] | what a pod takes of the node: the little that is kept of each pod that runs |
//! | [`amounts`] | a pod's requests, summed |
//! | `fit` | resources |
//! | `affinity` | node selector and node affinity |
//! | `taints` | taints that keep pods from running |
//! | `ports` | ports of the host |
//! | [`sysctls`] | kernel settings that pods may change |
//! | `apparmor` | profiles that the host must be able to enforce |
//! | [`features`] | what not every node can do, and a pod needs |
//! | [`resize`] | whether a pod that runs may have other resources, and whose turn it is |
//! | `preemption` | who makes room for a critical pod |
//!
//! A pod is judged once, before anything of it is begun.

mod affinity;
pub mod amounts;
mod apparmor;
pub mod claim;
pub mod features;
mod fit;
mod ports;
mod preemption;
pub mod resize;
pub mod sysctls;
mod taints;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crablet_model::quantity::Quantity;
use crablet_model::{PodUid, api};

pub use affinity::terms_match;
pub use claim::Claim;
pub use resize::{Answer, ResizeRules, Turn, judge_resize};
pub use sysctls::Sysctls;

const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";

/// The node, as far as it decides who may run on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Empty before anything is known of the node: then nobody is judged.
    pub allocatable: BTreeMap<String, Quantity>,
    pub taints: Vec<api::Taint>,
    pub supplemental_groups_policy: bool,
    pub sysctls: Sysctls,
    /// The kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Tolerations may compare numbers: the gate `TaintTolerationComparisonOperators`.
    pub toleration_comparisons: bool,
    /// What the node says that it can do; `None` where nodes do not say: the gate `NodeDeclaredFeatures`.
    pub declared_features: Option<Vec<String>>,
    pub resizes: ResizeRules,
}

impl AdmissionNode {
    pub fn is_known(&self) -> bool {
        !self.allocatable.is_empty()
    }
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admitted,
    /// Admitted, and these end first: they are in its way and matter less.
    AdmittedInsteadOf(Vec<PodUid>),
    Rejected(Rejection),
}

/// Why a pod does not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: Cow<'static, str>,
    pub message: String,
    /// Only the node's labels are in its way. Who knows them by hearsay should look again before this is said.
    pub labels_only: bool,
}

impl Rejection {
    fn new(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), labels_only: false }
    }
}

/// One thing that is in a pod's way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    Short(fit::Shortage),
    /// Upstream's name of the rule, and its words.
    Rule(&'static str, &'static str),
}

impl Failure {
    fn rejection(&self) -> Rejection {
        match self {
            Self::Short(short) => Rejection::new(format!("OutOf{}", short.resource), short.to_string()),
            Self::Rule(name, words) => Rejection::new(*name, format!("Predicate {name} failed: {words}")),
        }
    }
}

/// Judges a pod beside the others that run or are about to.
pub fn judge(pod: &api::Pod, others: &BTreeMap<PodUid, Claim>, node: &AdmissionNode) -> Decision {
    let spec = pod.spec.as_ref();
    let checked = match spec {
        Some(spec) => node.sysctls.check(spec).and_then(|()| fits_the_system(pod, spec, node)),
        None => Ok(()),
    };
    if let Err(rejection) = checked {
        return Decision::Rejected(rejection);
    }
    let claim = Claim::of(pod);
    let victims = match room(pod, &claim, others, node) {
        Ok(victims) => victims,
        Err(rejection) => return Decision::Rejected(rejection),
    };
    let able = features::check(pod, node.declared_features.as_deref());
    match apparmor::check(pod, node.apparmor).and(able) {
        Err(rejection) => Decision::Rejected(rejection),
        Ok(()) if victims.is_empty() => Decision::Admitted,
        Ok(()) => Decision::AdmittedInsteadOf(victims),
    }
}

/// What no other pod's end would change.
fn fits_the_system(pod: &api::Pod, spec: &api::PodSpec, node: &AdmissionNode) -> Result<(), Rejection> {
    // A label of the pod, not its selector, as upstream v1.36 has it.
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if label.is_some_and(|os| os != OS) {
        return Err(Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != OS) {
        return Err(Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    let policy = spec.security_context.as_ref().and_then(|s| s.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !node.supplemental_groups_policy {
        return Err(Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
    }
    Ok(())
}

/// Whether there is room, or who makes it.
fn room(
    pod: &api::Pod,
    claim: &Claim,
    others: &BTreeMap<PodUid, Claim>,
    node: &AdmissionNode,
) -> Result<Vec<PodUid>, Rejection> {
    let mut failures = failures(pod, claim, others, node);
    if claim.critical && failures.iter().any(|f| matches!(f, Failure::Rule(..))) {
        // Nobody's end would help. As upstream, a critical pod is never told that resources are short.
        failures.retain(|f| matches!(f, Failure::Rule(..)));
    }
    let Some(first) = failures.first() else { return Ok(Vec::new()) };
    let shortages: Option<Vec<_>> = failures
        .iter()
        .map(|failure| match failure {
            Failure::Short(short) => Some(short.missing()),
            Failure::Rule(..) => None,
        })
        .collect();
    match shortages.filter(|_| claim.critical) {
        Some(missing) => preemption::victims(claim, others, missing).map_err(|error| {
            let text =
                format!("Unexpected error while attempting to recover from admission failure: {error}");
            Rejection::new("UnexpectedAdmissionError", text)
        }),
        None => {
            let labels_only = failures.iter().all(|failure| *failure == affinity::MISMATCH);
            Err(Rejection { labels_only, ..first.rejection() })
        }
    }
}

/// All that is in the pod's way, in upstream's order.
fn failures(
    pod: &api::Pod,
    claim: &Claim,
    others: &BTreeMap<PodUid, Claim>,
    node: &AdmissionNode,
) -> Vec<Failure> {
    let mut failures: Vec<_> =
        fit::shortages(pod, others, &node.allocatable).into_iter().map(Failure::Short).collect();
    let Some(spec) = pod.spec.as_ref() else { return failures };
    if !affinity::matches(spec, node) {
        failures.push(affinity::MISMATCH);
    }
    if spec.node_name.as_ref().is_some_and(|name| !name.is_empty() && *name != node.name) {
        failures.push(Failure::Rule("NodeName", "node(s) didn't match the requested node name"));
    }
    if ports::conflict(&claim.ports, others.values().flat_map(|other| &other.ports)) {
        failures
            .push(Failure::Rule("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    if !claim.is_static && !taints::tolerated(spec, node) {
        failures.push(Failure::Rule("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    failures
}

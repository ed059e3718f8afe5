//! What a claim's status says of its size, and how it is changed, equal to upstream's (v1.36).

use std::collections::BTreeMap;

use crablet_model::api;
use crablet_model::quantity::Quantity;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource;
use serde_json::{Value, json};

pub const PENDING: &str = "NodeResizePending";
pub const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const ERROR: &str = "NodeResizeError";
/// Conditions of a claim that tell of a resize; a finished one takes them away.
const CONDITIONS: [&str; 5] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", ERROR, "ModifyVolumeError"];

type Claim = api::PersistentVolumeClaim;

/// The size that the claim says it has.
pub fn stated(claim: &Claim) -> Option<Quantity> {
    storage(claim.status.as_ref()?.capacity.as_ref())
}

/// The size that its user wants.
pub fn requested(claim: &Claim) -> Option<Quantity> {
    storage(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

/// The size that was reserved for it, which may be unknown; `None` if its controller does not reserve.
pub fn allocated(claim: &Claim) -> Option<Option<Quantity>> {
    let resources = claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
    (status(claim).is_some() || resources.is_some()).then(|| storage(resources))
}

/// How far the resize has come.
pub fn status(claim: &Claim) -> Option<&str> {
    let statuses = claim.status.as_ref()?.allocated_resource_statuses.as_ref()?;
    statuses.get("storage").map(String::as_str).filter(|status| !status.is_empty())
}

pub fn has_mode(claim: &Claim, mode: &str) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    modes.into_iter().flatten().any(|there| there == mode)
}

fn storage(all: Option<&BTreeMap<String, resource::Quantity>>) -> Option<Quantity> {
    Quantity::parse(&all?.get("storage")?.0).ok()
}

/// The node is at it.
pub fn begun() -> Value {
    json!({ "status": { "allocatedResourceStatuses": { "storage": IN_PROGRESS } } })
}

/// The claim has its new size, and nothing of the resize is left in it.
pub fn finished(claim: &Claim, size: Quantity) -> Value {
    let gone = conditions(claim).filter(|condition| CONDITIONS.contains(&&*condition.type_));
    let gone: Vec<Value> =
        gone.map(|condition| json!({ "$patch": "delete", "type": condition.type_ })).collect();
    json!({ "status": {
        "capacity": { "storage": size.to_string() },
        "allocatedResourceStatuses": { "storage": null },
        "conditions": gone,
    } })
}

/// Why it does not grow. `None` if all that is said already.
pub fn failed(claim: &Claim, infeasible: bool, why: &str, now: Timestamp) -> Option<Value> {
    let mut status = json!({});
    let said = conditions(claim).any(|condition| condition.type_ == ERROR && condition.status == "True");
    if !said {
        status["conditions"] = json!([{
            "type": ERROR,
            "status": "True",
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "message": format!("failed to expand pvc with {why}"),
        }]);
    }
    if infeasible {
        status["allocatedResourceStatuses"] = json!({ "storage": INFEASIBLE });
    }
    (!said || infeasible).then(|| json!({ "status": status }))
}

fn conditions(claim: &Claim) -> impl Iterator<Item = &api::PersistentVolumeClaimCondition> {
    claim.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

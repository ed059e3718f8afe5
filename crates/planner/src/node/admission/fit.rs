//! Whether a pod's requests fit beside the others'.

use std::collections::BTreeMap;
use std::fmt;

use crablet_model::quantity::Quantity;
use crablet_model::{PodUid, api};

use super::amounts::{Amounts, is_extended, requested};
use super::claim::Claim;

/// A resource of which there is not enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub requested: i64,
    pub used: i64,
    pub capacity: i64,
}

impl Shortage {
    /// How much has to become free.
    pub fn missing(&self) -> (String, i64) {
        let free = self.capacity.saturating_sub(self.used);
        (self.resource.clone(), self.requested.saturating_sub(free))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, used, capacity } = self;
        write!(
            f,
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// All shortages: pods first, then CPU, memory, storage, and the rest by name.
pub fn shortages(
    pod: &api::Pod,
    others: &BTreeMap<PodUid, Claim>,
    allocatable: &BTreeMap<String, Quantity>,
) -> Vec<Shortage> {
    let mut found = Vec::new();
    let capacity = |name: &str| {
        let amount = allocatable.get(name);
        amount.map_or(0, |amount| if name == "cpu" { amount.milli_value() } else { amount.value() })
    };
    let (running, most) = (i64::try_from(others.len()).unwrap_or(i64::MAX), capacity("pods"));
    if running >= most {
        found.push(Shortage { resource: "pods".to_owned(), requested: 1, used: running, capacity: most });
    }
    let Some(spec) = pod.spec.as_ref() else { return found };
    // Extended resources that the node does not have are somebody else's to count.
    let wanted = requested(spec, |name| !is_extended(name) || allocatable.contains_key(name));
    let mut used = Amounts::default();
    others.values().for_each(|other| used.add(&other.requested));
    let names = ["cpu", "memory", "ephemeral-storage"].into_iter();
    for name in names.chain(wanted.others.keys().map(String::as_str)) {
        let short = Shortage {
            resource: name.to_owned(),
            requested: wanted.of(name),
            used: used.of(name),
            capacity: capacity(name),
        };
        if short.requested > 0 && short.requested > short.capacity.saturating_sub(short.used) {
            found.push(short);
        }
    }
    found
}

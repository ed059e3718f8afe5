//! Capacity, and what of it pods may have.

use std::collections::BTreeMap;

use crablet_model::api::NodeStatus;
use crablet_model::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::facts::{Machine, NodeFacts, NodeSettings};

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const PODS: &str = "pods";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
pub const HUGE_PAGES: &str = "hugepages-";

pub type Resources = BTreeMap<String, Quantity>;

/// What the machine has: CPU, memory, huge pages and, where it is watched over, disk.
pub fn machine_capacity(machine: &Machine, root_capacity: Option<u64>, settings: &NodeSettings) -> Resources {
    let mut capacity = Resources::new();
    capacity.insert(CPU.to_owned(), Quantity::from_value(i64::from(machine.cpus), Format::Decimal));
    capacity.insert(MEMORY.to_owned(), bytes(machine.memory_bytes));
    for (size, count) in &machine.huge_pages {
        capacity.insert(format!("{HUGE_PAGES}{}", bytes(*size)), bytes(size.saturating_mul(*count)));
    }
    if let Some(size) = root_capacity.filter(|_| settings.local_storage_isolation) {
        capacity.insert(EPHEMERAL_STORAGE.to_owned(), bytes(size));
    }
    capacity
}

/// How many pods the node takes.
pub fn pod_capacity(cpus: u32, settings: &NodeSettings) -> i64 {
    if settings.pods_per_core > 0 {
        settings.max_pods.min(i64::from(cpus).saturating_mul(settings.pods_per_core))
    } else {
        settings.max_pods
    }
}

/// What of the machine's capacity pods may not have: reserved by hand, or below a hard eviction threshold.
pub fn reservation(capacity: &Resources, settings: &NodeSettings) -> Resources {
    let reserved_for = |name: &str, capacity: Quantity| {
        let signal = match name {
            MEMORY => Some("memory.available"),
            EPHEMERAL_STORAGE => Some("nodefs.available"),
            _ => None,
        };
        let by_hand =
            [&settings.system_reserved, &settings.kube_reserved].map(|reserved| reserved.get(name).copied());
        let threshold = signal.and_then(|signal| threshold(settings.eviction_hard.get(signal)?, capacity));
        by_hand.into_iter().chain([threshold]).flatten().fold(Quantity::ZERO, Quantity::plus)
    };
    capacity.iter().map(|(name, amount)| (name.clone(), reserved_for(name, *amount))).collect()
}

/// `100Mi`, or `10%` of the capacity, with upstream's single-precision percent. As upstream, nothing and all are
/// no thresholds.
fn threshold(text: &str, capacity: Quantity) -> Option<Quantity> {
    if matches!(text, "0%" | "100%") {
        return None;
    }
    let Some(percent) = text.strip_suffix('%') else { return Quantity::parse(text).ok() };
    let fraction = percent.parse::<f32>().ok()? / 100.0;
    Some(Quantity::from_value((capacity.value() as f64 * f64::from(fraction)) as i64, Format::Binary))
}

/// What pods may have of `capacity`, which may have more than the machine's own resources.
pub fn allocatable(capacity: &Resources, reservation: &Resources) -> Resources {
    let mut allocatable: Resources = capacity
        .iter()
        .map(|(name, amount)| (name.clone(), reservation.get(name).map_or(*amount, |r| less(*amount, *r))))
        .collect();
    // Huge pages are taken out of memory, whether they are reserved or not.
    for (_, pages) in capacity.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)) {
        if let Some(memory) = allocatable.get_mut(MEMORY) {
            *memory = less(*memory, *pages);
        }
    }
    allocatable
}

/// Sets `status.capacity` and `status.allocatable`. Resources that others have set stay.
pub fn set_resources(status: &mut NodeStatus, facts: &NodeFacts<'_>) {
    let mut capacity = parsed(status.capacity.as_ref());
    let machine =
        facts.machine.map(|m| machine_capacity(m, facts.root_capacity, facts.settings)).unwrap_or_else(
            || Resources::from([(CPU.to_owned(), Quantity::ZERO), (MEMORY.to_owned(), Quantity::ZERO)]),
        );
    let reservation = reservation(&machine, facts.settings);
    capacity.extend(machine);
    let pods = facts.machine.map_or(facts.settings.max_pods, |m| pod_capacity(m.cpus, facts.settings));
    capacity.insert(PODS.to_owned(), Quantity::from_value(pods, Format::Decimal));

    let mut shared = parsed(status.allocatable.as_ref());
    shared.retain(|name, _| capacity.contains_key(name) || !is_extended(name));
    shared.extend(allocatable(&capacity, &reservation));
    status.capacity = Some(printed(&capacity));
    status.allocatable = Some(printed(&shared));
}

/// Devices and the like: has a domain, which is not Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// What is not a quantity is left out.
pub fn parsed(resources: Option<&BTreeMap<String, ApiQuantity>>) -> Resources {
    resources
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::try_from(amount).ok()?)))
        .collect()
}

pub fn printed(resources: &Resources) -> BTreeMap<String, ApiQuantity> {
    resources.iter().map(|(name, amount)| (name.clone(), ApiQuantity::from(*amount))).collect()
}

fn less(amount: Quantity, by: Quantity) -> Quantity {
    let rest = amount.minus(by);
    if rest.is_negative() { Quantity::ZERO } else { rest }
}

fn bytes(count: u64) -> Quantity {
    Quantity::from_value(i64::try_from(count).unwrap_or(i64::MAX), Format::Binary)
}

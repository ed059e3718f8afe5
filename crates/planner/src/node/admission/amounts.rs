//! A pod's requests, summed: upstream's formula with init containers, sidecars, pod-level resources and overhead.

use std::collections::BTreeMap;

use crablet_model::api;
use crablet_model::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

type List = BTreeMap<String, Quantity>;

/// How much of each resource: CPU in thousandths, all else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Huge pages and extended resources.
    pub others: BTreeMap<String, i64>,
}

impl Amounts {
    fn from_list(list: List) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => amounts.milli_cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.ephemeral_storage = quantity.value(),
                _ if is_scalar(&name) => {
                    amounts.others.insert(name, quantity.value());
                }
                _ => {}
            }
        }
        amounts
    }

    pub fn add(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub fn of(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => 1,
            other => self.others.get(other).copied().unwrap_or_default(),
        }
    }
}

/// What the scheduler counts a pod for. `counts` tells which resources of containers are counted at all.
pub fn requested(spec: &api::PodSpec, counts: impl Fn(&str) -> bool) -> Amounts {
    let mut sum = of_containers(spec, counts);
    sum.extend(pod_level(spec));
    add(&mut sum, &parsed(spec.overhead.as_ref()));
    Amounts::from_list(sum)
}

/// What a pod's end would give back, as upstream counts it when it looks for room: pod-level resources stand for all, and
/// overhead counts only beside a request.
pub fn reclaimed(spec: &api::PodSpec) -> Amounts {
    let mut sum = match has_pod_level(spec) {
        true => pod_level(spec),
        false => of_containers(spec, |_| true),
    };
    let overhead = parsed(spec.overhead.as_ref());
    for (name, amount) in overhead {
        if let Some(sum) = sum.get_mut(&name).filter(|sum| !sum.is_zero()) {
            *sum = sum.plus(amount);
        }
    }
    Amounts::from_list(sum)
}

/// Extended resources, which a node may not know: somebody else hands them out then.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
}

fn of_containers(spec: &api::PodSpec, counts: impl Fn(&str) -> bool) -> List {
    let requests = |container: &api::Container| {
        let mut list = parsed(container.resources.as_ref().and_then(|r| r.requests.as_ref()));
        list.retain(|name, _| counts(name));
        list
    };
    let mut sum = List::new();
    spec.containers.iter().for_each(|container| add(&mut sum, &requests(container)));
    let (mut sidecars, mut at_once) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        let mut own = requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            // It runs on beside all that come after it.
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut at_once, &sidecars);
        } else {
            add(&mut own, &sidecars);
            raise(&mut at_once, &own);
        }
    }
    raise(&mut sum, &at_once);
    sum
}

fn pod_level(spec: &api::PodSpec) -> List {
    let mut list = parsed(spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    list.retain(|name, _| is_pod_level(name));
    list
}

fn has_pod_level(spec: &api::PodSpec) -> bool {
    let Some(resources) = &spec.resources else { return false };
    let lists = [&resources.requests, &resources.limits];
    lists.into_iter().flatten().flat_map(BTreeMap::keys).any(|name| is_pod_level(name))
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn parsed(list: Option<&BTreeMap<String, ApiQuantity>>) -> List {
    let parse = |(name, text): (&String, &ApiQuantity)| Some((name.clone(), Quantity::try_from(text).ok()?));
    list.into_iter().flatten().filter_map(parse).collect()
}

fn add(sum: &mut List, more: &List) {
    for (name, amount) in more {
        let total = sum.entry(name.clone()).or_default();
        *total = total.plus(*amount);
    }
}

fn raise(most: &mut List, other: &List) {
    for (name, amount) in other {
        let known = most.entry(name.clone()).or_insert(*amount);
        if *amount > *known {
            *known = *amount;
        }
    }
}

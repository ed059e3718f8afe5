//! What a container may use: as granted, and where it runs, as the runtime says.

use std::collections::BTreeMap;

use crablet_model::allocation::Sizes;
use crablet_model::api;
use crablet_model::quantity::{Format, Quantity};
use crablet_model::resources::{milli_of_quota, milli_of_shares};
use crablet_model::runtime::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::containers::One;
use super::states::is_running;

/// Below these the kernel knows no difference, and upstream shows what was granted.
const LEAST_CPU_LIMIT: i64 = 10;
const LEAST_CPU_REQUEST: i64 = 2;

type List = BTreeMap<String, Amount>;

pub(super) fn of(
    one: &One<'_>,
    newest: &Container,
    granted: &api::ResourceRequirements,
) -> api::ResourceRequirements {
    let mut shown = granted.clone();
    if !newest.state.is_running() {
        return shown;
    }
    let said = said(one, newest);
    let asked = Sizes::of(Some(granted));
    let id = one.full_id(newest);
    let before = one.old.filter(|old| is_running(old) && old.container_id.as_deref() == Some(&id));
    let before = before.and_then(|old| old.resources.as_ref());
    if let Some(limits) = &mut shown.limits {
        let before = before.and_then(|old| old.limits.as_ref());
        show(limits, before, "cpu", cpu(said.cpu_limit, asked.cpu_limit, LEAST_CPU_LIMIT));
        show(limits, before, "memory", memory(said.memory_limit));
    }
    if let Some(requests) = &mut shown.requests {
        let before = before.and_then(|old| old.requests.as_ref());
        show(requests, before, "cpu", cpu(said.cpu_request, asked.cpu_request, LEAST_CPU_REQUEST));
        show(requests, before, "memory", memory(said.memory_request));
    }
    shown
}

/// What is found out about one amount.
enum Found {
    Said(Quantity),
    /// What was granted stands for it.
    AsGranted,
    Nothing,
}

fn cpu(said: i64, granted: i64, least: i64) -> Found {
    match said {
        0 => Found::Nothing,
        _ if said.max(granted) > least => Found::Said(Quantity::from_milli(said, Format::Decimal)),
        _ => Found::AsGranted,
    }
}

fn memory(said: i64) -> Found {
    match said {
        0 => Found::Nothing,
        bytes => Found::Said(Quantity::from_value(bytes, Format::Binary)),
    }
}

/// What nobody knows now stays as it was told.
fn show(list: &mut List, before: Option<&List>, name: &str, found: Found) {
    let amount = match found {
        Found::Said(amount) => Some(amount.into()),
        Found::AsGranted => None,
        Found::Nothing => before.and_then(|before| before.get(name)).cloned(),
    };
    if let Some(amount) = amount {
        list.insert(name.to_owned(), amount);
    }
}

/// From the runtime; what it does not say, from what it was told last. Memory that is asked for it never says.
fn said(one: &One<'_>, newest: &Container) -> Sizes {
    let told = one.facts.grants.actuated.as_ref().and_then(|all| all.containers.get(&newest.name));
    let told = Sizes::of(told);
    let Some(numbers) = newest
        .resources
        .filter(|n| milli_of_quota(n.cpu_quota, n.cpu_period) > 0 || n.cpu_shares > 0 || n.memory_limit > 0)
    else {
        return told;
    };
    Sizes {
        cpu_request: milli_of_shares(numbers.cpu_shares),
        cpu_limit: milli_of_quota(numbers.cpu_quota, numbers.cpu_period),
        memory_request: told.memory_request,
        memory_limit: numbers.memory_limit.max(0),
    }
}

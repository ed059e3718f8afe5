//! What a container may use: as granted, and where it runs, as the runtime says.

use std::collections::BTreeMap;

use crablet_model::allocation::Sizes;
use crablet_model::api;
use crablet_model::quantity::{Format, Quantity};
use crablet_model::resources::{limit, milli_of_quota, milli_of_shares, request};
use crablet_model::runtime::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::containers::One;
use super::states::is_running;

/// Below these the kernel knows no difference, and upstream shows what was granted.
pub(super) const LEAST_CPU_LIMIT: i64 = 10;
pub(super) const LEAST_CPU_REQUEST: i64 = 2;

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
    let said = Said::of(one, newest);
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

fn cpu(said: Option<Quantity>, granted: i64, least: i64) -> Found {
    match said {
        None => Found::Nothing,
        Some(said) if said.milli_value().max(granted) > least => Found::Said(said),
        Some(_) => Found::AsGranted,
    }
}

fn memory(said: Option<Quantity>) -> Found {
    said.map_or(Found::Nothing, Found::Said)
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

/// The amounts of a running container.
#[derive(Default)]
struct Said {
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_request: Option<Quantity>,
    memory_limit: Option<Quantity>,
}

impl Said {
    /// From the runtime. Memory that is asked for it never says: that is what it was told last, to the digit.
    fn of(one: &One<'_>, newest: &Container) -> Self {
        let told = one.facts.grants.actuated.as_ref().and_then(|all| all.containers.get(&newest.name));
        let Some(numbers) = newest.resources else { return Self::told(told) };
        let cpu = |milli: i64| (milli > 0).then(|| Quantity::from_milli(milli, Format::Decimal));
        let bytes = numbers.memory_limit;
        let said = Self {
            cpu_request: cpu(milli_of_shares(numbers.cpu_shares)),
            cpu_limit: cpu(milli_of_quota(numbers.cpu_quota, numbers.cpu_period)),
            memory_request: request(told, "memory").filter(|amount| !amount.is_zero()),
            memory_limit: (bytes > 0).then(|| Quantity::from_value(bytes, Format::Binary)),
        };
        let says_nothing = said.cpu_request.or(said.cpu_limit).or(said.memory_limit).is_none();
        if says_nothing { Self::told(told) } else { said }
    }

    /// Of a runtime that says nothing: what it was told last. As upstream, what it was not told is zero.
    fn told(told: Option<&api::ResourceRequirements>) -> Self {
        let Some(told) = told else { return Self::default() };
        Self {
            cpu_request: request(Some(told), "cpu").or(Some(Quantity::ZERO)),
            cpu_limit: limit(Some(told), "cpu").or(Some(Quantity::ZERO)),
            memory_request: request(Some(told), "memory").or(Some(Quantity::ZERO)),
            memory_limit: limit(Some(told), "memory").or(Some(Quantity::ZERO)),
        }
    }
}

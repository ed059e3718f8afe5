//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::super::error::{Problems, key, quoted};
use super::names;
use crate::api::ResourceRequirements;
use crate::quantity::Quantity;

pub(super) fn check(path: &str, resources: Option<&ResourceRequirements>, problems: &mut Problems) {
    let Some(resources) = resources else { return };
    let limits = amounts(&format!("{path}.resources.limits"), resources.limits.as_ref(), problems);
    let requests = amounts(&format!("{path}.resources.requests"), resources.requests.as_ref(), problems);
    for (name, request) in requests {
        if let Some(limit) = limits.get(name)
            && request > *limit
        {
            let path = format!("{path}.resources.requests[{}]", key(name));
            problems.add(path, format!("{request} is above the limit of {limit}"));
        }
    }
}

/// The amounts of one list that make sense; the others become problems.
fn amounts<'a>(
    path: &str,
    list: Option<&'a BTreeMap<String, ApiQuantity>>,
    problems: &mut Problems,
) -> BTreeMap<&'a str, Quantity> {
    let mut amounts = BTreeMap::new();
    for (name, text) in list.into_iter().flatten() {
        let path = format!("{path}[{}]", key(name));
        if let Err(rule) = check_name(name) {
            problems.add(path.clone(), rule);
        }
        match Quantity::try_from(text) {
            Err(error) => problems.add(path, error.to_string()),
            Ok(amount) if amount.is_negative() => {
                problems.add(path, format!("{} is below 0", quoted(&text.0)))
            }
            Ok(amount) => {
                amounts.insert(name.as_str(), amount);
            }
        }
    }
    amounts
}

fn check_name(name: &str) -> names::Check {
    names::qualified(name)?;
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if known || name.contains('/') {
        Ok(())
    } else {
        Err(
            "is not a resource that containers have; use cpu, memory, ephemeral-storage or a name with a domain",
        )
    }
}

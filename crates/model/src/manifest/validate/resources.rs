//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::super::error::{Problems, key, quoted};
use super::names;
use crate::api::{PodSpec, ResourceRequirements};
use crate::cgroup::effective::without_overhead;
use crate::quantity::Quantity;

type Amounts<'a> = BTreeMap<&'a str, Quantity>;

pub(super) fn check(path: &str, resources: Option<&ResourceRequirements>, problems: &mut Problems) {
    if let Some(resources) = resources {
        check_lists(format!("{path}.resources"), resources, problems);
    }
}

/// What the pod costs besides its containers is checked as a container's limits are.
pub(super) fn check_overhead(spec: &PodSpec, problems: &mut Problems) {
    if let Some(overhead) = spec.overhead.as_ref() {
        let resources = ResourceRequirements { limits: Some(overhead.clone()), ..Default::default() };
        check_lists("spec.overhead".to_owned(), &resources, problems);
    }
}

fn check_lists(path: String, resources: &ResourceRequirements, problems: &mut Problems) {
    let (limits, requests) = both(&path, resources, check_name, problems);
    let names = || limits.keys().chain(requests.keys());
    if names().any(|name| is_huge_page(name)) && !names().any(|name| matches!(*name, "cpu" | "memory")) {
        problems.add(path, "HugePages require cpu or memory");
    }
}

/// What the pod asks for as a whole has to hold what its containers ask for.
pub(super) fn check_pod(spec: &PodSpec, problems: &mut Problems) {
    let Some(resources) = spec.resources.as_ref() else { return };
    let path = "spec.resources";
    if resources.claims.is_some() {
        problems.add(format!("{path}.claims"), "claims may not be set for Resources at pod-level");
    }
    let (limits, requests) = both(path, resources, check_pod_name, problems);
    let containers = PodSpec { resources: None, ..spec.clone() };
    let (requests_of_all, limits_of_all) = without_overhead(&containers);
    for (name, all) in requests_of_all {
        if let Some(request) = requests.get(name.as_str()).filter(|request| all > **request) {
            let path = format!("{path}.requests[{}]", key(&name));
            problems.add(path, format!("{request} is below the {all} that containers request together"));
        }
    }
    for (name, all) in limits_of_all.into_iter().filter(|(name, _)| is_huge_page(name)) {
        if let Some(limit) = limits.get(name.as_str()).filter(|limit| all > **limit) {
            let path = format!("{path}.limits[{}]", key(&name));
            problems.add(path, format!("{limit} is below the {all} that containers are limited to together"));
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        for (name, limit) in &limits {
            let own = crate::resources::limit(container.resources.as_ref(), name);
            if let Some(own) = own.filter(|own| own > limit) {
                let path = format!("spec.containers[{index}].resources.limits[{}]", key(name));
                problems.add(path, format!("{own} is above the pod's limit of {limit}"));
            }
        }
    }
}

/// Limits and requests, each alone and beside the other.
fn both<'a>(
    path: &str,
    resources: &'a ResourceRequirements,
    name_check: fn(&str) -> names::Check,
    problems: &mut Problems,
) -> (Amounts<'a>, Amounts<'a>) {
    let limits = amounts(&format!("{path}.limits"), resources.limits.as_ref(), name_check, problems);
    let requests = amounts(&format!("{path}.requests"), resources.requests.as_ref(), name_check, problems);
    for (name, request) in &requests {
        let path = format!("{path}.requests[{}]", key(name));
        match limits.get(name) {
            Some(limit) if is_given_whole(name) && request != limit => {
                problems.add(path, format!("{request} must be equal to the limit of {limit}"));
            }
            Some(limit) if request > limit => {
                problems.add(path, format!("{request} is above the limit of {limit}"));
            }
            None if is_given_whole(name) => {
                problems.add(path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    (limits, requests)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// What is not Kubernetes' own: counted in whole pieces.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// Nobody else may have what one container asks for, so its request is its limit.
fn is_given_whole(name: &str) -> bool {
    is_huge_page(name) || is_extended(name)
}

/// The amounts of one list that make sense; the others become problems.
fn amounts<'a>(
    path: &str,
    list: Option<&'a BTreeMap<String, ApiQuantity>>,
    name_check: fn(&str) -> names::Check,
    problems: &mut Problems,
) -> Amounts<'a> {
    let mut amounts = BTreeMap::new();
    for (name, text) in list.into_iter().flatten() {
        let path = format!("{path}[{}]", key(name));
        if let Err(rule) = name_check(name) {
            problems.add(path.clone(), rule);
        }
        match Quantity::try_from(text) {
            Err(error) => problems.add(path, error.to_string()),
            Ok(amount) if amount.is_negative() => {
                problems.add(path, format!("{} is below 0", quoted(&text.0)))
            }
            Ok(amount) => {
                if !is_whole_pages(name, amount) {
                    let message = format!("{} is not positive integer multiple of {name}", quoted(&text.0));
                    problems.add(path, message);
                } else if is_extended(name) && !amount.is_whole() {
                    problems.add(path, format!("{} must be an integer", quoted(&text.0)));
                }
                amounts.insert(name.as_str(), amount);
            }
        }
    }
    amounts
}

/// Huge pages are given whole.
fn is_whole_pages(name: &str, amount: Quantity) -> bool {
    let Some(size) = name.strip_prefix("hugepages-") else { return true };
    let size = Quantity::parse(size).map_or(0, |size| size.value());
    size > 0 && amount.value() % size == 0
}

fn check_pod_name(name: &str) -> names::Check {
    match name {
        "cpu" | "memory" => Ok(()),
        name if is_huge_page(name) => Ok(()),
        _ => Err("is not a resource that a pod has as a whole; use cpu, memory or hugepages-<size>"),
    }
}

fn check_name(name: &str) -> names::Check {
    names::qualified(name)?;
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    // Quotas put their prefix before such a name, and it has to stay a name then.
    let in_quotas = format!("requests.{name}");
    if is_extended(name) && (name.starts_with("requests.") || names::qualified(&in_quotas).is_err()) {
        Err("doesn't follow extended resource name standard")
    } else if known || name.contains('/') {
        Ok(())
    } else {
        Err(
            "is not a resource that containers have; use cpu, memory, ephemeral-storage or a name with a domain",
        )
    }
}

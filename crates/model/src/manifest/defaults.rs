//! What the API server would have filled in, had it seen the pod first (v1.36).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::api::{Container, Pod, PodSpec, ResourceRequirements};
use crate::image;
use crate::quantity::Quantity;

pub(super) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    service_account(spec);
    let host_network = spec.host_network.unwrap_or(false);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        default_container(container, host_network);
    }
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`.
fn service_account(spec: &mut PodSpec) {
    if spec.service_account_name.as_deref().unwrap_or_default().is_empty() {
        spec.service_account_name = spec.service_account.clone().filter(|name| !name.is_empty());
    }
}

fn default_container(container: &mut Container, host_network: bool) {
    let image = container.image.as_deref().unwrap_or_default();
    text(&mut container.image_pull_policy, image::default_pull_policy(image));
    text(&mut container.termination_message_path, "/dev/termination-log");
    text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        if host_network && port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
    for source in container.env.iter_mut().flatten().filter_map(|env| env.value_from.as_mut()) {
        if let Some(field) = source.field_ref.as_mut() {
            text(&mut field.api_version, "v1");
        }
    }
    if let Some(resources) = container.resources.as_mut() {
        default_resources(resources);
    }
}

/// Each missing request is its limit; amounts are kept in thousandths, rounded up, in canonical form.
fn default_resources(resources: &mut ResourceRequirements) {
    for list in [&mut resources.limits, &mut resources.requests].into_iter().flatten() {
        canonical(list);
    }
    let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn canonical(list: &mut BTreeMap<String, ApiQuantity>) {
    for quantity in list.values_mut() {
        // What does not parse stays as it is: validation then shows what was written.
        if let Ok(exact) = Quantity::try_from(&*quantity) {
            *quantity = exact.rounded_to_milli().into();
        }
    }
}

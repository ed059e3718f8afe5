//! What the API server would have filled in, had it seen the pod first (v1.36).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::api::{
    Container, DownwardAPIVolumeFile, HTTPGetAction, ObjectFieldSelector, Pod, PodSpec, Probe,
    ProjectedVolumeSource, ResourceRequirements, Volume,
};
use crate::cgroup::effective::without_overhead;
use crate::image;
use crate::quantity::Quantity;

/// Of the files in a volume: `rw-r--r--`.
const FILE_MODE: i32 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

pub(super) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    let grace = spec.termination_grace_period_seconds.get_or_insert(30);
    if *grace < 0 {
        // As upstream's conversion has it (v1.36); the UID is made of this, too.
        *grace = 1;
    }
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    service_account(spec);
    let host_network = spec.host_network.unwrap_or(false);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        default_container(container, host_network);
    }
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
}

/// Amounts are kept in thousandths, rounded up, in canonical form; and what the pod as a whole asks for is filled in. Comes
/// after the UID is made, which is made of amounts as they were written.
pub(super) fn apply_to_amounts(pod: &mut Pod) {
    let Some(spec) = pod.spec.as_mut() else { return };
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    for resources in containers.filter_map(|container| container.resources.as_mut()) {
        for list in [&mut resources.limits, &mut resources.requests].into_iter().flatten() {
            canonical(list);
        }
    }
    if let Some(overhead) = spec.overhead.as_mut() {
        canonical(overhead);
    }
    // After those of containers: they count in the pod's.
    default_pod_resources(spec);
}

/// A pod that says something of its resources as a whole: what it leaves out is what its containers add up to, else its
/// own limit.
fn default_pod_resources(spec: &mut PodSpec) {
    let Some(mut resources) = spec.resources.take() else { return };
    for list in [&mut resources.limits, &mut resources.requests].into_iter().flatten() {
        canonical(list);
    }
    let given = |list: &Option<BTreeMap<_, _>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let (requests_of_all, limits_of_all) = without_overhead(spec);
    if given(&resources.limits) || given(&resources.requests) {
        for (name, amount) in limits_of_all.into_iter().filter(|(name, _)| name.starts_with("hugepages-")) {
            let asked = resources.requests.as_ref().is_some_and(|requests| requests.contains_key(&name));
            if !asked {
                let limits = resources.limits.get_or_insert_default();
                limits.entry(name).or_insert_with(|| amount.into());
            }
        }
    }
    if let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) {
        let requests = resources.requests.get_or_insert_default();
        for name in ["cpu", "memory"] {
            if let Some(amount) = requests_of_all.get(name) {
                requests.entry(name.to_owned()).or_insert_with(|| (*amount).into());
            }
        }
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    spec.resources = Some(resources);
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
        default_field(source.field_ref.as_mut());
        if let Some(key) = source.file_key_ref.as_mut() {
            key.optional.get_or_insert(false);
        }
    }
    if let Some(resources) = container.resources.as_mut() {
        default_resources(resources);
    }
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    for lifecycle in container.lifecycle.iter_mut() {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            default_http_get(hook.http_get.as_mut());
        }
    }
}

fn default_probe(probe: &mut Probe) {
    let numbers = [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ];
    for (number, default) in numbers {
        if number.unwrap_or(0) == 0 {
            *number = Some(default);
        }
    }
    default_http_get(probe.http_get.as_mut());
    if let Some(action) = probe.grpc.as_mut() {
        action.service.get_or_insert_default();
    }
}

fn default_http_get(action: Option<&mut HTTPGetAction>) {
    if let Some(action) = action {
        text(&mut action.path, "/");
        text(&mut action.scheme, "HTTP");
    }
}

fn default_field(field: Option<&mut ObjectFieldSelector>) {
    if let Some(field) = field {
        text(&mut field.api_version, "v1");
    }
}

fn default_volume(volume: &mut Volume) {
    if *volume == (Volume { name: volume.name.clone(), ..Default::default() }) {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(source) = volume.host_path.as_mut() {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = volume.image.as_mut() {
        let reference = source.reference.as_deref().unwrap_or_default();
        text(&mut source.pull_policy, image::default_pull_policy(reference));
    }
    if let Some(source) = volume.iscsi.as_mut() {
        text(&mut source.iscsi_interface, "default");
    }
    if let Some(source) = volume.secret.as_mut() {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = volume.config_map.as_mut() {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = volume.downward_api.as_mut() {
        source.default_mode.get_or_insert(FILE_MODE);
        default_files(source.items.as_mut());
    }
    if let Some(source) = volume.projected.as_mut() {
        default_projected(source);
    }
}

fn default_projected(source: &mut ProjectedVolumeSource) {
    source.default_mode.get_or_insert(FILE_MODE);
    for projection in source.sources.iter_mut().flatten() {
        if let Some(token) = projection.service_account_token.as_mut() {
            token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
        }
        if let Some(source) = projection.downward_api.as_mut() {
            default_files(source.items.as_mut());
        }
    }
}

fn default_files(files: Option<&mut Vec<DownwardAPIVolumeFile>>) {
    for file in files.into_iter().flatten() {
        default_field(file.field_ref.as_mut());
    }
}

/// Each missing request is its limit.
fn default_resources(resources: &mut ResourceRequirements) {
    let Some(limits) = resources.limits.as_ref() else { return };
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

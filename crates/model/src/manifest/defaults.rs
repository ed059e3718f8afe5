//! What the API server would have filled in, had it seen the pod first (v1.36).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::api::{
    Container, DownwardAPIVolumeFile, ObjectFieldSelector, Pod, PodSpec, ProjectedVolumeSource,
    ResourceRequirements, Volume,
};
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
    spec.termination_grace_period_seconds.get_or_insert(30);
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
    }
    if let Some(resources) = container.resources.as_mut() {
        default_resources(resources);
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

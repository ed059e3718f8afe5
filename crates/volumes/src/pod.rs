//! What of a pod matters to its volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_apiserver::{ObjectKey, ObjectKind};
use crablet_model::api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A container of any kind, as far as volumes care.
pub struct ContainerView<'a> {
    pub mounts: &'a [api::VolumeMount],
    pub devices: &'a [api::VolumeDevice],
    pub security: Option<&'a api::SecurityContext>,
}

/// Init, regular and ephemeral containers.
pub fn containers(spec: &api::PodSpec) -> impl Iterator<Item = ContainerView<'_>> {
    let plain = spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| ContainerView {
        mounts: c.volume_mounts.as_deref().unwrap_or_default(),
        devices: c.volume_devices.as_deref().unwrap_or_default(),
        security: c.security_context.as_ref(),
    });
    plain.chain(spec.ephemeral_containers.iter().flatten().map(|c| ContainerView {
        mounts: c.volume_mounts.as_deref().unwrap_or_default(),
        devices: c.volume_devices.as_deref().unwrap_or_default(),
        security: c.security_context.as_ref(),
    }))
}

/// How containers use a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub mounted: bool,
    /// As a device.
    pub mapped: bool,
}

pub fn uses(spec: &api::PodSpec, volume: &str) -> Uses {
    Uses {
        mounted: containers(spec).flat_map(|c| c.mounts).any(|mount| mount.name == volume),
        mapped: containers(spec).flat_map(|c| c.devices).any(|device| device.name == volume),
    }
}

/// The volumes that some container uses, in the order of the specification. Others are never set up.
pub fn wanted(spec: &api::PodSpec) -> Vec<&api::Volume> {
    let mounted = containers(spec).flat_map(|c| c.mounts).map(|m| m.name.as_str());
    let mapped = containers(spec).flat_map(|c| c.devices).map(|d| d.name.as_str());
    let used: BTreeSet<&str> = mounted.chain(mapped).collect();
    spec.volumes.iter().flatten().filter(|volume| used.contains(volume.name.as_str())).collect()
}

/// Whom the files of the pod belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The user that all containers run as, if it is one and known.
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl Owners {
    pub fn of(spec: &api::PodSpec) -> Self {
        let context = spec.security_context.as_ref();
        let of_pod = context.and_then(|c| c.run_as_user);
        let mut users = containers(spec).map(|c| c.security.and_then(|s| s.run_as_user).or(of_pod));
        let user = users.next().flatten().filter(|first| users.all(|user| user == Some(*first)));
        let id = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
        Self { user: id(user), group: id(context.and_then(|c| c.fs_group)) }
    }
}

/// What the volumes of a pod show: when that changes they are rendered again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub objects: BTreeSet<ObjectKey>,
    /// The pod itself, by the downward API.
    pub pod: bool,
}

impl Shown {
    pub fn by(pod: &api::Pod) -> Self {
        let mut shown = Self::default();
        let Some(spec) = &pod.spec else { return shown };
        let namespace: Arc<str> = Arc::from(pod.metadata.namespace.as_deref().unwrap_or_default());
        let mut add = |kind, name: &str| {
            shown.objects.insert(ObjectKey { kind, namespace: namespace.clone(), name: Arc::from(name) });
        };
        for volume in wanted(spec) {
            if let Some(source) = &volume.config_map {
                add(ObjectKind::ConfigMap, &source.name);
            }
            if let Some(source) = &volume.secret {
                add(ObjectKind::Secret, source.secret_name.as_deref().unwrap_or_default());
            }
            shown.pod |= volume.downward_api.is_some();
            for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
                if let Some(source) = &source.config_map {
                    add(ObjectKind::ConfigMap, &source.name);
                }
                if let Some(source) = &source.secret {
                    add(ObjectKind::Secret, &source.name);
                }
                shown.pod |= source.downward_api.is_some();
            }
        }
        shown
    }
}

/// The pod without what its volumes have no use for: it is kept for the pod's whole life.
pub fn slim(pod: &api::Pod) -> api::Pod {
    let container = |c: &api::Container| api::Container {
        name: c.name.clone(),
        resources: c.resources.clone(),
        security_context: for_files(c.security_context.as_ref()),
        volume_mounts: c.volume_mounts.clone(),
        volume_devices: c.volume_devices.clone(),
        ..Default::default()
    };
    let spec = pod.spec.as_ref().map(|spec| api::PodSpec {
        containers: spec.containers.iter().map(container).collect(),
        init_containers: spec.init_containers.as_ref().map(|all| all.iter().map(container).collect()),
        ephemeral_containers: spec.ephemeral_containers.as_ref().map(|all| {
            let slim = |c: &api::EphemeralContainer| api::EphemeralContainer {
                name: c.name.clone(),
                security_context: for_files(c.security_context.as_ref()),
                volume_mounts: c.volume_mounts.clone(),
                volume_devices: c.volume_devices.clone(),
                ..Default::default()
            };
            all.iter().map(slim).collect()
        }),
        resources: spec.resources.clone(),
        security_context: spec.security_context.clone(),
        service_account_name: spec.service_account_name.clone(),
        volumes: spec.volumes.clone(),
        ..Default::default()
    });
    let meta = &pod.metadata;
    let metadata = ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        labels: meta.labels.clone(),
        annotations: meta.annotations.clone(),
        ..Default::default()
    };
    api::Pod { metadata, spec, status: None }
}

fn for_files(context: Option<&api::SecurityContext>) -> Option<api::SecurityContext> {
    context.map(|context| api::SecurityContext {
        run_as_user: context.run_as_user,
        se_linux_options: context.se_linux_options.clone(),
        ..Default::default()
    })
}

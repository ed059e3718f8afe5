//! A static pod may not name other API objects: nobody could fetch them for a pod that the API server never saw.
//!
//! The texts are upstream's (v1.36), and so is their order: one answer, the first. With the gate
//! `PreventStaticPodAPIReferences` off, two kinds of objects are left that it may not name.

use super::error::Problems;
use crate::api::{Container, EnvFromSource, EnvVar, Pod, PodSpec, Volume};

pub(super) fn check(pod: &Pod, may_refer: bool) -> Problems {
    let mut problems = Problems::default();
    let Some(spec) = pod.spec.as_ref() else { return problems };
    if may_refer {
        if let Some((path, words)) = never_allowed(spec) {
            problems.add(path, words);
        }
    } else if let Some((path, resource)) = first_reference(spec) {
        problems.add(path, format!("static pods may not reference {resource}"));
    }
    problems
}

type Found = Option<(String, &'static str)>;

/// What no gate allows, and the whole refusal.
fn never_allowed(spec: &PodSpec) -> Found {
    let bundles = |volume: &Volume| projections(volume).any(|p| p.cluster_trust_bundle.is_some());
    let bundle = numbered("spec.volumes", spec.volumes.as_deref())
        .find_map(|(path, volume)| bundles(volume).then_some(path));
    let words = "static pods may not use ClusterTrustBundle projected volume sources";
    bundle
        .map(|path| (path, words))
        .or_else(|| resource_claim(spec).map(|path| (path, "static pods may not use ResourceClaims")))
}

fn first_reference(spec: &PodSpec) -> Found {
    if spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty()) {
        return Some(("spec.serviceAccountName".to_owned(), "serviceaccounts"));
    }
    secret(spec)
        .map(|path| (path, "secrets"))
        .or_else(|| config_map(spec).map(|path| (path, "configmaps")))
        .or_else(|| resource_claim(spec).map(|path| (path, "resourceclaims")))
        .or_else(|| {
            numbered("spec.volumes", spec.volumes.as_deref())
                .find_map(|(path, volume)| volume_reference(volume).map(|resource| (path, resource)))
        })
}

/// Items of a list with their paths.
fn numbered<'a, T>(path: &str, items: Option<&'a [T]>) -> impl Iterator<Item = (String, &'a T)> {
    items.unwrap_or_default().iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// The environment of every container, of each kind, with its path.
fn environments(spec: &PodSpec) -> impl Iterator<Item = (String, &[EnvVar], &[EnvFromSource])> {
    fn of(container: &Container) -> (&[EnvVar], &[EnvFromSource]) {
        (container.env.as_deref().unwrap_or_default(), container.env_from.as_deref().unwrap_or_default())
    }
    let init = numbered("spec.initContainers", spec.init_containers.as_deref());
    let plain = numbered("spec.containers", Some(&spec.containers));
    let ephemeral =
        numbered("spec.ephemeralContainers", spec.ephemeral_containers.as_deref()).map(|(path, c)| {
            (path, c.env.as_deref().unwrap_or_default(), c.env_from.as_deref().unwrap_or_default())
        });
    init.chain(plain)
        .map(|(path, container)| {
            let (env, env_from) = of(container);
            (path, env, env_from)
        })
        .chain(ephemeral)
}

fn secret(spec: &PodSpec) -> Option<String> {
    if spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()) {
        return Some("spec.imagePullSecrets".to_owned());
    }
    let from_env = environments(spec).find_map(|(path, env, env_from)| {
        let from = env_from.iter().position(|from| from.secret_ref.is_some());
        let key = env
            .iter()
            .position(|env| env.value_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some()));
        from.map(|index| format!("{path}.envFrom[{index}].secretRef"))
            .or_else(|| key.map(|index| format!("{path}.env[{index}].valueFrom.secretKeyRef")))
    });
    from_env.or_else(|| {
        numbered("spec.volumes", spec.volumes.as_deref())
            .find_map(|(path, volume)| uses_secret(volume).then_some(path))
    })
}

fn uses_secret(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.azure_file.is_some()
        || volume.scale_io.is_some()
        || volume.cephfs.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.flex_volume.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.rbd.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.iscsi.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.storageos.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.csi.as_ref().is_some_and(|source| source.node_publish_secret_ref.is_some())
        || projections(volume).any(|projection| projection.secret.is_some())
}

fn config_map(spec: &PodSpec) -> Option<String> {
    let from_env = environments(spec).find_map(|(path, env, env_from)| {
        let from = env_from.iter().position(|from| from.config_map_ref.is_some());
        let key =
            |env: &EnvVar| env.value_from.as_ref().is_some_and(|from| from.config_map_key_ref.is_some());
        from.map(|index| format!("{path}.envFrom[{index}].configMapRef")).or_else(|| {
            env.iter().position(key).map(|index| format!("{path}.env[{index}].valueFrom.configMapKeyRef"))
        })
    });
    from_env.or_else(|| {
        numbered("spec.volumes", spec.volumes.as_deref()).find_map(|(path, volume)| {
            let used = volume.config_map.is_some() || projections(volume).any(|p| p.config_map.is_some());
            used.then_some(path)
        })
    })
}

fn resource_claim(spec: &PodSpec) -> Option<String> {
    spec.resource_claims
        .as_ref()
        .is_some_and(|claims| !claims.is_empty())
        .then(|| "spec.resourceClaims".to_owned())
}

fn projections(volume: &Volume) -> impl Iterator<Item = &crate::api::VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

/// What is left once secrets and config maps have had their turn.
fn volume_reference(volume: &Volume) -> Option<&'static str> {
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    projections(volume).find_map(|projection| {
        if projection.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if projection.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if projection.pod_certificate.is_some() {
            Some("podcertificates")
        } else {
            None
        }
    })
}

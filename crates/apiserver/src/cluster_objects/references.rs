//! Which config maps and secrets a pod refers to, as upstream's managers count them (v1.36).

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_model::api::{EnvFromSource, EnvVar, Pod, PodSpec, Volume};

use crate::objects::{ObjectKey, ObjectKind};

pub(super) fn of(pod: &Pod) -> BTreeSet<ObjectKey> {
    let mut found = Found {
        namespace: Arc::from(pod.metadata.namespace.as_deref().unwrap_or_default()),
        keys: BTreeSet::new(),
    };
    if let Some(spec) = &pod.spec {
        for secret in spec.image_pull_secrets.iter().flatten() {
            found.secret(&secret.name);
        }
        for (env, env_from) in environments(spec) {
            found.environment(env, env_from);
        }
        for volume in spec.volumes.iter().flatten() {
            found.volume(volume);
        }
    }
    found.keys
}

/// The environment of every container, of each kind.
fn environments(spec: &PodSpec) -> impl Iterator<Item = (&[EnvVar], &[EnvFromSource])> {
    let plain = spec.init_containers.iter().flatten().chain(&spec.containers);
    let plain = plain.map(|c| (c.env.as_deref(), c.env_from.as_deref()));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|c| (c.env.as_deref(), c.env_from.as_deref()));
    plain.chain(ephemeral).map(|(env, env_from)| (env.unwrap_or_default(), env_from.unwrap_or_default()))
}

struct Found {
    namespace: Arc<str>,
    keys: BTreeSet<ObjectKey>,
}

impl Found {
    fn add(&mut self, kind: ObjectKind, name: &str) {
        if !name.is_empty() {
            let (namespace, name) = (self.namespace.clone(), Arc::from(name));
            self.keys.insert(ObjectKey { kind, namespace, name });
        }
    }

    fn secret(&mut self, name: &str) {
        self.add(ObjectKind::Secret, name);
    }

    fn config_map(&mut self, name: &str) {
        self.add(ObjectKind::ConfigMap, name);
    }

    fn environment(&mut self, env: &[EnvVar], env_from: &[EnvFromSource]) {
        for source in env_from {
            if let Some(secret) = &source.secret_ref {
                self.secret(&secret.name);
            }
            if let Some(config_map) = &source.config_map_ref {
                self.config_map(&config_map.name);
            }
        }
        for source in env.iter().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(key) = &source.secret_key_ref {
                self.secret(&key.name);
            }
            if let Some(key) = &source.config_map_key_ref {
                self.config_map(&key.name);
            }
        }
    }

    fn volume(&mut self, volume: &Volume) {
        if let Some(source) = &volume.config_map {
            self.config_map(&source.name);
        }
        if let Some(source) = &volume.secret {
            self.secret(source.secret_name.as_deref().unwrap_or_default());
        }
        for projection in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            if let Some(source) = &projection.secret {
                self.secret(&source.name);
            }
            if let Some(source) = &projection.config_map {
                self.config_map(&source.name);
            }
        }
        if let Some(source) = &volume.azure_file {
            self.secret(&source.secret_name);
        }
        let others = [
            volume.cephfs.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.cinder.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.flex_volume.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.rbd.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.scale_io.as_ref().map(|source| &source.secret_ref),
            volume.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.storageos.as_ref().and_then(|source| source.secret_ref.as_ref()),
            volume.csi.as_ref().and_then(|source| source.node_publish_secret_ref.as_ref()),
        ];
        for secret in others.into_iter().flatten() {
            self.secret(&secret.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_place_that_can_name_an_object_is_looked_at() {
        let env = |n: &str| {
            json!([{"name": "a", "valueFrom": {"secretKeyRef": {"name": format!("s-env-{n}"), "key": "k"}}},
                   {"name": "b", "valueFrom": {"configMapKeyRef": {"name": format!("c-env-{n}"), "key": "k"}}}])
        };
        let from = |n: &str| json!([{"secretRef": {"name": format!("s-from-{n}")}}, {"configMapRef": {"name": format!("c-from-{n}")}}]);
        let container = |n: &str| json!({"name": n, "env": env(n), "envFrom": from(n)});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {
                "imagePullSecrets": [{"name": "s-pull"}, {"name": ""}],
                "initContainers": [container("init")],
                "containers": [container("main")],
                "ephemeralContainers": [container("debug")],
                "volumes": [
                    {"name": "1", "secret": {"secretName": "s-vol"}},
                    {"name": "2", "configMap": {"name": "c-vol"}},
                    {"name": "3", "projected": {"sources": [{"secret": {"name": "s-proj"}}, {"configMap": {"name": "c-proj"}}]}},
                    {"name": "4", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s-csi"}}},
                    {"name": "5", "emptyDir": {}},
                ],
            },
        }))
        .unwrap();
        let names: Vec<String> = of(&pod).iter().map(|key| key.name.to_string()).collect();
        let expected = "c-env-debug c-env-init c-env-main c-from-debug c-from-init c-from-main c-proj c-vol \
                        s-csi s-env-debug s-env-init s-env-main s-from-debug s-from-init s-from-main s-proj s-pull s-vol";
        assert_eq!(names.join(" "), expected);
    }
}

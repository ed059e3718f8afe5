//! What a container takes from the cluster and from its volumes.

use std::collections::BTreeMap;
use std::path::Path;

use crablet_apiserver::{ObjectError, ServiceView};
use crablet_model::{PodRef, api};
use crablet_planner::pod::config::{
    self, ContainerInputs, EnvFile, EnvObjects, FileReference, Missing, MountedVolume, Service,
};
use crablet_planner::pod::status::is_static;
use futures_util::FutureExt;
use k8s_openapi::ByteString;
use tokio::task::unconstrained;

use super::{Hands, StartRefusal, config_error};

/// Far more than an environment may hold in all.
const MOST_OF_ENV_FILE: usize = 1 << 20;

impl Hands {
    pub(super) async fn sub_paths(
        &self,
        id: &PodRef,
        inputs: &ContainerInputs<'_>,
    ) -> Result<BTreeMap<usize, String>, StartRefusal> {
        let mut found = BTreeMap::new();
        for wanted in config::sub_paths(inputs).map_err(|e| config_error(&e.to_string()))? {
            let container = &inputs.container.name;
            let made = self.volumes.sub_path(id, container, &wanted).await;
            let path = made.map_err(|error| {
                tracing::warn!(
                    error, volume = wanted.volume, subPath = wanted.path, pod = id.object_ref(), podUID = %id.uid,
                    "cannot make a part of a volume ready"
                );
                let volume = &wanted.volume;
                config_error(&format!(
                    "failed to prepare subPath for volumeMount {volume:?} of container {container:?}"
                ))
            })?;
            found.insert(wanted.index, path);
        }
        Ok(found)
    }

    /// What the container's environment takes from the cluster and from volumes.
    pub(super) async fn env_objects(
        &self,
        pod: &api::Pod,
        container: &api::Container,
        volumes: &BTreeMap<String, MountedVolume>,
    ) -> Result<EnvObjects, StartRefusal> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let wanted = config::env_references(container);
        let mut objects = EnvObjects::default();
        for name in wanted.config_maps {
            let found = self.objects.config_map(namespace, &name).await;
            let data = found.map(|map| map.data.clone().unwrap_or_default()).map_err(missing);
            objects.config_maps.insert(name, data);
        }
        for name in wanted.secrets {
            let found = self.objects.secret(namespace, &name).await;
            let text =
                |(key, bytes): (&String, &ByteString)| (key.clone(), String::from_utf8(bytes.0.clone()).ok());
            let data = found.map(|secret| secret.data.iter().flatten().map(text).collect()).map_err(missing);
            objects.secrets.insert(name, data);
        }
        for reference in wanted.files {
            if let Some(volume) = volumes.get(&reference.volume).filter(|volume| !volume.block) {
                let file = self.env_file(volume, &reference).await;
                objects.files.insert(reference, file);
            }
        }
        let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
        let services = self.objects.services(namespace);
        let services = match is_static(pod) {
            // As upstream, a static pod does not wait for the API server: it is told of the services that are known.
            true => unconstrained(services).now_or_never().and_then(Result::ok).unwrap_or_default(),
            false => services.await.map_err(|e| config_error(&e.to_string()))?,
        };
        let told: Vec<Service> = services
            .into_iter()
            .filter(|s| links && &*s.namespace == namespace || is_master(s))
            .map(|s| Service {
                name: s.name.to_string(),
                cluster_ip: s.cluster_ip,
                ports: s.ports.into_iter().map(|p| (p.name, p.protocol, p.port)).collect(),
            })
            .collect();
        objects.services = config::service_env(&told);
        Ok(objects)
    }

    /// The pod's containers write such a file, so it may be a link to anywhere.
    async fn env_file(&self, volume: &MountedVolume, reference: &FileReference) -> EnvFile {
        let (root, path) = (Path::new(&volume.host_path), Path::new(&reference.path));
        let read = self.files.read_inside(root, path, MOST_OF_ENV_FILE).await;
        let text =
            read.map_err(|e| e.to_string()).and_then(|b| String::from_utf8(b).map_err(|e| e.to_string()));
        let path = root.join(path.strip_prefix("/").unwrap_or(path)).to_string_lossy().into_owned();
        if let Err(error) = &text {
            tracing::warn!(path, error, "cannot read a file of variables");
        }
        EnvFile { path, text }
    }
}

/// The service by which pods find the API server; every pod is told of it.
fn is_master(service: &ServiceView) -> bool {
    &*service.namespace == "default" && &*service.name == "kubernetes"
}

fn missing(error: ObjectError) -> Missing {
    match error {
        ObjectError::NotFound(text) => Missing::NotThere(text),
        ObjectError::Unavailable(text) => Missing::Unknown(text),
    }
}

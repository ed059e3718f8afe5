//! What a container takes from the cluster and from its volumes.

use std::collections::BTreeMap;
use std::path::Path;

use crablet_apiserver::{ObjectError, ServiceView};
use crablet_model::runtime::EnvValue;
use crablet_model::{PodRef, api};
use crablet_planner::pod::config::{
    self, ContainerInputs, EnvFile, EnvObjects, FileReference, Missing, MountedVolume, Service,
};
use crablet_planner::pod::status::is_static;
use futures_util::FutureExt;
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
                config_error(&error)
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
            objects.secrets.insert(name, found.map(|secret| values_of(&secret)).map_err(missing));
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
        objects.services = config::service_env(&told(services, namespace, links));
        Ok(objects)
    }

    /// The pod's containers write such a file, so it may be a link to anywhere.
    async fn env_file(&self, volume: &MountedVolume, reference: &FileReference) -> EnvFile {
        let (root, path) = (Path::new(&volume.host_path), Path::new(&reference.path));
        let read = self.files.read_inside(root, path, MOST_OF_ENV_FILE).await;
        let content = read.map_err(|e| e.to_string());
        let path = root.join(path.strip_prefix("/").unwrap_or(path)).to_string_lossy().into_owned();
        if let Err(error) = &content {
            tracing::warn!(path, error, "cannot read a file of variables");
        }
        EnvFile { path, content }
    }
}

fn values_of(secret: &api::Secret) -> BTreeMap<String, EnvValue> {
    let data = secret.data.iter().flatten();
    data.map(|(key, bytes)| (key.clone(), EnvValue::from(bytes.0.clone()))).collect()
}

/// The services that a pod hears of: with links those of its namespace, and the API server's in any case,
/// unless a link has that name.
fn told(services: Vec<ServiceView>, namespace: &str, links: bool) -> Vec<Service> {
    let is_link = |s: &ServiceView| links && &*s.namespace == namespace && !is_master(s);
    let replaced = services.iter().any(|s| is_link(s) && &*s.name == MASTER.1);
    let told = services.into_iter().filter(|s| if is_master(s) { !replaced } else { is_link(s) });
    told.map(|s| Service {
        name: s.name.to_string(),
        cluster_ip: s.cluster_ip,
        ports: s.ports.into_iter().map(|p| (p.name, p.protocol, p.port)).collect(),
    })
    .collect()
}

/// Namespace and name of the service by which pods find the API server.
const MASTER: (&str, &str) = ("default", "kubernetes");

fn is_master(service: &ServiceView) -> bool {
    (&*service.namespace, &*service.name) == MASTER
}

fn missing(error: ObjectError) -> Missing {
    match error {
        ObjectError::NotFound(text) => Missing::NotThere(text),
        ObjectError::Unavailable(text) => Missing::Unknown(text),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn every_pod_hears_of_the_api_server_unless_it_is_linked_to_another_of_that_name() {
        let service = |namespace: &str, name: &str, ip: &str| ServiceView {
            namespace: namespace.into(),
            name: name.into(),
            cluster_ip: ip.to_owned(),
            ports: Vec::new(),
        };
        let master = || service("default", "kubernetes", "10.0.0.1");
        let heard = |services: Vec<ServiceView>, namespace: &str, links: bool| -> Vec<String> {
            told(services, namespace, links).into_iter().map(|s| s.cluster_ip).collect()
        };
        let plain = || vec![master(), service("ns", "web", "10.0.0.2")];
        assert_eq!(heard(plain(), "ns", true), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(heard(plain(), "ns", false), ["10.0.0.1"]);
        let second = || vec![master(), service("ns", "kubernetes", "10.0.0.3")];
        assert_eq!(heard(second(), "ns", true), ["10.0.0.3"]);
        assert_eq!(heard(second(), "ns", false), ["10.0.0.1"]);
        let at_home = || vec![master(), service("default", "web", "10.0.0.4")];
        assert_eq!(heard(at_home(), "default", true), ["10.0.0.1", "10.0.0.4"]);
        assert_eq!(heard(at_home(), "default", false), ["10.0.0.1"]);
    }

    #[test]
    fn a_secrets_bytes_are_taken_as_they_are() {
        let data = BTreeMap::from([("key".to_owned(), ByteString(vec![0xff, 0]))]);
        let secret = api::Secret { data: Some(data), ..api::Secret::default() };
        let values = values_of(&secret);
        assert_eq!(values.get("key").map(EnvValue::as_bytes), Some(&[0xff, 0][..]));
    }
}

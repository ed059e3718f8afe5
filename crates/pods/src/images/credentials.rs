//! The credentials that an image may be pulled with: the pod's secrets, then the node's files, then programs that know.

use std::sync::Arc;

use crablet_apiserver::Objects;
use crablet_host::Files;
use crablet_model::events::Event;
use crablet_model::{PodRef, api};

use super::docker_config::{DockerConfig, NodeFiles};
use super::keyring::{Coordinates, Credential, Keyring, Owner, repository};
use super::providers::Providers;
use crate::events::EventSink;

pub(super) struct Credentials {
    pub objects: Arc<dyn Objects>,
    pub events: Arc<dyn EventSink>,
    pub files: Arc<dyn Files>,
    pub node: NodeFiles,
    pub providers: Providers,
}

impl Credentials {
    /// In the order in which they are tried. An error is for people, and tells no secret.
    pub async fn of(
        &self,
        id: &PodRef,
        pod: Option<&api::Pod>,
        image: &str,
    ) -> Result<Vec<Credential>, String> {
        let Some(repository) = repository(image) else { return Ok(Vec::new()) };
        let mut found = match pod {
            Some(pod) => self.of_secrets(id, pod).await?.look_up(&repository),
            None => Vec::new(),
        };
        let mut node = Keyring::default();
        node.add(&Owner::Node, &self.node.read(&*self.files).await);
        found.extend(node.look_up(&repository));
        found.extend(self.providers.look_up(&repository, id, pod).await);
        Ok(found)
    }

    async fn of_secrets(&self, id: &PodRef, pod: &api::Pod) -> Result<Keyring, String> {
        let mut keyring = Keyring::default();
        for secret in self.secrets(id, &Self::names(Some(pod))).await {
            add(&mut keyring, &secret)?;
        }
        Ok(keyring)
    }

    /// Names of the secrets that the pod pulls with.
    pub fn names(pod: Option<&api::Pod>) -> Vec<String> {
        let spec = pod.and_then(|pod| pod.spec.as_ref());
        let named = spec.into_iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        named.filter(|secret| !secret.name.is_empty()).map(|secret| secret.name.clone()).collect()
    }

    /// Those that can be had. Of the others the pod is told.
    pub async fn secrets(&self, id: &PodRef, names: &[String]) -> Vec<Arc<api::Secret>> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match self.objects.secret(&id.namespace, name).await {
                Ok(secret) => found.push(secret),
                Err(error) => {
                    tracing::warn!(
                        pod = id.object_ref(), podUID = %id.uid, secret = name, err = %error,
                        "Unable to retrieve pull secret, the image pull may not succeed."
                    );
                    missing.push(name.as_str());
                }
            }
        }
        if !missing.is_empty() {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.events.emit(Event::warning(id, "FailedToRetrieveImagePullSecret", text));
        }
        found
    }
}

/// A secret of another type, or without content, says nothing. One that is malformed is an error, as upstream has it.
fn add(keyring: &mut Keyring, secret: &api::Secret) -> Result<(), String> {
    let content = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
    };
    let parsed = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            content(".dockerconfigjson").map(DockerConfig::parse_with_auths)
        }
        Some("kubernetes.io/dockercfg") => content(".dockercfg").map(DockerConfig::parse),
        _ => None,
    };
    if let Some(parsed) = parsed {
        let meta = &secret.metadata;
        let owner = Owner::Secret(Coordinates {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        });
        keyring.add(&owner, &parsed?);
    }
    Ok(())
}

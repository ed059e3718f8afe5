//! Services, for the environment variables that tell of them.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::mirror::{Key, Mirror};
use crate::objects::{ObjectError, ServicePort, ServiceView};
use crate::port::Lane;
use crate::reflector::Reflection;

/// How long a pod waits for the first list.
const PATIENCE: Duration = Duration::from_secs(5);
const NEVER_READ: &str = "services have not yet been read at least once, cannot construct envvars";

/// The one service that pods of all namespaces are told of.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// What is kept besides the key.
pub(super) struct Service {
    cluster_ip: String,
    ports: Vec<ServicePort>,
}

pub(super) fn reflection() -> Reflection {
    Reflection {
        path: "/api/v1/services".to_owned(),
        selector: Some("spec.clusterIP!=None".to_owned()),
        lane: Lane::Main,
        timeout: (300, 600),
    }
}

/// Services without an address are not told of.
pub(super) fn read(object: &[u8]) -> Result<(Key, Option<Service>), serde_json::Error> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: Arc<str>,
        #[serde(default)]
        namespace: Arc<str>,
    }
    #[derive(Default, Deserialize)]
    struct Spec {
        #[serde(rename = "clusterIP", default)]
        cluster_ip: String,
        #[serde(default)]
        ports: Option<Vec<Port>>,
    }
    #[derive(Deserialize)]
    struct Port {
        #[serde(default)]
        name: String,
        #[serde(default)]
        protocol: String,
        #[serde(default)]
        port: i32,
    }
    let Object { metadata, spec } = serde_json::from_slice(object)?;
    let addressed = !spec.cluster_ip.is_empty() && spec.cluster_ip != "None";
    let service = addressed.then(|| Service {
        cluster_ip: spec.cluster_ip,
        ports: spec
            .ports
            .into_iter()
            .flatten()
            .map(|port| ServicePort { name: port.name, protocol: port.protocol, port: port.port })
            .collect(),
    });
    Ok(((metadata.namespace, metadata.name), service))
}

/// The namespace's own, and the cluster's API server.
pub(super) async fn of(mirror: &Mirror<Service>, namespace: &str) -> Result<Vec<ServiceView>, ObjectError> {
    if !mirror.known_within(PATIENCE).await {
        return Err(ObjectError::Unavailable(NEVER_READ.to_owned()));
    }
    let items = mirror.items();
    let start: Key = (Arc::from(namespace), Arc::from(""));
    let own = items.range((Bound::Included(start), Bound::Unbounded));
    let mut views: Vec<ServiceView> =
        own.take_while(|((ns, _), _)| &**ns == namespace).map(|(key, service)| view(key, service)).collect();
    let master: Key = (Arc::from(MASTER.0), Arc::from(MASTER.1));
    if namespace != MASTER.0
        && let Some(service) = items.get(&master)
    {
        views.push(view(&master, service));
        views.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    Ok(views)
}

fn view((namespace, name): &Key, service: &Service) -> ServiceView {
    ServiceView {
        namespace: namespace.clone(),
        name: name.clone(),
        cluster_ip: service.cluster_ip.clone(),
        ports: service.ports.clone(),
    }
}

//! An agent's view of an API server in memory, as its watch gives it.

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::fake::{Asked, FakeApiServer};
use crablet_apiserver::{ApiServer, Lane, Reflected, Reflection, Verb, reflect};
use crablet_model::{PodRef, api};
use futures_util::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Cluster;

pub const NODE_UID: &str = "n0de";

/// A life of the agent, as far as the cluster notices it.
pub struct Life {
    pub api: Arc<FakeApiServer>,
    pub cluster: Arc<Cluster>,
    tasks: JoinSet<()>,
}

impl Life {
    pub fn new() -> Self {
        Self::of(FakeApiServer::new(Arc::new(|| Timestamp::UNIX_EPOCH)))
    }

    pub fn of(api: Arc<FakeApiServer>) -> Self {
        let mut tasks = JoinSet::new();
        let cluster = Cluster::start(api.clone(), "n1", &mut tasks);
        Self { api, cluster, tasks }
    }

    /// A life that knows its Node, follows the watch, and whose sources have spoken.
    pub async fn complete() -> Self {
        let mut life = Self::new();
        life.cluster.mirrors.set_node(Some(NODE_UID.to_owned()));
        life.cluster.mirrors.sources_ready();
        life.follow();
        settle().await;
        life
    }

    /// The watch begins.
    pub fn follow(&mut self) {
        let (api, cluster): (Arc<dyn ApiServer>, _) = (self.api.clone(), self.cluster.clone());
        self.tasks.spawn(async move {
            let what = Reflection {
                path: "/api/v1/pods".to_owned(),
                selector: Some("spec.nodeName=n1".to_owned()),
                lane: Lane::Main,
                timeout: (300, 600),
            };
            let pod = |json: &[u8]| serde_json::from_slice::<api::Pod>(json).expect("a pod");
            let mut changes = reflect(api, what, 7);
            while let Some(change) = changes.next().await {
                match change {
                    Reflected::Replaced(all) => {
                        cluster.replaced(&all.iter().map(|json| pod(json)).collect::<Vec<_>>());
                    }
                    Reflected::Applied(json) => cluster.seen(&pod(&json)),
                    Reflected::Deleted(json) => cluster.gone(&PodRef::of(&pod(&json))),
                    Reflected::Failed(_) => {}
                }
            }
        });
    }

    /// A source has a static pod of this content.
    pub fn want(&self, content: &str) -> PodRef {
        let (id, json) = static_pod(content);
        self.cluster.mirrors.wanted(&id, &json.to_string().into_bytes().into());
        id
    }

    pub fn publish(&self, id: &PodRef, status: Value) {
        let decoded: api::PodStatus = serde_json::from_value(status.clone()).expect("a status");
        let json = status.to_string().into_bytes().into();
        self.cluster.statuses.publish(id, true, &decoded, &json, false);
    }

    /// The mirror, if there is one.
    pub fn mirror(&self) -> Option<Value> {
        self.api.get("pods", "kube-system", "etcd-n1")
    }

    pub fn mirror_uid(&self) -> String {
        self.mirror().expect("a mirror")["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// What was asked of the server since the last time, watches aside.
    pub fn said(&self) -> Vec<String> {
        let name = |call: Verb| match call {
            Verb::Post => "create",
            Verb::Delete => "delete",
            Verb::StrategicPatch => "patch",
            other => panic!("nobody needs {other:?}"),
        };
        let calls = self.api.take_calls().into_iter();
        let verbs = calls.filter_map(|call| match call.asked {
            Asked::Call(verb) => Some(name(verb).to_owned()),
            Asked::Watch => None,
        });
        verbs.collect()
    }
}

/// A static pod as the sources state it: its UID is the hash of its content.
pub fn static_pod(content: &str) -> (PodRef, Value) {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "etcd-n1", "namespace": "kube-system", "uid": content, "labels": {"tier": "control-plane"},
            "annotations": {
                "kubernetes.io/config.hash": content, "kubernetes.io/config.source": "file",
                "kubernetes.io/config.seen": "1970-01-01T00:00:00.000000000Z",
            },
        },
        "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "etcd", "image": content}]},
        "status": {"phase": "Pending"},
    });
    (PodRef::new("etcd-n1", "kube-system", content), json)
}

/// Everything that can happen now has happened.
pub async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

pub async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

//! The CSINode object: which volume plugins of old are served through CSI here. Without it the node is not ready, as
//! upstream has it.

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ApiError, ErrorKind, Verb};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cache::NodeView;
use crate::calls::{Calls, parsed};
use crate::facts::changed;
use crate::said::Said;

const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const MIGRATED_PLUGINS: [&str; 7] = [
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
];
const FIRST_PAUSE: Duration = Duration::from_millis(30);
/// While nothing answers.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Tries until it succeeds, and says in `storage` what is wrong until then.
pub(crate) async fn initialize(
    calls: Calls,
    mut node: watch::Receiver<Arc<NodeView>>,
    storage: watch::Sender<Option<String>>,
) {
    let mut pause = FIRST_PAUSE;
    let mut said = Said::default();
    loop {
        let uid = node_uid(&mut node).await;
        let Err(error) = try_initialize(&calls, &uid).await else { break };
        if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
            sleep(OUTAGE_PAUSE).await;
            continue;
        }
        let problem = format!("failed to initialize CSINode: {error}");
        if said.is_news(&problem) {
            tracing::error!(err = %error, "Failed to initialize CSINode");
        }
        storage.send_replace(Some(problem));
        sleep(pause).await;
        pause = (pause * 8).min(LONGEST_PAUSE);
    }
    storage.send_replace(None);
}

/// Waits for a Node to belong to.
async fn node_uid(node: &mut watch::Receiver<Arc<NodeView>>) -> String {
    loop {
        if let Some(uid) = &node.borrow_and_update().uid {
            return uid.clone();
        }
        changed(node).await;
    }
}

async fn try_initialize(calls: &Calls, uid: &str) -> Result<(), ApiError> {
    let path = calls.csi_node_path();
    match calls.main(Verb::Get, path.clone(), "").await {
        Err(error) if error.is_not_found() => create(calls, uid).await.map(drop),
        Err(error) => Err(error),
        Ok(json) => {
            let mut existing = parsed(&json)?;
            if !owned_by(&existing, uid) {
                // Of a Node that had the same name.
                match calls.main(Verb::Delete, path, "").await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => return create(calls, uid).await.map(drop),
                }
            }
            let annotations = &mut existing["metadata"]["annotations"];
            if annotations[MIGRATED].as_str().is_some_and(is_complete) {
                return Ok(());
            }
            annotations[MIGRATED] = json!(MIGRATED_PLUGINS.join(","));
            calls.main(Verb::Put, path, existing.to_string()).await.map(drop)
        }
    }
}

/// Gives back what the API server made of it.
pub(crate) async fn create(calls: &Calls, uid: &str) -> Result<Value, ApiError> {
    let new = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": &*calls.node,
            "annotations": {MIGRATED: MIGRATED_PLUGINS.join(",")},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": &*calls.node, "uid": uid}],
        },
        "spec": {"drivers": []},
    });
    let path = "/apis/storage.k8s.io/v1/csinodes".to_owned();
    parsed(&calls.main(Verb::Post, path, new.to_string()).await?)
}

pub(crate) fn owned_by(csi_node: &Value, uid: &str) -> bool {
    let owners = csi_node["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "Node" && owner["uid"] == uid))
}

fn is_complete(annotation: &str) -> bool {
    let mut listed: Vec<_> = annotation.split(',').collect();
    listed.sort_unstable();
    listed == MIGRATED_PLUGINS
}

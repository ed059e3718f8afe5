//! The Node object to the volumes that wait for attachments.

use std::sync::Arc;

use crablet_node::NodeView;
use crablet_volumes::NodeStorage;
use tokio::sync::watch;

pub fn follow(storage: &watch::Sender<Arc<NodeStorage>>, node: &NodeView) {
    storage.send_if_modified(|known| {
        let fresh = NodeStorage {
            name: known.name.clone(),
            labels: node.labels.clone(),
            attached: node.volumes_attached.clone(),
            in_use: node.volumes_in_use.clone(),
            known: node.uid.is_some(),
        };
        let is_new = fresh != **known;
        if is_new {
            *known = Arc::new(fresh);
        }
        is_new
    });
}

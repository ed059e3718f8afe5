//! The node's resolver settings to the Node: said once, at the start, what of them pods will not get.

use std::path::PathBuf;
use std::sync::Arc;

use crablet_host::Files;
use crablet_node::NodeEvents;
use crablet_pods::hands::check_resolv_conf;

use super::neighbours::Events;

pub async fn check(path: PathBuf, cluster_domain: String, files: Arc<dyn Files>, events: Arc<Events>) {
    if let Some(event) = check_resolv_conf(&*files, &path, &cluster_domain).await {
        NodeEvents::emit(&*events, event);
    }
    // The agent's tasks live as long as it does.
    std::future::pending().await
}

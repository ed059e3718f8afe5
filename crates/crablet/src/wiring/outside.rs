//! What the agent has of the cluster: objects that pods name, the recorder of events, and pods' statuses and mirrors.

use std::sync::Arc;

use crablet_apiserver::events::Recorder;
use crablet_apiserver::{ClusterObjects, NoObjects, ObjectSettings, Objects, Strategy};
use crablet_config::{ChangeDetection, Settings};
use crablet_pods::cluster::Cluster;
use tokio::task::JoinSet;

use super::Ports;
use super::neighbours::Events;

/// What the agent has of the cluster; in standalone mode, what stands for it.
pub struct Outside {
    pub objects: Arc<dyn Objects>,
    pub events: Arc<Events>,
    pub cluster: Option<Arc<Cluster>>,
}

impl Outside {
    pub fn start(
        settings: &Settings,
        ports: &Ports,
        seeds: &mut fastrand::Rng,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let local = ports.events.clone();
        let Some(api) = &ports.api else {
            let events = Arc::new(Events { recorder: None, local });
            return Self { objects: Arc::new(NoObjects::default()), events, cluster: None };
        };
        let clock = ports.clock.clone();
        let now: crablet_apiserver::Now = Arc::new(move || clock.now());
        let strategy = match settings.change_detection_strategy {
            ChangeDetection::Watch => Strategy::Watch,
            ChangeDetection::Cache => Strategy::Cache,
            ChangeDetection::Get => Strategy::Get,
        };
        let wanted = ObjectSettings { strategy, sync_frequency: settings.sync_frequency };
        let objects = ClusterObjects::start(api.clone(), now.clone(), wanted, seeds.u64(..), tasks);
        let recorder = Recorder::start(api.clone(), now, &settings.node_name, seeds.u64(..), tasks);
        let cluster = Cluster::start(api.clone(), &settings.node_name, tasks);
        Self { objects, events: Arc::new(Events { recorder: Some(recorder), local }), cluster: Some(cluster) }
    }
}

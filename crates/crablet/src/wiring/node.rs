//! The node's part of the wiring: what it is told at start, and who hears what it finds out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::ApiServer;
use crablet_config::{KUBERNETES_VERSION, Settings};
use crablet_cri::Runtime;
use crablet_host::Clock;
use crablet_model::api;
use crablet_model::quantity::Quantity;
use crablet_model::runtime::ListedImage;
use crablet_node::{CsiDrivers, NodeHost, NodePorts, NodeSettings, NodeView, RuntimeState};
use crablet_planner::node::admission::AdmissionNode;
use crablet_planner::node::admission::features::RESTART_ALL_CONTAINERS;
use crablet_planner::pod::NodeFacts;
use crablet_pods::cluster::Cluster;
use crablet_pods::images::Images;
use crablet_pods::pleg::RuntimeHealth;
use crablet_volumes::NodeStorage;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::main_port::WEBSOCKETS;
use super::neighbours::Events;

/// Between two looks at the images without a reason.
const IMAGES_PACE: Duration = Duration::from_secs(300);
/// Pulls come in bursts: one look for all of them.
const AFTER_PULL: Duration = Duration::from_secs(2);
/// As upstream: how long a runtime may be out of reach before the node says so.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(30);
const LIST_DEADLINE: Duration = Duration::from_secs(30);

/// What the node needs of the rest, and the rest of it.
pub struct NodeSide {
    pub api: Option<Arc<dyn ApiServer>>,
    pub clock: Arc<dyn Clock>,
    pub host: Arc<dyn NodeHost>,
    pub events: Arc<Events>,
    pub runtime: Arc<dyn Runtime>,
    pub health: watch::Receiver<RuntimeHealth>,
    pub images: Arc<Images>,
    pub facts: watch::Sender<Arc<NodeFacts>>,
    /// What volumes see of the Node, and what the Node tells of them.
    pub storage: watch::Sender<Arc<NodeStorage>>,
    pub volumes_in_use: watch::Receiver<Option<Arc<Vec<String>>>>,
    /// For the judgement of new pods.
    pub admission: watch::Sender<Arc<AdmissionNode>>,
    pub known: watch::Sender<bool>,
    pub cluster: Option<Arc<Cluster>>,
    pub seed: u64,
}

/// Starts the node and all who listen to it.
pub fn join(
    settings: &Settings,
    side: NodeSide,
    tasks: &mut JoinSet<()>,
) -> (watch::Receiver<Arc<NodeView>>, CsiDrivers) {
    let (state, is_healthy) = watch::channel(RuntimeState::default());
    let (listed, images) = watch::channel(Arc::new(Vec::<api::ContainerImage>::new()));
    let joined = side.api.is_some();
    let ports = NodePorts {
        api: side.api,
        clock: side.clock.clone(),
        host: side.host,
        events: side.events,
        health: is_healthy,
        images,
        volumes_in_use: side.volumes_in_use,
        seed: side.seed,
    };
    let node = crablet_node::start(node_settings(settings), ports, tasks);
    let view = node.node();
    tasks.spawn(follow_health(side.health, state));
    if joined {
        tasks.spawn(follow_images(side.runtime.clone(), side.clock.clone(), side.images.clone(), listed));
    }
    let told =
        ToldOfNode { facts: side.facts, admission: side.admission, storage: side.storage, known: side.known };
    tasks.spawn(follow_node(view.clone(), told, side.cluster, side.runtime));
    (view, node.csi_drivers())
}

fn node_settings(settings: &Settings) -> NodeSettings {
    let quantities = |map: &BTreeMap<String, String>| {
        map.iter().filter_map(|(name, text)| Some((name.clone(), Quantity::parse(text).ok()?))).collect()
    };
    let taint = |taint: &crablet_config::Taint| api::Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: None,
    };
    NodeSettings {
        node_name: settings.node_name.clone(),
        labels: settings.node_labels.clone(),
        taints: settings.register_with_taints.iter().map(taint).collect(),
        register: settings.register_node,
        node_ips: settings.node_ips.clone(),
        cloud_external: settings.cloud_provider_external,
        provider_id: settings.provider_id.clone(),
        port: settings.port,
        status_update: settings.node_status_update_frequency,
        status_report: settings.node_status_report_frequency,
        lease_seconds: i32::try_from(settings.node_lease_duration_seconds).unwrap_or(i32::MAX),
        max_pods: settings.max_pods.into(),
        pods_per_core: settings.pods_per_core.into(),
        system_reserved: quantities(&settings.system_reserved),
        kube_reserved: quantities(&settings.kube_reserved),
        eviction_hard: match settings.allocatable_ignores_eviction {
            true => BTreeMap::new(),
            false => settings.eviction_hard.clone(),
        },
        max_images: settings.node_status_max_images.map_or(-1, |max| i32::try_from(max).unwrap_or(-1)),
        controller_attach_detach: settings.enable_controller_attach_detach,
        local_storage_isolation: settings.local_storage_capacity_isolation,
        kubelet_version: KUBERNETES_VERSION.to_owned(),
        declared_features: declared_features(settings),
    }
}

/// Tells the node how the runtime is. A runtime that is out of reach for a moment is none of the cluster's business.
async fn follow_health(mut health: watch::Receiver<RuntimeHealth>, state: watch::Sender<RuntimeState>) {
    loop {
        let now = health.borrow_and_update().clone();
        let is_lost = now.lost.is_some();
        if !is_lost {
            state.send_replace(state_of(&now, None));
        }
        let changed = health.changed();
        let next = match is_lost {
            true => timeout(RUNTIME_PATIENCE, changed).await,
            false => Ok(changed.await),
        };
        match next {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                state.send_replace(state_of(&now, Some("container runtime is down")));
                if health.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

fn state_of(health: &RuntimeHealth, down: Option<&str>) -> RuntimeState {
    let status = health.status.clone().unwrap_or_default();
    let problem = status.problem.map(|problem| format!("container runtime not ready: {problem}"));
    RuntimeState {
        checked: health.status.is_some(),
        version: Some(health.version.clone()).filter(|version| !version.is_empty()),
        errors: down.map(str::to_owned).into_iter().chain(problem).collect(),
        network_error: status
            .network_problem
            .map(|problem| format!("container runtime network not ready: {problem}")),
        handlers: status.handlers,
        supplemental_groups_policy: status.supplemental_groups_policy,
        shutting_down: false,
    }
}

/// Keeps the list of images that the Node shows: looked at after pulls, and now and then without a reason.
async fn follow_images(
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    known: Arc<Images>,
    images: watch::Sender<Arc<Vec<api::ContainerImage>>>,
) {
    let pulled = known.pulled();
    loop {
        let asked_at = clock.now();
        match timeout(LIST_DEADLINE, runtime.list_images()).await {
            Ok(Ok(listed)) => {
                known.forget_absent(&listed, asked_at).await;
                let fresh = Arc::new(shown(listed));
                images.send_if_modified(|known| {
                    let is_new = *known != fresh;
                    *known = fresh;
                    is_new
                });
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "Cannot list images; the Node shows those that were known")
            }
            Err(_) => tracing::warn!(
                "The runtime does not list its images in time; the Node shows those that were known"
            ),
        }
        // A pull notifies; otherwise it is time.
        if timeout(IMAGES_PACE, pulled.notified()).await.is_ok() {
            sleep(AFTER_PULL).await;
        }
    }
}

/// Images of one size in the order of their ids, last first, as upstream.
fn shown(mut listed: Vec<ListedImage>) -> Vec<api::ContainerImage> {
    listed.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id)));
    let shown = |image: ListedImage| api::ContainerImage {
        names: Some(image.digests.into_iter().chain(image.tags).collect()),
        size_bytes: i64::try_from(image.size).ok(),
    };
    listed.into_iter().map(shown).collect()
}

/// Who hears of the Node.
struct ToldOfNode {
    facts: watch::Sender<Arc<NodeFacts>>,
    admission: watch::Sender<Arc<AdmissionNode>>,
    known: watch::Sender<bool>,
    storage: watch::Sender<Arc<NodeStorage>>,
}

/// Tells everybody what the Node object says: addresses and amounts to the pods, its owner to the mirrors, pods' addresses
/// to the runtime.
async fn follow_node(
    mut view: watch::Receiver<Arc<NodeView>>,
    told: ToldOfNode,
    cluster: Option<Arc<Cluster>>,
    runtime: Arc<dyn Runtime>,
) {
    let mut cidrs = Vec::new();
    loop {
        let node = view.borrow_and_update().clone();
        super::admission::follow(&told.admission, &node);
        super::storage::follow(&told.storage, &node);
        told.facts.send_if_modified(|facts| {
            let mut fresh = (**facts).clone();
            take_in(&mut fresh, &node, cluster.is_some());
            let is_new = fresh != **facts;
            if is_new {
                *facts = Arc::new(fresh);
            }
            is_new
        });
        if let Some(cluster) = &cluster {
            cluster.mirrors.set_node(node.uid.clone().filter(|_| !node.deleting));
        }
        if node.pod_cidrs != cidrs {
            cidrs.clone_from(&node.pod_cidrs);
            if let Err(error) = runtime.set_pod_cidr(&cidrs.join(",")).await {
                tracing::warn!(%error, podCIDR = cidrs.join(","), "the runtime does not take the addresses of pods");
            }
        }
        // Last: who waits for the node finds all of the above done.
        told.known.send_if_modified(|known| !std::mem::replace(known, node.synced) && node.synced);
        if view.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

fn take_in(facts: &mut NodeFacts, node: &NodeView, joined: bool) {
    facts.own_ips = one_of_each_family(&node.host_ips);
    // As upstream: the pods of a node that stands alone show no address of it.
    if joined {
        facts.host_ips.clone_from(&facts.own_ips);
    }
    let amount = |name: &str| node.allocatable.get(name);
    if let Some(memory) = amount("memory") {
        facts.allocatable_memory = memory.value();
    }
    if let Some(cpu) = amount("cpu") {
        facts.allocatable_milli_cpu = cpu.milli_value();
    }
    if let Some(storage) = amount("ephemeral-storage") {
        facts.allocatable_storage = storage.value();
    }
}

/// What pods hear of the node's addresses: the first, and the first of the other family. The API server refuses statuses
/// with more.
fn one_of_each_family(ips: &[IpAddr]) -> Vec<IpAddr> {
    let Some(first) = ips.first() else { return Vec::new() };
    let other = ips.iter().find(|ip| ip.is_ipv6() != first.is_ipv6());
    [first].into_iter().chain(other).copied().collect()
}

/// Other resources for a pod as a whole, and for init containers, while they run.
const RESIZE_WHOLE: &str = "InPlacePodLevelResourcesVerticalScaling";
const RESIZE_INIT: &str = "InPlacePodVerticalScalingInitContainers";

/// Of what upstream's nodes declare, what is there. The API server relies upon it.
pub fn declared_features(settings: &Settings) -> Vec<String> {
    let gate = |name: &&str| settings.feature_gates.enabled(name);
    let there = [WEBSOCKETS, RESIZE_WHOLE, RESIZE_INIT, RESTART_ALL_CONTAINERS].into_iter().filter(gate);
    if gate(&"NodeDeclaredFeatures") { there.map(str::to_owned).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn pods_hear_of_one_address_of_each_family() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["10.0.0.5"], &["10.0.0.5"]),
            (&["10.0.0.5", "34.1.2.3"], &["10.0.0.5"]),
            (&["10.0.0.5", "10.0.1.5", "fd00::5", "fd00::6"], &["10.0.0.5", "fd00::5"]),
            (&["fd00::5", "fd00::6", "10.0.0.5"], &["fd00::5", "10.0.0.5"]),
        ];
        for (all, told) in cases {
            assert_eq!(one_of_each_family(&ips(all)), ips(told), "{all:?}");
        }
    }

    #[test]
    fn statuses_show_no_address_of_a_node_that_stands_alone() {
        let node = NodeView { host_ips: ips(&["10.0.0.5", "34.1.2.3"]), ..NodeView::default() };
        let mut facts = NodeFacts::default();
        take_in(&mut facts, &node, false);
        assert_eq!((&facts.own_ips, facts.host_ips.len()), (&ips(&["10.0.0.5"]), 0));
        take_in(&mut facts, &node, true);
        assert_eq!(facts.host_ips, facts.own_ips);
    }
}

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
use crablet_model::duration::Go;
use crablet_model::quantity::Quantity;
use crablet_model::runtime::ListedImage;
use crablet_node::{CsiDrivers, NodeHost, NodePorts, NodeSettings, NodeView, RuntimeState};
use crablet_planner::node::admission::AdmissionNode;
use crablet_planner::node::admission::features::RESTART_ALL_CONTAINERS;
use crablet_planner::node::conditions::RUNTIME_DOWN;
use crablet_planner::pod::NodeFacts;
use crablet_pods::cluster::Cluster;
use crablet_pods::images::Images;
use crablet_pods::pleg::RuntimeHealth;
use crablet_volumes::NodeStorage;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::main_port::WEBSOCKETS;
use super::neighbours::Events;

/// As upstream: between two looks at the images without a reason.
const IMAGES_PACE: Duration = Duration::from_secs(30);
/// As upstream: between two looks through the records of pulls for images that are no more.
const RECORDS_PACE: Duration = Duration::from_secs(300);
/// Pulls come in bursts: one look for all of them.
const AFTER_PULL: Duration = Duration::from_secs(2);
/// As upstream: how long a runtime may be out of reach before the node says so.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(30);
/// As upstream: how long it may fail to list its pods.
const UNLISTED_PATIENCE: Duration = Duration::from_secs(180);
/// When the runtime is told of pods' addresses again that it did not take.
const CIDR_PACE: Duration = Duration::from_secs(10);
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
    let mut lost_since: Option<Instant> = None;
    loop {
        let now = health.borrow_and_update().clone();
        let at = Instant::now();
        lost_since = now.lost.as_ref().map(|_| lost_since.unwrap_or(at));
        // As upstream: one that was never reached is not down, it was not looked at yet.
        let down_at = lost_since.filter(|_| now.status.is_some()).map(|since| since + RUNTIME_PATIENCE);
        let stale_at = now.unlisted.then(|| now.listed.map_or(at, |listed| listed + UNLISTED_PATIENCE));
        let is_over = |limit: Option<Instant>| limit.is_some_and(|limit| limit <= at);
        let errors = [
            is_over(down_at).then(|| RUNTIME_DOWN.to_owned()),
            is_over(stale_at).then(|| unlisted(now.listed.map(|listed| at - listed))),
        ];
        let fresh = state_of(now, errors.into_iter().flatten());
        state.send_if_modified(|known| {
            let is_new = *known != fresh;
            *known = fresh;
            is_new
        });
        let changed = match [down_at, stale_at].into_iter().flatten().filter(|limit| *limit > at).min() {
            Some(limit) => timeout_at(limit, health.changed()).await.unwrap_or(Ok(())),
            None => health.changed().await,
        };
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The time is that of the moment when it is said: a Node whose status changes all the time helps nobody.
fn unlisted(since: Option<Duration>) -> String {
    let why = match since {
        Some(since) => {
            format!("pleg was last seen active {} ago; threshold is {}", Go(since), Go(UNLISTED_PATIENCE))
        }
        None => "pleg has yet to be successful".to_owned(),
    };
    format!("PLEG is not healthy: {why}")
}

fn state_of(health: RuntimeHealth, errors: impl Iterator<Item = String>) -> RuntimeState {
    let checked = health.status.is_some();
    let status = health.status.unwrap_or_default();
    let problem = status.problem.map(|problem| format!("container runtime not ready: {problem}"));
    RuntimeState {
        checked,
        version: Some(health.version).filter(|version| !version.is_empty()),
        errors: errors.chain(problem).collect(),
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
    let (mut is_due, mut tidied) = (true, Instant::now());
    loop {
        let asked_at = clock.now();
        match timeout(LIST_DEADLINE, runtime.list_images()).await {
            Ok(Ok(listed)) => {
                // It reads every record: not each time.
                if std::mem::take(&mut is_due) {
                    known.forget_absent(&listed, asked_at).await;
                    tidied = Instant::now();
                }
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
        let is_pulled = timeout(IMAGES_PACE, pulled.notified()).await.is_ok();
        if is_pulled {
            sleep(AFTER_PULL).await;
        }
        is_due |= is_pulled || tidied.elapsed() >= RECORDS_PACE;
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
        let took = take_cidrs(&*runtime, &node.pod_cidrs, &mut cidrs).await;
        // Last: who waits for the node finds all of the above done.
        told.known.send_if_modified(|known| !std::mem::replace(known, node.synced) && node.synced);
        let changed = match took {
            true => view.changed().await,
            // Cancel-safe: a change that is not waited for to the end is seen by the next.
            false => timeout(CIDR_PACE, view.changed()).await.unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Tells the runtime once which addresses pods get. As upstream: a Node that names none changes nothing. `false`
/// where the runtime has to be told again.
async fn take_cidrs(runtime: &dyn Runtime, wanted: &[String], taken: &mut Vec<String>) -> bool {
    if wanted.is_empty() || wanted == taken.as_slice() {
        return true;
    }
    let cidrs = wanted.join(",");
    match runtime.set_pod_cidr(&cidrs).await {
        Ok(()) => {
            *taken = wanted.to_vec();
            true
        }
        Err(error) => {
            tracing::warn!(%error, podCIDR = cidrs, "the runtime does not take the addresses of pods yet");
            false
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
    use crablet_cri::fake::{Call, CallFault, FakeRuntime, FaultKind, RuntimeSettings, What};
    use crablet_model::runtime::RuntimeStatus;
    use jiff::Timestamp;

    use super::*;

    async fn seconds(seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    /// Somebody who follows a runtime's health, and what the node hears of it.
    fn followed(health: RuntimeHealth) -> (watch::Sender<RuntimeHealth>, watch::Receiver<RuntimeState>) {
        let (health, told) = watch::channel(health);
        let (state, heard) = watch::channel(RuntimeState::default());
        tokio::spawn(follow_health(told, state));
        (health, heard)
    }

    fn well() -> RuntimeHealth {
        RuntimeHealth {
            status: Some(RuntimeStatus::default()),
            listed: Some(Instant::now()),
            ..RuntimeHealth::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_list_its_pods_is_told_of_after_three_minutes() {
        let (health, state) = followed(well());
        let errors = || state.borrow().errors.join("; ");
        health.send_modify(|health| health.unlisted = true);
        seconds(179).await;
        assert_eq!(errors(), "");
        seconds(2).await;
        let error = errors();
        assert!(error.starts_with("PLEG is not healthy: pleg was last seen active 3m0"), "{error}");
        assert!(error.ends_with("s ago; threshold is 3m0s"), "{error}");
        seconds(600).await;
        assert_eq!(errors(), error, "and the Node rests");
        health.send_replace(well());
        seconds(1).await;
        assert_eq!(errors(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_is_out_of_reach_is_told_of_after_half_a_minute() {
        let (health, state) = followed(well());
        let errors = || state.borrow().errors.join("; ");
        let lost = RuntimeHealth { lost: Some("gone".to_owned()), unlisted: true, ..well() };
        health.send_replace(lost);
        seconds(20).await;
        // Other news is no news of this.
        health.send_modify(|health| health.version = "fake://2".to_owned());
        seconds(9).await;
        assert_eq!(errors(), "");
        seconds(2).await;
        assert_eq!(errors(), RUNTIME_DOWN);
        seconds(180).await;
        assert!(errors().starts_with("container runtime is down; PLEG is not healthy: "), "{}", errors());
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_was_never_there_is_not_down() {
        let lost = Some("no such socket".to_owned());
        let (_health, state) = followed(RuntimeHealth { lost, unlisted: true, ..RuntimeHealth::default() });
        seconds(60).await;
        let state = state.borrow().clone();
        assert_eq!(state.errors, ["PLEG is not healthy: pleg has yet to be successful"]);
        assert!(!state.checked);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_addresses_are_told_until_the_runtime_takes_them() {
        let random = fastrand::Rng::with_seed(7);
        let runtime =
            FakeRuntime::new(RuntimeSettings::default(), random, Arc::new(|| Timestamp::UNIX_EPOCH));
        let refusal = FaultKind::ErrBefore("not now".to_owned());
        runtime.add_fault(CallFault::on(Call::SetPodCidr, refusal).times(2));
        let times = || {
            let is_it = |what: &What| matches!(what, What::Called { call: Call::SetPodCidr, .. });
            runtime.read_trace(|trace| trace.iter().filter(|entry| is_it(&entry.what)).count())
        };
        let given = NodeView { pod_cidrs: vec!["10.1.0.0/24".to_owned()], ..NodeView::default() };
        let view = watch::Sender::new(Arc::new(given.clone()));
        let told = ToldOfNode {
            facts: watch::Sender::default(),
            admission: watch::Sender::default(),
            known: watch::Sender::default(),
            storage: watch::Sender::default(),
        };
        tokio::spawn(follow_node(view.subscribe(), told, None, Arc::new(runtime.clone())));
        seconds(9).await;
        assert_eq!(times(), 1);
        seconds(10).await;
        assert_eq!(times(), 2);
        seconds(600).await;
        assert_eq!(times(), 3, "taken");
        // A Node that has gone takes nothing from the pods that run.
        view.send_replace(Arc::default());
        seconds(60).await;
        view.send_replace(Arc::new(given));
        seconds(60).await;
        assert_eq!(times(), 3);
        let others = NodeView { pod_cidrs: vec!["10.2.0.0/24".to_owned()], ..NodeView::default() };
        view.send_replace(Arc::new(others));
        seconds(1).await;
        assert_eq!(times(), 4);
    }

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

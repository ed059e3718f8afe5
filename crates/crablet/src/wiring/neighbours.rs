//! Joins rooms that do not know each other: each declares what it needs, and here is who does it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use crablet_apiserver::events::Recorder;
use crablet_config::Settings;
use crablet_cri::ErrorKind;
use crablet_cri::client::CriClient;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};
use crablet_model::events::{ClaimEvent, Event, NodeEvent};
use crablet_model::names::event_reason;
use crablet_model::quantity::Quantity;
use crablet_model::{PodRef, PodUid, api};
use crablet_node::NodeEvents;
use crablet_planner::pod::config::{MountedVolume, SubPath};
use crablet_pods::events::{EventSink, LogEvents};
use crablet_pods::ports::{PodCgroups, PodVolumes, Refusal};
use crablet_resources::{CgroupSettings, Cgroups, LinuxCgroups, NodeLimits};
use crablet_volumes::{VolumeEvents, Volumes};
use tokio::sync::OnceCell;

use crate::machine::Machine;

/// The reason of a pod whose volumes would be more than the node can have.
const VOLUME_LIMIT: &str = "VolumeAttachmentLimitExceeded";
/// Said of each node that still has cgroup v1.
const CGROUP_V1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
    Please migrate to cgroup v2. More information at \
    https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/// Pods' volumes, as the pods room wants them.
pub struct TheVolumes(pub Arc<Volumes>);

#[async_trait]
impl PodVolumes for TheVolumes {
    async fn set_up(&self, pod: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String> {
        self.0.set_up(pod).await
    }

    async fn refusal(&self, id: &PodRef) -> Option<Refusal> {
        let message = self.0.refusal(&id.uid).await?;
        Some(Refusal { reason: VOLUME_LIMIT, message })
    }

    fn pod_changed(&self, id: &PodRef, json: &Arc<[u8]>) {
        self.0.pod_changed(json.clone(), id);
    }

    async fn sub_path(&self, id: &PodRef, container: &str, wanted: &SubPath) -> Result<String, String> {
        self.0.sub_path(id, container, wanted.index, &wanted.volume, &wanted.path).await
    }

    async fn tear_down(&self, id: &PodRef) -> Result<(), String> {
        self.0.tear_down(id).await
    }
}

/// Pods' cgroups. Made when the first pod needs them, because only the runtime knows who manages cgroups here, and it
/// may not be up yet.
pub struct RealCgroups {
    runtime: Arc<CriClient>,
    settings: CgroupSettings,
    /// The machine has cgroup v1.
    is_v1: bool,
    events: OnceLock<Arc<dyn EventSink>>,
    cgroups: OnceCell<Arc<Cgroups>>,
}

impl RealCgroups {
    pub fn new(settings: &Settings, machine: &Machine, runtime: Arc<CriClient>) -> Self {
        Self {
            runtime,
            settings: cgroup_settings(settings, machine),
            is_v1: !machine.cgroup_v2,
            events: OnceLock::new(),
            cgroups: OnceCell::new(),
        }
    }

    async fn cgroups(&self) -> Result<&Arc<Cgroups>, String> {
        self.cgroups.get_or_try_init(|| self.make()).await
    }

    async fn make(&self) -> Result<Arc<Cgroups>, String> {
        let mut settings = self.settings.clone();
        match self.runtime.cgroup_driver().await {
            Ok(Some(driver)) => settings.driver = driver,
            // The runtime leaves it to the configuration.
            Ok(None) => {}
            Err(error) if error.kind == ErrorKind::Unimplemented => {}
            Err(error) => return Err(format!("cannot ask the runtime for its cgroup driver: {error}")),
        }
        let driver = settings.driver;
        let cgroups = Cgroups::new(settings, Arc::new(LinuxCgroups::find()?));
        cgroups.start().await?;
        let events = self.events.get().cloned().unwrap_or_else(|| Arc::new(LogEvents));
        // Pods do not wait for it. Ends with the cgroups.
        tokio::spawn(Cgroups::enforce(Arc::downgrade(&cgroups), move |event| events.emit_node(event)));
        tracing::info!(?driver, "Pods have cgroups of their own");
        Ok(cgroups)
    }
}

#[async_trait]
impl PodCgroups for RealCgroups {
    fn tell(&self, events: Arc<dyn EventSink>) {
        if self.is_v1 {
            events.emit_node(NodeEvent::warning(event_reason::CGROUP_V1, CGROUP_V1));
        }
        // Said once; nobody says it again.
        let _ = self.events.set(events);
    }

    async fn parent(&self, pod: &api::Pod) -> Result<String, String> {
        if !self.settings.per_qos {
            return Ok(String::new());
        }
        Ok(self.cgroups().await?.pod_parent(pod))
    }

    async fn ensure(&self, pod: &api::Pod) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        self.cgroups().await?.ensure_pod(pod).await
    }

    async fn compare(&self, pod: &api::Pod) -> Result<Option<(CgroupLimits, CgroupNow)>, String> {
        if !self.settings.per_qos {
            return Ok(None);
        }
        let cgroups = self.cgroups().await?;
        Ok(cgroups.wanted(pod).zip(cgroups.now(pod).await?))
    }

    async fn set(&self, pod: &api::Pod, limits: &CgroupLimits) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        self.cgroups().await?.set(pod, limits).await
    }

    async fn recount(&self, pod: &api::Pod) {
        if let Some(cgroups) = self.cgroups.get() {
            cgroups.recount(pod).await;
        }
    }

    async fn remove(&self, uid: &PodUid) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        self.cgroups().await?.remove_pod(uid).await
    }
}

fn cgroup_settings(settings: &Settings, machine: &Machine) -> CgroupSettings {
    let reserved = |resource: &str| -> Quantity {
        let of = |map: &BTreeMap<String, String>| {
            map.get(resource).and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
        };
        let (system, kube) = (of(&settings.system_reserved), of(&settings.kube_reserved));
        Quantity::from_milli(system.milli_value().saturating_add(kube.milli_value()), Default::default())
    };
    let enforced = settings.enforce_node_allocatable.iter().any(|what| what == "pods");
    let left = |capacity: i64, reserved: i64| if enforced { (capacity - reserved).max(0) } else { capacity };
    CgroupSettings {
        per_qos: settings.cgroups_per_qos,
        // As upstream: pods' cgroups are at the top unless somebody says otherwise.
        root: if settings.cgroup_root.is_empty() { "/".to_owned() } else { settings.cgroup_root.clone() },
        driver: settings.cgroup_driver,
        pod_pids_limit: settings.pod_pids_limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1),
        cpu_quota: settings.cpu_cfs_quota,
        cpu_period: settings.cpu_cfs_quota_period,
        allocatable: Some(NodeLimits {
            memory: left(machine.memory_bytes, reserved("memory").value()),
            milli_cpu: left(machine.milli_cpus, reserved("cpu").milli_value()),
            pids: None,
            cpus: None,
        }),
        page_sizes: machine.hugepage_sizes.clone(),
    }
}

/// Who hears of events: the port's own sink, or the cluster.
pub struct Events {
    pub recorder: Option<Recorder>,
    pub local: Arc<dyn EventSink>,
}

impl EventSink for Events {
    fn emit(&self, event: Event) {
        match &self.recorder {
            Some(recorder) => recorder.pod(event),
            None => self.local.emit(event),
        }
    }

    fn emit_node(&self, event: NodeEvent) {
        match &self.recorder {
            Some(recorder) => recorder.node(event),
            None => self.local.emit_node(event),
        }
    }
}

impl VolumeEvents for Events {
    fn emit(&self, event: Event) {
        EventSink::emit(self, event);
    }

    fn emit_claim(&self, event: ClaimEvent) {
        match &self.recorder {
            Some(recorder) => recorder.claim(event),
            // There are no claims without a cluster.
            None => tracing::info!(reason = event.reason, event.message = event.message, "Event occurred"),
        }
    }
}

impl NodeEvents for Events {
    fn emit(&self, event: NodeEvent) {
        self.emit_node(event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use crablet_cri::client::Timeouts;
    use crablet_model::cgroup::CgroupDriver;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<NodeEvent>>);

    impl EventSink for Told {
        fn emit(&self, _: Event) {}

        fn emit_node(&self, event: NodeEvent) {
            self.0.lock().expect("a lock").push(event);
        }
    }

    fn cgroups(is_v1: bool) -> RealCgroups {
        let runtime = CriClient::new("unix:///no/such.sock", Timeouts::default(), None).expect("a client");
        let settings = CgroupSettings {
            per_qos: true,
            root: "/".to_owned(),
            driver: CgroupDriver::Cgroupfs,
            pod_pids_limit: -1,
            cpu_quota: true,
            cpu_period: Duration::from_millis(100),
            allocatable: None,
            page_sizes: Vec::new(),
        };
        let (events, cgroups) = (OnceLock::new(), OnceCell::new());
        RealCgroups { runtime: Arc::new(runtime), settings, is_v1, events, cgroups }
    }

    #[tokio::test]
    async fn a_node_with_cgroup_v1_is_told_of() {
        let (old, new) = (Arc::new(Told::default()), Arc::new(Told::default()));
        cgroups(true).tell(old.clone());
        cgroups(false).tell(new.clone());
        let upstreams = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future \
            release. Please migrate to cgroup v2. More information at \
            https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";
        assert_eq!(*old.0.lock().expect("a lock"), [NodeEvent::warning("CgroupV1", upstreams)]);
        assert!(new.0.lock().expect("a lock").is_empty());
    }
}

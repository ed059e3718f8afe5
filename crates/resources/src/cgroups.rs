//! The cgroups above containers.
//!
//! ```text
//! <root>/kubepods ──┬── pod<uid>                 guaranteed
//!                   ├── burstable ──── pod<uid>  CPU shares follow what its pods ask for
//!                   └── besteffort ─── pod<uid>  the least CPU shares there are
//! ```
//!
//! A pod's cgroup is made before its sandbox, with settings that only a resize changes, and is removed when the pod's
//! containers are gone. What is there from an earlier life of the agent is taken as it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crablet_model::cgroup::limits::{self, CgroupLimits, CgroupNow, PodCgroupRules, above_pods};
use crablet_model::cgroup::{CgroupDriver, PodCgroups, class_of};
use crablet_model::events::NodeEvent;
use crablet_model::names::event_reason;
use crablet_model::qos::QosClass;
use crablet_model::resources::cpu_shares;
use crablet_model::{PodRef, PodUid, api};
use tracing::{debug, info, warn};

use crate::port::CgroupHost;
use crate::settings::CgroupSettings;

const CLASSES: [QosClass; 3] = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
/// How long a limit that the kernel refused waits for the next try.
const ENFORCEMENT_PAUSE: Duration = Duration::from_secs(60);

pub struct Cgroups {
    settings: CgroupSettings,
    rules: PodCgroupRules,
    names: PodCgroups,
    host: Arc<dyn CgroupHost>,
    pods: Mutex<BTreeMap<PodUid, KnownPod>>,
    /// The shares that burstable pods have together as last written. Held while they are written.
    burstable: tokio::sync::Mutex<Option<i64>>,
}

/// A pod that came in this life of the agent and is not removed.
struct KnownPod {
    /// Thousandths of a CPU that it adds to its class; only burstable pods do.
    burstable_cpu: i64,
    has_cgroup: bool,
}

impl Cgroups {
    pub fn new(settings: CgroupSettings, host: Arc<dyn CgroupHost>) -> Arc<Self> {
        Arc::new(Self {
            rules: settings.pod_rules(),
            names: PodCgroups::new(&settings.root, settings.driver),
            settings,
            host,
            pods: Mutex::default(),
            burstable: tokio::sync::Mutex::default(),
        })
    }

    /// Makes the cgroups of all pods and of the classes. An error means that no pod can run.
    pub async fn start(&self) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        if self.settings.root.is_empty() {
            return Err(
                "invalid configuration: cgroups-per-qos was specified and cgroup-root was not specified. \
                        To enable the QoS cgroup hierarchy you need to specify a valid cgroup-root"
                    .to_string(),
            );
        }
        let root = self.names.root();
        self.host.check(root).await.map_err(|error| format!("invalid configuration: {error}"))?;
        let kubepods = self.names.kubepods();
        if self.host.check(kubepods).await.is_err() {
            self.host.create(kubepods, &self.settings.kubepods_limits()).await?;
            info!(cgroup = %kubepods.path(), "Created the cgroup of all pods");
        }
        for class in [QosClass::Burstable, QosClass::BestEffort] {
            self.start_class(class)
                .await
                .map_err(|error| format!("failed to initialize top level QOS containers: {error}"))?;
        }
        Ok(())
    }

    async fn start_class(&self, class: QosClass) -> Result<(), String> {
        let cgroup = self.names.class(class);
        let mut limits = above_pods(&self.settings.page_sizes);
        let exists = self.host.check(&cgroup).await.is_ok();
        // Burstable pods of an earlier life keep their shares until the first of them comes again.
        if class == QosClass::BestEffort || !exists {
            limits.cpu_shares = Some(cpu_shares(0));
        }
        let (done, verb) = if exists {
            (self.host.update(&cgroup, &limits).await, "update")
        } else {
            (self.host.create(&cgroup, &limits).await, "create")
        };
        done.map_err(|error| format!("failed to {verb} top level {class} QOS cgroup : {error}"))
    }

    /// Gives all pods together the node's allocatable amounts, and tells what came of each try. Fails as long as
    /// pods use more memory than that. Returns when it is done, or when nobody has the cgroups any more.
    pub async fn enforce(cgroups: Weak<Self>, tell: impl Fn(NodeEvent)) {
        while let Some(alive) = cgroups.upgrade() {
            if !alive.settings.per_qos {
                return;
            }
            match alive.enforce_allocatable().await {
                Ok(()) => {
                    let message = "Updated Node Allocatable limit across pods";
                    tell(NodeEvent::normal(event_reason::NODE_ALLOCATABLE_ENFORCED, message));
                    return;
                }
                Err(error) => {
                    warn!(error, "Failed to limit what all pods together may use, trying again in a minute");
                    tell(NodeEvent::warning(event_reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT, error));
                }
            }
            // Not held while it waits.
            drop(alive);
            tokio::time::sleep(ENFORCEMENT_PAUSE).await;
        }
    }

    /// One try. The error is the message of an event.
    async fn enforce_allocatable(&self) -> Result<(), String> {
        let kubepods = self.names.kubepods();
        let updated = self.host.update(kubepods, &self.settings.kubepods_limits()).await;
        updated.map_err(|error| {
            format!("Failed to update Node Allocatable Limits {}: {error}", kubepods.quoted())
        })
    }

    /// What the runtime is told as the parent of the pod's containers: empty when it is to choose.
    pub fn pod_parent(&self, pod: &api::Pod) -> String {
        if !self.settings.per_qos {
            return String::new();
        }
        self.names.pod(class_of(pod), &PodRef::of(pod).uid).path()
    }

    /// Makes the pod's cgroup. Costs nothing once that was done in this life of the agent.
    pub async fn ensure_pod(&self, pod: &api::Pod) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        let id = PodRef::of(pod);
        self.check_uid(&id.uid)?;
        let class = class_of(pod);
        let spec = pod.spec.as_ref().ok_or("the pod has no `spec`")?;
        let adds_cpu = {
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let known = pods.entry(id.uid.clone()).or_insert_with(|| {
                let counts = class == QosClass::Burstable;
                let burstable_cpu = if counts { limits::cpu_request(spec) } else { 0 };
                KnownPod { burstable_cpu, has_cgroup: false }
            });
            if known.has_cgroup {
                return Ok(());
            }
            known.burstable_cpu > 0
        };
        if adds_cpu {
            self.share_among_burstable().await;
        }
        let cgroup = self.names.pod(class, &id.uid);
        if self.host.check(&cgroup).await.is_err() {
            let limits = limits::of_pod(spec, class, &self.rules);
            let created = self.host.create(&cgroup, &limits).await;
            created.map_err(|error| format!("failed to create container for {cgroup} : {error}"))?;
            debug!(pod = id.object_ref(), cgroup = %cgroup.path(), "Created the pod's cgroup");
        }
        // The pod may have been removed meanwhile; then it stays unknown.
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pods.get_mut(&id.uid) {
            known.has_cgroup = true;
        }
        Ok(())
    }

    /// What the pod's cgroup is to be like; `None` where pods have none.
    pub fn wanted(&self, pod: &api::Pod) -> Option<CgroupLimits> {
        let spec = pod.spec.as_ref().filter(|_| self.settings.per_qos)?;
        Some(limits::of_pod(spec, class_of(pod), &self.rules))
    }

    /// What the pod's cgroup is like; `None` where pods have none.
    pub async fn now(&self, pod: &api::Pod) -> Result<Option<CgroupNow>, String> {
        if !self.settings.per_qos {
            return Ok(None);
        }
        self.host.now(&self.names.pod(class_of(pod), &PodRef::of(pod).uid)).await.map(Some)
    }

    /// Changes the pod's cgroup. What is not said stays as it is.
    pub async fn set(&self, pod: &api::Pod, limits: &CgroupLimits) -> Result<(), String> {
        if !self.settings.per_qos {
            return Ok(());
        }
        let cgroup = self.names.pod(class_of(pod), &PodRef::of(pod).uid);
        let updated = self.host.update(&cgroup, limits).await;
        updated.map_err(|error| format!("failed to set resources of {cgroup} : {error}"))
    }

    /// The pod asks for another amount of CPU now, which its class gets.
    pub async fn recount(&self, pod: &api::Pod) {
        let (uid, class) = (PodRef::of(pod).uid, class_of(pod));
        let Some(spec) = pod.spec.as_ref().filter(|_| class == QosClass::Burstable) else { return };
        {
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(known) = pods.get_mut(&uid) else { return };
            known.burstable_cpu = limits::cpu_request(spec);
        }
        self.share_among_burstable().await;
    }

    /// Kills what is left of the pod and removes its cgroup, wherever it is: the class of a pod that is only known by its
    /// cgroup is unknown too.
    pub async fn remove_pod(&self, uid: &PodUid) -> Result<(), String> {
        if !self.settings.per_qos || self.check_uid(uid).is_err() {
            return Ok(());
        }
        let was_known = self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        let mut failed = Ok(());
        for class in CLASSES {
            let cgroup = self.names.pod(class, uid);
            if let Err(error) = self.host.remove(&cgroup).await {
                failed = Err(format!("failed to delete cgroup paths for {cgroup} : {error}"));
            }
        }
        if was_known.is_some_and(|pod| pod.burstable_cpu > 0) {
            self.share_among_burstable().await;
        }
        failed
    }

    /// The pods that have a cgroup.
    pub async fn pods(&self) -> Vec<PodUid> {
        let mut found = Vec::new();
        if !self.settings.per_qos {
            return found;
        }
        for class in CLASSES {
            let parent = self.names.class(class);
            match self.host.children(&parent).await {
                Ok(folders) => {
                    found.extend(folders.iter().filter_map(|folder| self.names.pod_in(class, folder)));
                }
                Err(error) => warn!(cgroup = %parent.path(), error, "Failed to list the cgroups of pods"),
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Burstable pods get together what they ask for together. A failure is mended by the next pod that comes or goes.
    async fn share_among_burstable(&self) {
        let mut written = self.burstable.lock().await;
        let asked = {
            let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            pods.values().fold(0_i64, |sum, pod| sum.saturating_add(pod.burstable_cpu))
        };
        let shares = cpu_shares(asked);
        if *written == Some(shares) {
            return;
        }
        let limits = CgroupLimits { cpu_shares: Some(shares), ..above_pods(&self.settings.page_sizes) };
        match self.host.update(&self.names.class(QosClass::Burstable), &limits).await {
            Ok(()) => *written = Some(shares),
            Err(error) => {
                *written = None;
                warn!(error, "Failed to update QoS cgroup configuration");
            }
        }
    }

    /// A slash would lead elsewhere. An underscore cannot be told from a dash in the name of a slice, so that the pod
    /// would not be found again.
    fn check_uid(&self, uid: &PodUid) -> Result<(), String> {
        let text = uid.as_str();
        let is_bad = |c: char| c == '/' || (c == '_' && self.settings.driver == CgroupDriver::Systemd);
        if text.is_empty() || text.contains(is_bad) {
            return Err(format!(
                "`metadata.uid` is {text:?}, which cannot name a cgroup; use letters, digits and dashes"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

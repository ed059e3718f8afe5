//! How full the volumes of a pod are, for the summary of the node.

use std::collections::BTreeMap;
use std::path::Path;

use crablet_model::events::Event;
use crablet_model::{PodRef, api};
use jiff::Timestamp;
use prometheus::proto::MetricFamily;

use crate::figures;
use crate::layout::EMPTY_DIR;
use crate::port::Usage;
use crate::volumes::Volumes;

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStats {
    /// As the pod names it.
    pub name: String,
    /// The claim that it belongs to: namespace and name.
    pub claim: Option<(String, String)>,
    pub usage: Usage,
    pub measured_at: Timestamp,
    /// Whether its driver thinks that something is wrong with it, and why. `None`: nobody asked, or it does not tell.
    pub health: Option<(bool, String)>,
}

/// The driver of a volume has found it unwell.
const ABNORMAL: &str = "VolumeConditionAbnormal";

type Measured = (Usage, Option<(bool, String)>);

impl Volumes {
    /// All volumes of the pod that are set up and can be measured. One that cannot is left out: it is told in the log.
    pub async fn stats(&self, pod: &api::Pod) -> Vec<VolumeStats> {
        self.stats_of(pod, |_| true).await
    }

    /// Of every claim that a pod here has, once. A driver that hangs delays the whole.
    pub async fn stats_of_claims(&self) -> Vec<VolumeStats> {
        let is_claimed =
            |volume: &api::Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        let mut all: Vec<VolumeStats> = Vec::new();
        for entry in self.entries() {
            let Ok(pod) = serde_json::from_slice::<api::Pod>(&entry.json()) else { continue };
            let claims = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            if !claims.into_iter().any(is_claimed) {
                continue;
            }
            for stats in self.stats_of(&pod, is_claimed).await {
                if let Some((true, why)) = &stats.health {
                    let text = format!("Volume {}: {why}", stats.name);
                    self.ctx.events.emit(Event::warning(&entry.id, ABNORMAL, text));
                }
                if !all.iter().any(|known| known.claim == stats.claim) {
                    all.push(stats);
                }
            }
        }
        all
    }

    /// How many volumes there are and shall be, for Prometheus.
    pub fn totals(&self) -> Vec<MetricFamily> {
        let mut all: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for entry in self.entries() {
            let Ok(pod) = serde_json::from_slice::<api::Pod>(&entry.json()) else { continue };
            let Some(spec) = &pod.spec else { continue };
            // Whoever is being set up counts with the next look.
            let Ok(state) = entry.state.try_lock() else { continue };
            for volume in crate::pod::wanted(spec) {
                let mounted = state.mounted.get(&volume.name);
                let path = mounted.map(|mounted| mounted.host_path.as_str());
                let Some(plugin) = crate::plugins::plugin_name(volume, path) else { continue };
                let disk_name = state.disk_names.get(&volume.name).unwrap_or(&volume.name);
                let of_driver = self.ctx.csi.as_ref().and_then(|csi| csi.plugin_of(&entry.id.uid, disk_name));
                let plugin = of_driver.unwrap_or_else(|| plugin.to_owned());
                let (actual, desired) = all.entry(plugin).or_default();
                *actual += i64::from(mounted.is_some());
                *desired += 1;
            }
        }
        let all: Vec<_> =
            all.into_iter().map(|(plugin, (actual, desired))| (plugin, actual, desired)).collect();
        figures::totals(&all)
    }

    async fn stats_of(&self, pod: &api::Pod, chosen: impl Fn(&api::Volume) -> bool) -> Vec<VolumeStats> {
        let id = PodRef::of(pod);
        let Some(entry) = self.known(&id.uid) else { return Vec::new() };
        // A pod that is being set up has nothing to tell yet, and whoever asks does not wait for it.
        let Ok(state) = entry.state.try_lock() else { return Vec::new() };
        let (mounted, disk_names) = (state.mounted.clone(), state.disk_names.clone());
        drop(state);
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut all = Vec::new();
        for volume in volumes.filter(|volume| chosen(volume)) {
            let Some(at) = mounted.get(&volume.name).filter(|at| !at.block && !at.host_path.is_empty())
            else {
                continue;
            };
            let disk_name = disk_names.get(&volume.name).unwrap_or(&volume.name);
            match self.measure(&id, Path::new(&at.host_path), disk_name).await {
                Ok(Some((usage, health))) => {
                    let claim = crate::claims::wanted(&id.name, volume);
                    all.push(VolumeStats {
                        name: volume.name.clone(),
                        claim: claim.map(|(claim, _)| (id.namespace.to_string(), claim)),
                        usage,
                        measured_at: self.ctx.clock.now(),
                        health,
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(
                        pod = id.object_ref(),
                        volume = volume.name,
                        error,
                        "Failed to get volume metrics"
                    );
                }
            }
        }
        all
    }

    /// `None` for what is not measured: paths of the host are not the pod's.
    async fn measure(&self, id: &PodRef, path: &Path, disk_name: &str) -> Result<Option<Measured>, String> {
        let of_pod = self.ctx.root_dir.join("pods").join(id.uid.as_str()).join("volumes");
        let Ok(inside) = path.strip_prefix(&of_pod) else { return Ok(None) };
        let plugin = inside.iter().next().map(|plugin| plugin.to_string_lossy().into_owned());
        let plugin = plugin.unwrap_or_default();
        if plugin == crate::teardown::CSI {
            return self.of_driver(id, disk_name).await;
        }
        // A folder on the node's own disk is as full as what is in it; a file system of its own tells by itself.
        let on_disk = plugin == EMPTY_DIR || plugin == "kubernetes.io~configmap";
        let told = |error: std::io::Error| crate::port::reason(&error);
        let is_mount =
            self.ctx.host.mounts(path).await.map_err(told)?.iter().any(|mounted| mounted.path == path);
        let usage = match on_disk && !is_mount {
            true => self.ctx.host.usage_of_folder(path).await,
            false => self.ctx.host.usage_of_file_system(path).await,
        };
        usage.map(|usage| Some((usage, None))).map_err(told)
    }

    async fn of_driver(&self, id: &PodRef, disk_name: &str) -> Result<Option<Measured>, String> {
        let Some(csi) = &self.ctx.csi else { return Ok(None) };
        let stats = csi.stats(&id.uid, disk_name).await?;
        let amount = |value: i64| u64::try_from(value).unwrap_or_default();
        Ok(stats.map(|stats| {
            let usage = Usage {
                capacity: amount(stats.capacity),
                available: amount(stats.available),
                used: amount(stats.used),
                inodes: amount(stats.inodes),
                inodes_free: amount(stats.inodes_free),
                inodes_used: amount(stats.inodes_used),
            };
            (usage, stats.condition)
        }))
    }
}

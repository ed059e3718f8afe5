//! Figures of the rooms, as the server shows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_volumes::Volumes;
use crablet_volumes::stats::VolumeStats;
use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, Opts};
use tokio::time::Instant;

/// How long what drivers have told of their volumes is good for. Upstream asks about as often.
const FRESH: Duration = Duration::from_secs(60);

pub struct Figured {
    pub volumes: Arc<Volumes>,
    pub node_name: String,
    pub started: Timestamp,
    pub claims: Mutex<Claims>,
}

/// How full volumes of claims are, as far as is known.
#[derive(Default)]
pub struct Claims {
    stats: Arc<Vec<VolumeStats>>,
    asked_at: Option<Instant>,
    asking: bool,
}

impl Figured {
    pub fn all(self: &Arc<Self>) -> Vec<MetricFamily> {
        let mut families = crablet_pods::figures::gather();
        families.extend(crablet_volumes::figures::gather());
        families.extend(self.volumes.totals());
        families.extend(crablet_volumes::figures::of_claims(&self.claims()));
        families.extend(self.node());
        families.extend(self.started());
        families
    }

    pub fn probes(&self) -> Vec<MetricFamily> {
        let mut families = crablet_pods::figures::gather_probes();
        families.extend(self.started());
        families
    }

    /// What is known. Drivers are asked meanwhile if that is old: whoever reads figures does not wait for them.
    fn claims(self: &Arc<Self>) -> Arc<Vec<VolumeStats>> {
        let mut claims = self.known();
        let is_old = claims.asked_at.is_none_or(|at| at.elapsed() >= FRESH);
        if is_old && !std::mem::replace(&mut claims.asking, true) {
            let this = self.clone();
            tokio::spawn(async move {
                let stats = this.volumes.stats_of_claims().await;
                let mut claims = this.known();
                *claims = Claims { stats: Arc::new(stats), asked_at: Some(Instant::now()), asking: false };
            });
        }
        claims.stats.clone()
    }

    fn known(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> Vec<MetricFamily> {
        let opts = Opts::new("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.");
        let Ok(gauge) = GaugeVec::new(opts, &["node"]) else { return Vec::new() };
        gauge.with_label_values(&[self.node_name.as_str()]).set(1.0);
        gauge.collect()
    }

    fn started(&self) -> Vec<MetricFamily> {
        let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
        let Ok(gauge) = Gauge::with_opts(Opts::new("process_start_time_seconds", help)) else {
            return Vec::new();
        };
        gauge.set(self.started.as_duration().as_secs_f64());
        gauge.collect()
    }
}

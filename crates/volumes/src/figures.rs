//! Figures about volumes, under upstream's names. They are the process's: every room has its own, and the server puts
//! them together.
//!
//! Labels are kinds of volumes and names of drivers, of which a node has a few.

use std::sync::LazyLock;
use std::time::Duration;

use crablet_model::api;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntGaugeVec, Opts, Registry};

use crate::failure::Failure;
use crate::plugins::{self, Ready};
use crate::stats::VolumeStats;

const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
const CLAIM: &[&str] = &["namespace", "persistentvolumeclaim"];

struct Figures {
    registry: Registry,
    operations: HistogramVec,
    whole: HistogramVec,
    calls: HistogramVec,
    rebuilt: IntCounter,
    not_rebuilt: IntCounter,
}

/// The names are good ones, a test sees to it; volumes work without figures as well.
static FIGURES: LazyLock<Option<Figures>> = LazyLock::new(|| Figures::new().ok());

impl Figures {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let opts = HistogramOpts::new(name, alpha(help)).buckets(BUCKETS.to_vec());
            known(&registry, HistogramVec::new(opts, labels)?)
        };
        let counter =
            |name: &str, help: &str| known(&registry, IntCounter::with_opts(Opts::new(name, alpha(help)))?);
        let operations = histogram(
            "storage_operation_duration_seconds",
            "Storage operation duration",
            &["volume_plugin", "operation_name", "status", "migrated"],
        )?;
        let whole = histogram(
            "volume_operation_total_seconds",
            "Storage operation end to end duration in seconds",
            &["plugin_name", "operation_name"],
        )?;
        let calls = histogram(
            "csi_operations_seconds",
            "Container Storage Interface operation duration with gRPC error code status total",
            &["driver_name", "method_name", "grpc_status_code", "migrated"],
        )?;
        let rebuilt = counter(
            "reconstruct_volume_operations_total",
            "The number of volumes that were attempted to be reconstructed from the operating system during kubelet \
             startup. This includes both successful and failed reconstruction.",
        )?;
        let not_rebuilt = counter(
            "reconstruct_volume_operations_errors_total",
            "The number of volumes that failed reconstruction from the operating system during kubelet startup.",
        )?;
        // What a pod has left is always taken down by what is on disk, never by force: these stay at zero.
        counter(
            "force_cleaned_failed_volume_operations_total",
            "The number of volumes that were force cleaned after their reconstruction failed during kubelet startup. \
             This includes both successful and failed cleanups.",
        )?;
        counter(
            "force_cleaned_failed_volume_operation_errors_total",
            "The number of volumes that failed force cleanup after their reconstruction failed during kubelet startup.",
        )?;
        Ok(Self { registry, operations, whole, calls, rebuilt, not_rebuilt })
    }
}

fn alpha(help: &str) -> String {
    format!("[ALPHA] {help}")
}

fn known<C: Collector + Clone + 'static>(registry: &Registry, figure: C) -> prometheus::Result<C> {
    registry.register(Box::new(figure.clone()))?;
    Ok(figure)
}

/// An operation on a volume has ended: `volume_mount`, `unmount_device`.
pub(crate) fn operation(plugin: &str, name: &str, is_success: bool, took: Duration) {
    let Some(figures) = &*FIGURES else { return };
    let status = if is_success { "success" } else { "fail-unknown" };
    let labels = [plugin, name, status, "false"];
    figures.operations.with_label_values(&labels).observe(took.as_secs_f64());
}

/// A volume was set up, or not. `whole`: since the pod wanted it.
pub(crate) fn set_up(volume: &api::Volume, made: &Result<Ready, Failure>, took: Duration, whole: Duration) {
    let path = made.as_ref().ok().map(|ready| ready.mounted.host_path.as_str());
    // Drivers' volumes are counted where their drivers are known.
    let Some(plugin) = plugins::plugin_name(volume, path).filter(|name| *name != plugins::CSI_PLUGIN) else {
        return;
    };
    operation(plugin, "volume_mount", made.is_ok(), took);
    if made.is_ok() {
        in_place(plugin, whole);
    }
}

/// A volume is there for its pod.
pub(crate) fn in_place(plugin: &str, whole: Duration) {
    if let Some(figures) = &*FIGURES {
        let labels = [plugin, "overall_volume_mount"];
        figures.whole.with_label_values(&labels).observe(whole.as_secs_f64());
    }
}

/// A driver has answered, or has not.
pub(crate) fn call(driver: &str, method: &str, code: &str, took: Duration) {
    if let Some(figures) = &*FIGURES {
        let method = format!("/csi.v1.Node/{method}");
        figures.calls.with_label_values(&[driver, &method, code, "false"]).observe(took.as_secs_f64());
    }
}

/// What an earlier life of the agent has left was looked at.
pub(crate) fn rebuilt(volumes: u64, failed: u64) {
    if let Some(figures) = &*FIGURES {
        figures.rebuilt.inc_by(volumes + failed);
        figures.not_rebuilt.inc_by(failed);
    }
}

/// What was counted so far.
pub fn gather() -> Vec<MetricFamily> {
    FIGURES.as_ref().map(|figures| figures.registry.gather()).unwrap_or_default()
}

/// How many volumes there are and shall be, by kind: `(kind, are, shall be)`.
pub(crate) fn totals(all: &[(String, i64, i64)]) -> Vec<MetricFamily> {
    let opts = Opts::new("volume_manager_total_volumes", alpha("Number of volumes in Volume Manager"));
    let Ok(gauge) = IntGaugeVec::new(opts, &["plugin_name", "state"]) else { return Vec::new() };
    for (plugin, actual, desired) in all {
        gauge.with_label_values(&[plugin.as_str(), "actual_state_of_world"]).set(*actual);
        gauge.with_label_values(&[plugin.as_str(), "desired_state_of_world"]).set(*desired);
    }
    filled(gauge.collect())
}

/// How full the volumes of claims are: each claim once, however many pods have it.
#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
pub fn of_claims(all: &[VolumeStats]) -> Vec<MetricFamily> {
    type Amount = fn(&VolumeStats) -> Option<u64>;
    let figures: [(&str, &str, Amount); 7] = [
        ("available_bytes", "Number of available bytes in the volume", |stats| Some(stats.usage.available)),
        ("capacity_bytes", "Capacity in bytes of the volume", |stats| Some(stats.usage.capacity)),
        (
            "health_status_abnormal",
            "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 \
             indicates volume is healthy",
            |stats| stats.health.as_ref().map(|(abnormal, _)| u64::from(*abnormal)),
        ),
        ("inodes", "Maximum number of inodes in the volume", |stats| Some(stats.usage.inodes)),
        ("inodes_free", "Number of free inodes in the volume", |stats| Some(stats.usage.inodes_free)),
        ("inodes_used", "Number of used inodes in the volume", |stats| Some(stats.usage.inodes_used)),
        ("used_bytes", "Number of used bytes in the volume", |stats| Some(stats.usage.used)),
    ];
    let mut families = Vec::new();
    for (name, help, amount) in figures {
        let opts = Opts::new(format!("kubelet_volume_stats_{name}"), alpha(help));
        let Ok(gauge) = GaugeVec::new(opts, CLAIM) else { continue };
        for stats in all {
            if let (Some((namespace, claim)), Some(amount)) = (&stats.claim, amount(stats)) {
                gauge.with_label_values(&[namespace.as_str(), claim.as_str()]).set(amount as f64);
            }
        }
        families.extend(filled(gauge.collect()));
    }
    families
}

/// A family without a series is not shown.
fn filled(families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    families.into_iter().filter(|family| !family.get_metric().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_good_ones() {
        assert!(FIGURES.is_some());
        operation("kubernetes.io/empty-dir", "volume_mount", true, Duration::from_millis(3));
        call("d.example", "NodeStageVolume", "OK", Duration::from_secs(1));
        let names: Vec<String> = gather().iter().map(|family| family.name().to_owned()).collect();
        for name in ["csi_operations_seconds", "storage_operation_duration_seconds"] {
            assert!(names.iter().any(|known| known == name), "{names:?}");
        }
        assert!(totals(&[]).is_empty());
        assert_eq!(totals(&[("kubernetes.io/csi".to_owned(), 1, 2)])[0].get_metric().len(), 2);
    }
}

//! Figures about pods, under upstream's names. They are the process's: every room has its own, and the server puts them
//! together. Series of a probe go with the probe, so there are no more than there are probes.

use std::sync::LazyLock;
use std::time::Duration;

use crablet_model::{PodRef, Role};
use crablet_planner::pod::{Action, Outcome};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

/// Reasons that are told apart; all others count as `Other`, as upstream has it.
const REASONS: [&str; 20] = [
    "AppArmor",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodLevelResourcesNotSupported",
    "PodFeatureUnsupported",
    "Evicted",
    "SysctlForbidden",
    "TopologyAffinityError",
    "NodeShutdown",
    "VolumeAttachmentLimitExceeded",
];

struct Figures {
    pods: Registry,
    probes: Registry,
    rejected: IntCounterVec,
    started_pods: IntCounter,
    failed_pods: IntCounter,
    started_with_users: IntCounter,
    failed_with_users: IntCounter,
    started_containers: IntCounterVec,
    failed_containers: IntCounterVec,
    sandbox_durations: HistogramVec,
    sandbox_errors: IntCounterVec,
    probed: IntCounterVec,
    probe_durations: HistogramVec,
}

/// The names are good ones, a test sees to it; pods run without figures as well.
static FIGURES: LazyLock<Option<Figures>> = LazyLock::new(|| Figures::new().ok());

impl Figures {
    fn new() -> prometheus::Result<Self> {
        let (pods, probes) = (Registry::new(), Registry::new());
        let counters = |name: &str, help: &str, labels: &[&str]| {
            known(&pods, IntCounterVec::new(Opts::new(name, format!("[ALPHA] {help}")), labels)?)
        };
        let counter = |name: &str, help: &str| {
            known(&pods, IntCounter::with_opts(Opts::new(name, format!("[ALPHA] {help}")))?)
        };
        let probed = Opts::new(
            "prober_probe_total",
            "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        );
        let probed_labels = &["probe_type", "result", "container", "pod", "namespace", "pod_uid"];
        let durations = HistogramOpts::new(
            "prober_probe_duration_seconds",
            "[ALPHA] Duration in seconds for a probe response.",
        );
        // The library's default buckets are those of Go's.
        let duration_labels = &["probe_type", "container", "pod", "namespace"];
        let sandboxes = HistogramOpts::new(
            "kubelet_run_podsandbox_duration_seconds",
            "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        );
        Ok(Self {
            rejected: counters(
                "kubelet_admission_rejections_total",
                "Cumulative number pod admission rejections by the Kubelet.",
                &["reason"],
            )?,
            started_pods: counter("kubelet_started_pods_total", "Cumulative number of pods started")?,
            failed_pods: counter(
                "kubelet_started_pods_errors_total",
                "Cumulative number of errors when starting pods",
            )?,
            started_with_users: counter(
                "kubelet_started_user_namespaced_pods_total",
                "Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
            )?,
            failed_with_users: counter(
                "kubelet_started_user_namespaced_pods_errors_total",
                "Cumulative number of errors when starting pods with user namespaces. This metric will only be \
                 collected on Linux.",
            )?,
            started_containers: counters(
                "kubelet_started_containers_total",
                "Cumulative number of containers started",
                &["container_type"],
            )?,
            failed_containers: counters(
                "kubelet_started_containers_errors_total",
                "Cumulative number of errors when starting containers",
                &["container_type", "code"],
            )?,
            sandbox_durations: known(&pods, HistogramVec::new(sandboxes, &["runtime_handler"])?)?,
            sandbox_errors: counters(
                "kubelet_run_podsandbox_errors_total",
                "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
                &["runtime_handler"],
            )?,
            probed: known(&probes, IntCounterVec::new(probed, probed_labels)?)?,
            probe_durations: known(&probes, HistogramVec::new(durations, duration_labels)?)?,
            pods,
            probes,
        })
    }
}

impl Figures {
    fn sandbox(&self, handler: &str, has_users: bool, is_success: bool, took: Duration) {
        self.started_pods.inc();
        self.sandbox_durations.with_label_values(&[handler]).observe(took.as_secs_f64());
        if has_users {
            self.started_with_users.inc();
        }
        if !is_success {
            self.failed_pods.inc();
            self.sandbox_errors.with_label_values(&[handler]).inc();
            self.failed_with_users.inc_by(u64::from(has_users));
        }
    }

    /// What is wrong with a pod's users is mostly seen when its first container starts.
    fn performed_with_users(&self, action: &Action, outcome: &Outcome) {
        if let (Action::StartContainer { attempt: 0, .. }, Outcome::StartFailed { .. })
        | (Action::EnsureImage { .. }, Outcome::ImageFailed { .. }) = (action, outcome)
        {
            self.failed_with_users.inc();
        }
    }
}

fn known<C: Collector + Clone + 'static>(registry: &Registry, figure: C) -> prometheus::Result<C> {
    registry.register(Box::new(figure.clone()))?;
    Ok(figure)
}

/// Those of `/metrics`.
pub fn gather() -> Vec<MetricFamily> {
    FIGURES.as_ref().map(|figures| figures.pods.gather()).unwrap_or_default()
}

/// Those of `/metrics/probes`.
pub fn gather_probes() -> Vec<MetricFamily> {
    FIGURES.as_ref().map(|figures| figures.probes.gather()).unwrap_or_default()
}

/// The node does not let a pod run.
pub(crate) fn rejected(reason: &str) {
    let Some(figures) = &*FIGURES else { return };
    let reason = match REASONS.iter().find(|known| **known == reason) {
        Some(known) => known,
        None if reason.starts_with("OutOf") => "OutOfExtendedResources",
        None => "Other",
    };
    figures.rejected.with_label_values(&[reason]).inc();
}

/// The runtime was asked for a sandbox, perhaps for a pod with users of its own.
pub(crate) fn sandbox(handler: &str, has_users: bool, is_success: bool, took: Duration) {
    if let Some(figures) = &*FIGURES {
        figures.sandbox(handler, has_users, is_success, took);
    }
}

/// A start in a pod with users of its own has ended.
pub(crate) fn performed_with_users(action: &Action, outcome: &Outcome) {
    if let Some(figures) = &*FIGURES {
        figures.performed_with_users(action, outcome);
    }
}

/// An operation has ended; `role` of the container that it is about.
pub(crate) fn performed(action: &Action, outcome: &Outcome, role: Role) {
    let Some(figures) = &*FIGURES else { return };
    let kind = match role {
        Role::Regular => "container",
        Role::Init | Role::Sidecar => "init_container",
        Role::Ephemeral => "ephemeral_container",
    };
    let code = match (action, outcome) {
        (
            Action::StartContainer { .. } | Action::StartCreated { .. },
            Outcome::StartFailed { reason, .. },
        ) => Some(*reason),
        (Action::StartContainer { .. } | Action::StartCreated { .. }, _) => None,
        // A start that gets no further than its image.
        (Action::EnsureImage { .. }, Outcome::ImageFailed { reason, .. }) => Some(reason.as_str()),
        _ => return,
    };
    figures.started_containers.with_label_values(&[kind]).inc();
    if let Some(code) = code {
        figures.failed_containers.with_label_values(&[kind, code]).inc();
    }
}

/// The figures of one probe; they go with it.
pub(crate) struct OfProbe {
    pod: PodRef,
    container: Box<str>,
    kind: &'static str,
}

const SUCCESSFUL: &str = "successful";
const FAILED: &str = "failed";

impl OfProbe {
    pub fn new(pod: &PodRef, container: &str, kind: &'static str) -> Self {
        Self { pod: pod.clone(), container: container.into(), kind }
    }

    /// There was an answer. Only that of a healthy container is timed, as upstream does it.
    pub fn answered(&self, is_well: bool, took: Duration) {
        let Some(figures) = &*FIGURES else { return };
        let result = if is_well { SUCCESSFUL } else { FAILED };
        figures.probed.with_label_values(&self.labels(result)).inc();
        if is_well {
            figures.probe_durations.with_label_values(&self.duration_labels()).observe(took.as_secs_f64());
        }
    }

    fn labels<'a>(&'a self, result: &'a str) -> [&'a str; 6] {
        let PodRef { name, namespace, uid, .. } = &self.pod;
        [self.kind, result, &self.container, name, namespace, uid.as_str()]
    }

    fn duration_labels(&self) -> [&str; 4] {
        [self.kind, &self.container, &self.pod.name, &self.pod.namespace]
    }
}

impl Drop for OfProbe {
    fn drop(&mut self) {
        let Some(figures) = &*FIGURES else { return };
        for result in [SUCCESSFUL, FAILED] {
            // Absent is fine.
            let _ = figures.probed.remove_label_values(&self.labels(result));
        }
        let _ = figures.probe_durations.remove_label_values(&self.duration_labels());
    }
}

#[cfg(test)]
mod tests {
    use crablet_planner::pod::PreparedImage;

    use super::*;

    fn series(families: &[MetricFamily], name: &str) -> usize {
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0, |family| family.get_metric().len())
    }

    #[test]
    fn series_of_a_probe_go_with_it() {
        let pod = PodRef::new("p", "n", "figures");
        let of_probe = OfProbe::new(&pod, "c", "Liveness");
        let before = series(&gather_probes(), "prober_probe_total");
        of_probe.answered(true, Duration::from_millis(5));
        of_probe.answered(false, Duration::from_millis(5));
        assert_eq!(series(&gather_probes(), "prober_probe_total"), before + 2);
        drop(of_probe);
        assert_eq!(series(&gather_probes(), "prober_probe_total"), before);
    }

    #[test]
    fn pods_with_users_of_their_own_are_counted_apart() {
        let figures = Figures::new().expect("the names are good ones");
        let both = || [figures.started_with_users.get(), figures.failed_with_users.get()];
        figures.sandbox("", false, false, Duration::ZERO);
        assert_eq!(both(), [0, 0]);
        figures.sandbox("", true, true, Duration::ZERO);
        assert_eq!(both(), [1, 0]);
        figures.sandbox("", true, false, Duration::ZERO);
        assert_eq!(both(), [2, 1]);
        let start = Action::StartContainer {
            container: "c".into(),
            attempt: 0,
            sandbox_id: "s".into(),
            image: PreparedImage { image_ref: "i".into(), uid: None, username: String::new() },
        };
        figures.performed_with_users(&start, &Outcome::ContainerStarted { container: "c".into() });
        assert_eq!(both(), [2, 1]);
        let refused = Outcome::StartFailed {
            container: "c".into(),
            reason: "RunContainerError",
            message: "no such program".into(),
        };
        figures.performed_with_users(&start, &refused);
        assert_eq!(both(), [2, 2]);
    }

    #[test]
    fn only_known_reasons_are_told_apart() {
        for reason in ["OutOfcpu", "OutOfexample.com/gpu", "anything", "else"] {
            rejected(reason);
        }
        let families = gather();
        let family = families.iter().find(|family| family.name() == "kubelet_admission_rejections_total");
        let reasons = family.expect("it was counted").get_metric().iter();
        let mut reasons: Vec<&str> = reasons.map(|metric| metric.get_label()[0].value()).collect();
        reasons.sort_unstable();
        assert_eq!(reasons, ["Other", "OutOfExtendedResources", "OutOfcpu"]);
    }
}

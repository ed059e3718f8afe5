//! `--runonce`: start the pods of the manifests, wait until each runs or has ended, report, leave. The pods stay.
//!
//! Upstream had this mode from 1.0 to 1.31. Like there, no port is served, and pods that no manifest names are left alone.

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;
use crablet_config::Settings;
use crablet_model::names::phase;
use crablet_pods::view::{PodSummary, Summary, View};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use crate::cli;
use crate::wiring::Agent;

/// As long as upstream's ten tries with doubling pauses took.
const PATIENCE: Duration = Duration::from_secs(1023);
/// A pod that falls over right after its start does not run.
const CALM: Duration = Duration::from_secs(3);

/// Prints a line for each pod. The error says how many are not well.
pub async fn run(agent: &Agent, settings: &Settings) -> anyhow::Result<()> {
    if settings.static_pod_path.is_none() && settings.static_pod_url.is_none() {
        bail!("runonce failed: there are no manifests: neither a path nor a URL is set");
    }
    let summary = settle(agent.view(), Instant::now() + PATIENCE).await;
    let report = Report::of(agent, &summary);
    cli::print(&report.lines)?;
    let is_missing = settings.static_pod_path.as_ref().is_some_and(|path| !path.exists());
    if report.pods == 0 && is_missing {
        bail!("runonce failed: the manifest path does not exist");
    }
    if !summary.sources_ready {
        bail!("runonce failed: no pod manifest update after {} s", PATIENCE.as_secs());
    }
    if report.bad > 0 {
        bail!("runonce failed: error running pods: {} of {} are not well", report.bad, report.pods);
    }
    info!(pods = report.pods, "Started kubelet as runonce");
    Ok(())
}

/// Waits until nothing is left to wait for, or the time is over.
async fn settle(view: &View, deadline: Instant) -> Summary {
    let mut changes = view.changes();
    let mut calm_from = None;
    loop {
        changes.mark_unchanged();
        let summary = view.summary();
        calm_from = is_all_settled(&summary).then(|| calm_from.unwrap_or_else(Instant::now));
        let is_over = summary.pods.iter().all(|pod| pod.phase != phase::RUNNING);
        let until = match calm_from {
            Some(_) if is_over => return summary,
            Some(from) => deadline.min(from + CALM),
            None => deadline,
        };
        match timeout_at(until, changes.changed()).await {
            Ok(Ok(())) => {}
            // The time is over, or all was well for long enough.
            Ok(Err(_)) | Err(_) => return view.summary(),
        }
    }
}

fn is_all_settled(summary: &Summary) -> bool {
    summary.inventoried && summary.pods.iter().filter(|pod| pod.desired).all(is_settled)
}

fn is_settled(pod: &PodSummary) -> bool {
    is_well(pod) || pod.phase == phase::FAILED
}

fn is_well(pod: &PodSummary) -> bool {
    (pod.phase == phase::RUNNING && pod.ready) || pod.phase == phase::SUCCEEDED
}

#[derive(Default)]
struct Report {
    lines: String,
    pods: usize,
    bad: usize,
}

impl Report {
    fn of(agent: &Agent, summary: &Summary) -> Self {
        let mut report = Self::default();
        let objects: Vec<Value> =
            agent.view().pods().iter().filter_map(|json| serde_json::from_slice(json).ok()).collect();
        for pod in summary.pods.iter().filter(|pod| pod.desired) {
            let object = objects.iter().find(|object| object["metadata"]["uid"] == pod.uid);
            report.add(pod, object.map_or(&Value::Null, |object| &object["status"]));
        }
        for problem in agent.manifest_problems() {
            report.pods += 1;
            report.bad += 1;
            report.line(&problem);
        }
        report
    }

    fn add(&mut self, pod: &PodSummary, status: &Value) {
        self.pods += 1;
        let mut line = format!("{}/{}: {}", pod.namespace, pod.name, pod.phase);
        if !is_well(pod) {
            self.bad += 1;
            let why = why(status);
            let _ = write!(line, ", {}", if why.is_empty() { "not ready" } else { &why }); // cannot fail
        } else if pod.ready {
            line.push_str(", ready");
        }
        self.line(&line);
    }

    fn line(&mut self, text: &str) {
        self.lines.push_str(&text.replace(char::is_control, " "));
        self.lines.push('\n');
    }
}

/// What the containers that are not well have to say.
fn why(status: &Value) -> String {
    let empty = Vec::new();
    let containers = status["containerStatuses"].as_array().unwrap_or(&empty);
    let words = containers.iter().filter_map(|container| {
        let name = container["name"].as_str()?;
        let state = &container["state"];
        if let Some(ended) = state["terminated"].as_object() {
            let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
            return (code != 0).then(|| format!("container {name} ended with exit code {code}"));
        }
        let waiting = state["waiting"].as_object()?;
        let text = |key: &str| waiting.get(key).and_then(Value::as_str).unwrap_or_default();
        Some(format!("container {name} waits: {} {}", text("reason"), text("message")).trim_end().to_owned())
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use crablet_model::{PodRef, api};
    use serde_json::json;

    use super::*;

    /// Says of the only pod how it is.
    fn tell(view: &View, phase: &str, ready: &str) {
        let status: api::PodStatus = serde_json::from_value(
            json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}),
        )
        .expect("a status");
        view.set_status(&PodRef::new("web", "default", "1"), &status);
    }

    fn view() -> View {
        let view = View::default();
        view.set_pod(&PodRef::new("web", "default", "1"), Some((*b"{}").into()), true);
        view.set_inventoried();
        view
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_falls_over_at_once_did_not_run() {
        let view = view();
        tell(&view, "Running", "True");
        let falls = async {
            tokio::time::sleep(CALM / 2).await;
            tell(&view, "Failed", "False");
        };
        let (summary, ()) = tokio::join!(settle(&view, Instant::now() + PATIENCE), falls);
        assert_eq!(summary.pods[0].phase, "Failed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_runs_is_enough_and_one_that_does_not_is_not_waited_for_forever() {
        let view = view();
        let start = Instant::now();
        tell(&view, "Running", "True");
        settle(&view, start + PATIENCE).await;
        assert!(start.elapsed() < PATIENCE / 2);
        tell(&view, "Pending", "False");
        let summary = settle(&view, start + PATIENCE).await;
        assert!(start.elapsed() >= PATIENCE);
        assert_eq!(summary.pods[0].phase, "Pending");
    }

    fn pod(phase: &str, ready: bool) -> PodSummary {
        PodSummary {
            name: "web-n1".to_owned(),
            namespace: "default".to_owned(),
            phase: phase.to_owned(),
            ready,
            desired: true,
            ..PodSummary::default()
        }
    }

    #[test]
    fn a_pod_is_waited_for_until_it_runs_or_has_ended() {
        for (phase, ready, settled, well) in [
            ("Pending", false, false, false),
            ("Running", false, false, false),
            ("Running", true, true, true),
            ("Succeeded", false, true, true),
            ("Failed", false, true, false),
        ] {
            assert_eq!(
                (is_settled(&pod(phase, ready)), is_well(&pod(phase, ready))),
                (settled, well),
                "{phase}"
            );
        }
    }

    #[test]
    fn each_pod_has_one_line() {
        let mut report = Report::default();
        report.add(&pod("Running", true), &Value::Null);
        report.add(&pod("Succeeded", false), &Value::Null);
        let ended = json!({"containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 3}}},
            {"name": "b", "state": {"terminated": {"exitCode": 0}}},
        ]});
        report.add(&pod("Failed", false), &ended);
        let waits = json!({"containerStatuses": [
            {"name": "a", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such\nimage"}}},
        ]});
        report.add(&pod("Pending", false), &waits);
        assert_eq!(
            report.lines,
            "default/web-n1: Running, ready\n\
             default/web-n1: Succeeded\n\
             default/web-n1: Failed, container a ended with exit code 3\n\
             default/web-n1: Pending, container a waits: ErrImagePull no such image\n"
        );
        assert_eq!((report.pods, report.bad), (4, 2));
    }
}

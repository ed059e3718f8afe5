//! One kubelet's turn: it joins, is measured, leaves, and what it left is removed.

use std::time::Duration;

use anyhow::{Context, Result};
use crablet_testbed::cluster::{Cluster, Kubelet, Node, NodeOptions};
use crablet_testbed::say;
use tokio::runtime::Runtime;

use super::api::Api;
use super::audit::Audit;
use super::burst::{self, Half};
use super::family::{Family, Rest, cpu_of};
use super::figures::Results;
use super::floor::Bare;
use super::observer::Observer;
use super::reactions::{self, Reactions};
use super::{Plan, pods};
use crate::cluster::Which;

/// Work that follows a start or a burst must be over before a window opens.
const SETTLE: Duration = Duration::from_secs(15);
/// The node's readiness is in the API server before the join returns; its event comes soon.
const EVENT: Duration = Duration::from_secs(10);

/// What one turn showed.
#[derive(Debug, Clone)]
pub struct Turn {
    pub which: Which,
    /// Seconds from the start of the process until the API server says that the node is ready.
    pub start_up: f64,
    pub empty: Rest,
    pub up: Half,
    pub full: Rest,
    pub down: Half,
    pub reactions: Reactions,
    pub binary_mib: f64,
}

/// What the parts of a turn work with.
pub struct Stage<'a> {
    pub node: &'a str,
    pub api: &'a Api,
    pub pods: Observer,
    pub audit: Audit,
    pub family: Family,
    runtime_pid: u32,
}

impl Stage<'_> {
    pub fn runtime_cpu(&self) -> Result<f64> {
        cpu_of(self.runtime_pid).context("containerd ended")
    }
}

/// What all turns have in common.
pub struct Bench<'a> {
    pub plan: &'a Plan,
    pub cluster: &'a Cluster,
    pub runtime: &'a Runtime,
    pub api: Api,
    pub bare: Bare,
}

impl Bench<'_> {
    pub fn rounds(&self, mut subjects: Vec<(Which, Kubelet)>, results: &mut Results) -> Result<()> {
        for round in 1..=self.plan.rounds {
            let of = format!("round {round} of {}", self.plan.rounds);
            say::step(format!("{of}: the floor, a bare CRI client"));
            results.floors.push(self.runtime.block_on(self.bare.measure(self.plan.pods))?);
            for (which, kubelet) in &subjects {
                say::step(format!("{of}: the {} kubelet", which.name()));
                results.turns.push(self.turn(round, *which, kubelet)?);
            }
            // Who goes first in this round goes last in the next.
            subjects.reverse();
        }
        Ok(())
    }

    fn turn(&self, round: usize, which: Which, kubelet: &Kubelet) -> Result<Turn> {
        // A name of its own for each turn: no folder, no node object of an earlier one is in its way.
        let name = format!("{}-{round}", which.name());
        let nodes = self.runtime.block_on(Observer::start(&self.api, "/api/v1/nodes"))?;
        say::note("starting the kubelet");
        let options = NodeOptions { name: name.clone(), ..NodeOptions::new(kubelet.clone()) };
        let node = self.cluster.join(options)?;
        let family = Family::of(node.kubelet().pid())?;
        let ready = self.runtime.block_on(nodes.moment(&name, EVENT, |seen| seen.ready))?;
        let ready = ready.context("the node is ready, and the API server's watch does not say so")?;
        let start_up = ready.saturating_duration_since(family.started()).as_secs_f64();
        drop(nodes);
        let binary = std::fs::metadata(format!("/proc/{}/exe", node.kubelet().pid()))?.len();
        let stage = Stage {
            node: &name,
            api: &self.api,
            pods: self.runtime.block_on(Observer::start(&self.api, pods::COLLECTION))?,
            audit: Audit(self.cluster.audit_log()),
            family,
            runtime_pid: self.cluster.containerd().daemon_pid().context("containerd runs")?,
        };
        let turn = self.measure(&stage, which, start_up, binary).with_context(|| {
            format!("the {} kubelet; its log ends with:\n{}", which.name(), log_end(&node))
        })?;
        drop(stage);
        self.leave(node)?;
        Ok(turn)
    }

    fn measure(&self, stage: &Stage<'_>, which: Which, start_up: f64, binary: u64) -> Result<Turn> {
        let Plan { pods, idle, reactions, .. } = *self.plan;
        let rest = |what: &str| {
            say::note(format!(
                "at rest {what}: settling {} s, measuring {} s",
                SETTLE.as_secs(),
                idle.as_secs()
            ));
            stage.family.stay(SETTLE)?;
            stage.family.rest(idle, stage.runtime_pid)
        };
        let empty = rest("without pods")?;
        say::note(format!("{pods} pods at once"));
        let names = burst::names(stage, pods);
        let up = self.runtime.block_on(burst::up(stage, &names))?;
        say::note(format!("ready after {:.1} s, {} missing", up.took.as_secs_f64(), up.missing));
        let full = rest("with all pods")?;
        let down = self.runtime.block_on(burst::down(stage, &names))?;
        say::note(format!("gone after {:.1} s, {} missing", down.took.as_secs_f64(), down.missing));
        say::note(format!("reactions, {reactions} of each"));
        let reactions = self.runtime.block_on(reactions::measure(stage, reactions))?;
        let binary_mib = binary as f64 / 1024.0 / 1024.0;
        Ok(Turn { which, start_up, empty, up, full, down, reactions, binary_mib })
    }

    fn leave(&self, node: Node) -> Result<()> {
        say::note("removing the node");
        node.kubelet().stop()?;
        let name = node.name().to_owned();
        drop(node);
        self.runtime.block_on(async {
            let now = serde_json::json!({ "gracePeriodSeconds": 0 });
            let left = self.api.get(pods::COLLECTION).await?;
            for pod in left["items"].as_array().into_iter().flatten() {
                let path = pods::path(pod["metadata"]["name"].as_str().unwrap_or_default());
                self.api.delete(&path, Some(&now)).await?;
            }
            self.api.delete(&format!("/api/v1/nodes/{name}"), None).await?;
            let swept = self.bare.sweep().await?;
            if swept > 0 {
                say::note(format!("{swept} sandboxes had not been removed yet"));
            }
            anyhow::Ok(())
        })
    }
}

fn log_end(node: &Node) -> String {
    let text = std::fs::read_to_string(node.log_path()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

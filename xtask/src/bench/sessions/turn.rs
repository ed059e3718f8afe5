//! One kubelet's turn: it joins, its pods start, and each load is put on it after a restart.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crablet_testbed::cluster::{Cluster, Kubelet, Node, NodeOptions};
use crablet_testbed::kubelet_port::KubeletPort;
use crablet_testbed::process::{self, ProcessId};
use crablet_testbed::{images, say};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Plan;
use super::figures::{Figure, Results};
use super::load::{self, Load, PODS};
use crate::bench::measure::{field, read};
use crate::bench::node::family::{Family, Rest};
use crate::cluster::Which;

/// What follows a start must be over before a window opens, memory given back included.
const SETTLE: Duration = Duration::from_secs(25);
/// The same after the clients have come.
const ARRIVED: Duration = Duration::from_secs(5);

pub struct Bench<'a> {
    pub plan: &'a Plan,
    pub cluster: &'a Cluster,
    pub runtime: &'a Runtime,
}

impl Bench<'_> {
    pub fn rounds(&self, mut subjects: Vec<(Which, Kubelet)>, results: &mut Results) -> Result<()> {
        for round in 1..=self.plan.rounds {
            for (which, kubelet) in &subjects {
                say::step(format!("round {round} of {}: the {} kubelet", self.plan.rounds, which.name()));
                self.turn(round, *which, kubelet, results)?;
            }
            // Who goes first in this round goes last in the next.
            subjects.reverse();
        }
        Ok(())
    }

    fn turn(&self, round: usize, which: Which, kubelet: &Kubelet, results: &mut Results) -> Result<()> {
        // A name of its own for each turn: no folder, no node object of an earlier one is in its way.
        let name = format!("{}-{round}", which.name());
        let options = NodeOptions { name: name.clone(), ..NodeOptions::new(kubelet.clone()) };
        let mut node = self.cluster.join(options.clone())?;
        self.start_pods(&name)?;
        for load in Load::ALL {
            node.kubelet().stop()?;
            drop(node);
            node = self.cluster.join(options.clone())?;
            say::note(load.title(self.plan));
            let figure = self.measure(&node, load).with_context(|| load.title(self.plan))?;
            results.add(which, load, figure);
        }
        say::note("removing the node");
        self.cluster.kubectl(&["delete", "pods", "--all", "--timeout=120s"])?;
        node.kubelet().stop()?;
        self.cluster.kubectl(&["delete", "node", &name])?;
        Ok(())
    }

    fn start_pods(&self, node: &str) -> Result<()> {
        let quiet = "trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done";
        let tick = "trap 'exit 0' TERM; while true; do echo one line of a log; sleep 1 & wait $!; done";
        let mut pods = vec![pod(node, "sh", quiet)];
        for number in 0..PODS {
            pods.push(pod(node, &format!("quiet-{number}"), quiet));
            pods.push(pod(node, &format!("tick-{number}"), tick));
        }
        let file = self.cluster.dir().join("bench-pods.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
        std::fs::write(&file, list.to_string())?;
        self.cluster.kubectl(&["create", "-f", &file.to_string_lossy()])?;
        self.cluster.kubectl(&["wait", "pods", "--all", "--for=condition=Ready", "--timeout=300s"])?;
        Ok(())
    }

    fn measure(&self, node: &Node, load: Load) -> Result<Figure> {
        let runtime = self.cluster.containerd().daemon_pid().context("containerd runs")?;
        let family = Family::of(node.kubelet().pid())?;
        let port = KubeletPort::of(self.cluster)?;
        family.stay(SETTLE)?;
        let before = family.rest(self.plan.window / 2, runtime)?;
        let own_before = own_memory(node.kubelet().pid())?;
        let mut held = self.runtime.block_on(load::hold(load, &port, self.plan))?;
        family.stay(ARRIVED)?;
        let (begin, bytes) = (Instant::now(), held.bytes());
        let during = family.rest(self.plan.window, runtime)?;
        let own_kib = own_memory(node.kubelet().pid())? - own_before;
        let carried = (held.bytes() - bytes) as f64 / begin.elapsed().as_secs_f64();
        self.runtime.block_on(held.check())?;
        self.runtime.block_on(held.end());
        say::note(shown(&before, &during, own_kib, carried));
        let each_kib = own_kib / load.count(self.plan) as f64;
        Ok(Figure::new(&before, &during, each_kib, carried))
    }
}

/// Kibibytes of a process and its children that no file stands behind: pages of the program itself come and go with the
/// machine's mood.
fn own_memory(pid: u32) -> Result<f64> {
    let process = ProcessId::of(pid).context("the kubelet is gone")?;
    let mut sum = field(&read(pid, "status")?, "RssAnon:")? as f64;
    for child in process::with_descendants(&[process]).iter().skip(1) {
        sum += read(child.pid as u32, "status").and_then(|text| field(&text, "RssAnon:")).unwrap_or(0) as f64;
    }
    Ok(sum)
}

fn shown(before: &Rest, during: &Rest, own_kib: f64, carried: f64) -> String {
    format!(
        "memory {:.1} to {:.1} MiB, {own_kib:+.0} KiB of its own, CPU {:.2} to {:.2} %, {:.1} MiB/s",
        before.rss_mib,
        during.rss_mib,
        before.cpu_percent,
        during.cpu_percent,
        carried / 1024.0 / 1024.0
    )
}

fn pod(node: &str, name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": images::BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
            }],
        },
    })
}

//! The two agents that are measured, started with the same pods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use crablet_testbed::process::ProcessId;
use crablet_testbed::upstream::Upstream;
use crablet_testbed::wait::Deadline;
use crablet_testbed::{Agent, Containerd, images};
use serde_json::Value;

/// How long all pods may take; upstream starts a few at a time on a small machine.
const START: Duration = Duration::from_secs(600);

/// An agent that can be started.
pub trait Subject {
    fn name(&self) -> &'static str;
    fn binary(&self) -> &Path;
    /// Starts it and waits until all pods run.
    fn start(&self, containerd: &Containerd, pods: usize) -> Result<Box<dyn Running>>;
}

/// An agent that runs; dropping it ends it.
pub trait Running {
    fn pid(&self) -> u32;

    /// Lets the time pass; fails as soon as the agent ends.
    fn stay(&self, time: Duration) -> Result<()> {
        let Some(process) = ProcessId::of(self.pid()) else { bail!("the agent is gone") };
        if process.wait_gone(Deadline::after(time)) {
            bail!("the agent ended while it was measured");
        }
        Ok(())
    }
}

fn manifest(number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: idle-{number}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n    - name: sleeper\n      image: {}\n      imagePullPolicy: IfNotPresent\n      \
         command: [\"sleep\", \"1000000\"]\n",
        images::BUSYBOX
    )
}

pub struct CrabletSubject {
    pub binary: PathBuf,
}

impl Subject for CrabletSubject {
    fn name(&self) -> &'static str {
        "crablet"
    }

    fn binary(&self) -> &Path {
        &self.binary
    }

    fn start(&self, containerd: &Containerd, pods: usize) -> Result<Box<dyn Running>> {
        let agent = Agent::builder(&self.binary, containerd).node_name("bench").build()?;
        for number in 0..pods {
            agent.put_manifest(&format!("idle-{number}.yaml"), &manifest(number))?;
        }
        agent.start()?;
        agent.wait_for(START, |snapshot| {
            snapshot.pods.len() == pods && snapshot.pods.iter().all(|pod| pod.phase == "Running" && pod.ready)
        })?;
        Ok(Box::new(RunningCrablet(agent)))
    }
}

struct RunningCrablet(Agent);

impl Running for RunningCrablet {
    fn pid(&self) -> u32 {
        self.0.pid().unwrap_or_default()
    }
}

/// Upstream's kubelet, standalone, with its defaults except for what this kind of machine does not let it do.
pub struct UpstreamSubject {
    pub binary: PathBuf,
}

impl Subject for UpstreamSubject {
    fn name(&self) -> &'static str {
        "upstream kubelet"
    }

    fn binary(&self) -> &Path {
        &self.binary
    }

    fn start(&self, containerd: &Containerd, pods: usize) -> Result<Box<dyn Running>> {
        let kubelet = Upstream::start(containerd, &self.binary, "bench", &containerd.endpoint())?;
        for number in 0..pods {
            kubelet.put_manifest(&format!("idle-{number}.yaml"), &manifest(number))?;
        }
        let runs = |pod: &&Value| pod["status"]["phase"] == "Running";
        kubelet.wait_for(START, |all| all.iter().filter(runs).count() == pods)?;
        Ok(Box::new(RunningUpstream(kubelet)))
    }
}

struct RunningUpstream(Upstream);

impl Running for RunningUpstream {
    fn pid(&self) -> u32 {
        self.0.pid()
    }
}

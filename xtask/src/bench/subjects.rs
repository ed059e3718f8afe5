//! The two agents that are measured, started with the same pods.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crablet_testbed::agent::free_port;
use crablet_testbed::process::ProcessId;
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{Agent, Containerd, http, images};
use serde_json::Value;

use super::traces::Traces;

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
        let home = containerd.scratch().dir().join("upstream");
        let manifests = home.join("manifests");
        fs::create_dir_all(&manifests)?;
        for number in 0..pods {
            fs::write(manifests.join(format!("idle-{number}.yaml")), manifest(number))?;
        }
        let read_only = free_port()?;
        fs::write(home.join("config.yaml"), upstream_config(containerd, &home, read_only)?)?;
        let log = fs::File::create(home.join("kubelet.log"))?;
        let traces = Traces::note();
        let mut command = Command::new(&self.binary);
        command
            .arg("--config")
            .arg(home.join("config.yaml"))
            .arg("--root-dir")
            .arg(home.join("root"))
            .arg("--cert-dir")
            .arg(home.join("pki"))
            .args(["--hostname-override", "bench"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start `{}`", self.binary.display()))?;
        containerd.scratch().note_process("upstream", child.id())?;
        let mut running = RunningUpstream { child, _traces: traces };
        // Standalone, upstream tells nobody when a pod changes: its read-only port must be asked again and again.
        let all_run =
            || running.child.try_wait().is_ok_and(|end| end.is_some()) || running_pods(read_only) == pods;
        let in_time = wait::until(Deadline::after(START), all_run);
        if !in_time || running.child.try_wait()?.is_some() {
            let log = fs::read_to_string(home.join("kubelet.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            bail!(
                "upstream's kubelet did not get there:\n{}",
                lines[lines.len().saturating_sub(20)..].join("\n")
            );
        }
        Ok(Box::new(running))
    }
}

struct RunningUpstream {
    child: Child,
    _traces: Traces,
}

impl Running for RunningUpstream {
    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RunningUpstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Upstream's defaults, except: cgroup v1 is a fact of test machines, nodes' cgroups are left alone by both agents, and
/// no iptables chains are made that nobody would remove.
fn upstream_config(containerd: &Containerd, home: &Path, read_only: u16) -> Result<String> {
    let (home, endpoint, port, healthz) = (home.display(), containerd.endpoint(), free_port()?, free_port()?);
    Ok(format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {home}/manifests
podLogsDir: {home}/pod-logs
volumePluginDir: {home}/volume-plugins
containerRuntimeEndpoint: {endpoint}
address: 127.0.0.1
port: {port}
readOnlyPort: {read_only}
healthzPort: {healthz}
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
"
    ))
}

fn running_pods(read_only: u16) -> usize {
    let ask = || -> Result<usize> {
        let deadline = Deadline::after(Duration::from_secs(10));
        let text = http::tcp((Ipv4Addr::LOCALHOST, read_only).into(), "GET", "/pods", deadline)?.text()?;
        let pods: Value = serde_json::from_str(&text)?;
        let items = pods["items"].as_array().context("a list of pods")?;
        Ok(items.iter().filter(|pod| pod["status"]["phase"] == "Running").count())
    };
    ask().unwrap_or(0)
}

//! Settings of an agent before it runs: everything it touches is in the runtime's scratch folder, so that one removal
//! takes both.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use super::{Agent, Life, Ports};
use crate::cgroups;
use crate::containerd::Containerd;
use crate::network::Network;
use crate::scratch::Scratch;

pub struct AgentBuilder {
    binary: PathBuf,
    scratch: Scratch,
    endpoint: String,
    node_name: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    config: String,
}

impl AgentBuilder {
    pub(super) fn new(binary: &Path, containerd: &Containerd) -> AgentBuilder {
        AgentBuilder {
            binary: binary.to_owned(),
            scratch: containerd.scratch().clone(),
            endpoint: containerd.endpoint(),
            node_name: "node1".into(),
            args: Vec::new(),
            env: Vec::new(),
            config: String::new(),
        }
    }

    /// The node's name, which is part of every static pod's name.
    pub fn node_name(mut self, name: &str) -> Self {
        self.node_name = name.into();
        self
    }

    /// Another way to the runtime: a proxy's.
    pub fn endpoint(mut self, endpoint: String) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// One more argument on the command line.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// More lines for the `KubeletConfiguration`, e.g. `syncFrequency: 10s`.
    pub fn config(mut self, lines: &str) -> Self {
        self.config.push_str(lines.trim_end());
        self.config.push('\n');
        self
    }

    /// A cgroup of the network's own, which is removed with everything else, unless the test has its own idea.
    fn cgroups(&self) -> Result<String> {
        let network = Network::of(&self.scratch).filter(|_| !self.config.contains("cgroup"));
        let Some(network) = network else { return Ok(String::new()) };
        cgroups::create(&network.cgroup_root())?;
        Ok(format!("cgroupRoot: {}\n", network.cgroup_root()))
    }

    /// Makes its folders; the agent does not run yet.
    pub fn build(self) -> Result<Agent> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agent-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let home = self.scratch.dir().join(&name);
        for folder in ["root", "manifests", "pod-logs", "container-logs"] {
            let path = home.join(folder);
            fs::create_dir_all(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        }
        let cgroups = self.cgroups()?;
        // Test machines may be old ones, with cgroup v1.
        let old_machine = if self.config.contains("failCgroupV1") { "" } else { "failCgroupV1: false\n" };
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodLogsDir: {}\n{old_machine}{cgroups}{}",
            home.join("pod-logs").display(),
            self.config
        );
        fs::write(home.join("config.yaml"), config)?;
        let ports = Ports { healthz: free_port()?, read_only: free_port()? };
        Ok(Agent {
            name,
            binary: self.binary,
            scratch: self.scratch,
            endpoint: self.endpoint,
            node_name: self.node_name,
            args: self.args,
            env: self.env,
            home,
            ports,
            life: Mutex::new(Life::NotStarted),
        })
    }

    /// Makes its folders and starts it.
    pub fn start(self) -> Result<Agent> {
        let agent = self.build()?;
        agent.start()?;
        Ok(agent)
    }
}

/// A port that was free a moment ago; the agent takes ports by number only.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?.local_addr()?.port())
}

//! `cluster`: a cluster with one node, for a person to play with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet, Node, NodeOptions};
use crablet_testbed::{Flavor, guard, images, say};

use crate::args::Args;
use crate::runtime::Runtime;
use crate::workspace;

/// Which kubelet a command is about, as it is said on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Crablet,
    Upstream,
}

#[derive(Debug, thiserror::Error)]
#[error("it is one of `crablet` and `upstream`")]
pub struct Unknown;

impl FromStr for Which {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Which, Unknown> {
        match text {
            "crablet" => Ok(Which::Crablet),
            "upstream" => Ok(Which::Upstream),
            _ => Err(Unknown),
        }
    }
}

impl Which {
    pub fn name(self) -> &'static str {
        match self {
            Which::Crablet => "crablet",
            Which::Upstream => "upstream",
        }
    }

    /// The kubelet itself; Crablet is built first.
    pub fn kubelet(self, binary: Option<&Path>) -> Result<Kubelet> {
        match (self, binary) {
            (Which::Upstream, _) => Ok(Kubelet::Upstream),
            // A build that is at hand already, such as a debug build.
            (Which::Crablet, Some(binary)) => Ok(Kubelet::Crablet(std::path::absolute(binary)?)),
            (Which::Crablet, None) => {
                say::step("building crablet");
                Ok(Kubelet::Crablet(workspace::build_crablet()?))
            }
        }
    }
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    let which = args.value("--kubelet")?.unwrap_or(Which::Crablet);
    let flavor = args.value::<Runtime>("--runtime")?.map_or(Flavor::Pinned, |runtime| runtime.0);
    let (addons, once) = (args.flag("--addons"), args.flag("--once"));
    let binary = args.value::<PathBuf>("--binary")?;
    args.done()?;
    guard::install()?;
    let kubelet = which.kubelet(binary.as_deref())?;
    say::step("starting a control plane and containerd");
    let cluster = Cluster::start(ClusterOptions { addons, ..ClusterOptions::new(flavor) })?;
    say::step(format!("starting a node with the {} kubelet", which.name()));
    let node = cluster.join(NodeOptions::new(kubelet))?;
    println!("\n{}", cluster.kubectl(&["get", "nodes", "-o", "wide"])?);
    if !once {
        linger(&cluster, &node)?;
    }
    say::step("removing everything");
    drop(node);
    cluster.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// Says how to use it and stays until Ctrl-C; a kubelet that leaves is told.
fn linger(cluster: &Cluster, node: &Node) -> Result<()> {
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("export PATH={}:$PATH", cluster.bin().display());
    say::step("the cluster is up; use the two lines above in another terminal");
    say::note("a pod to begin with:");
    say::note(format!(
        "kubectl run web --image={} --image-pull-policy=Never && kubectl get pods --watch",
        images::WEB
    ));
    say::note(format!("the kubelet's log: {}", node.log_path().display()));
    say::note(format!("all other logs:    {}/*.log", cluster.dir().display()));
    say::step("press Ctrl-C to stop; everything that was made is removed then");
    guard::interruption_is_success();
    cluster.wait_for_an_end(node)
}

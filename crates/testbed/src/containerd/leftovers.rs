//! What is there of a runtime's pods, or of the runtime itself: the outsider's view that "all gone" is judged by.

use std::fmt;
use std::path::PathBuf;

use crate::network::Network;
use crate::process::{self, ProcessId};
use crate::scratch::Scratch;
use crate::{cgroups, mounts, teardown};

/// Everything that is still there. Empty lists are good news.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Containers and sandboxes that the runtime lists; from its folders when the daemon does not run.
    pub containers: Vec<String>,
    pub sandboxes: Vec<String>,
    /// One for each sandbox, as `<pid> <command line>`.
    pub shims: Vec<String>,
    /// Processes in the containers' cgroups.
    pub processes: Vec<String>,
    pub cgroups: Vec<PathBuf>,
    pub network_namespaces: Vec<PathBuf>,
    /// Other mounts below the scratch folder.
    pub mounts: Vec<PathBuf>,
    /// The host's ends of pods' network cables.
    pub interfaces: Vec<String>,
    pub iptables_rules: Vec<String>,
    /// What belongs to the runtime rather than to a pod: there as long as the runtime is.
    pub bridge: Option<String>,
    pub folder: Option<PathBuf>,
}

impl Leftovers {
    /// No trace of any pod; the runtime itself may run.
    pub fn no_pods(&self) -> bool {
        Leftovers { bridge: None, folder: None, ..self.clone() } == Leftovers::default()
    }

    /// No trace of anything.
    pub fn nothing(&self) -> bool {
        *self == Leftovers::default()
    }

    pub(crate) fn find(
        scratch: &Scratch,
        network: Network,
        containers: Vec<String>,
        sandboxes: Vec<String>,
    ) -> Self {
        let ids = teardown::container_ids(scratch);
        let cgroups = cgroups::of_containers(&ids);
        let (namespaces, mounts): (Vec<_>, Vec<_>) =
            mounts::below(scratch.dir()).into_iter().partition(|mount| mount.kind == "nsfs");
        let points = |mounts: Vec<mounts::Mount>| mounts.into_iter().map(|mount| mount.point).collect();
        Leftovers {
            containers,
            sandboxes,
            shims: teardown::shims(scratch).into_iter().map(described).collect(),
            processes: cgroups::processes(&cgroups).into_iter().map(described).collect(),
            cgroups,
            network_namespaces: points(namespaces),
            mounts: points(mounts),
            interfaces: network.attached(),
            iptables_rules: network.iptables_rules(),
            bridge: network.bridge_exists().then(|| network.bridge()),
            folder: scratch.dir().exists().then(|| scratch.dir().to_owned()),
        }
    }
}

fn described(process: ProcessId) -> String {
    format!("{} {}", process.pid, process::command_line(process).join(" "))
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing() {
            return write!(f, "nothing is left");
        }
        let paths =
            |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let groups: [(&str, Vec<String>); 11] = [
            ("containers", self.containers.clone()),
            ("sandboxes", self.sandboxes.clone()),
            ("shims", self.shims.clone()),
            ("processes", self.processes.clone()),
            ("cgroups", paths(&self.cgroups)),
            ("network namespaces", paths(&self.network_namespaces)),
            ("mounts", paths(&self.mounts)),
            ("interfaces", self.interfaces.clone()),
            ("iptables rules", self.iptables_rules.clone()),
            ("bridge", self.bridge.iter().cloned().collect()),
            ("folder", self.folder.iter().map(|path| path.display().to_string()).collect()),
        ];
        for (name, items) in groups.iter().filter(|(_, items)| !items.is_empty()) {
            writeln!(f, "{name}:")?;
            for item in items {
                writeln!(f, "  {item}")?;
            }
        }
        Ok(())
    }
}

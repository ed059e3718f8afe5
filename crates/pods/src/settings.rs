//! What the pods room is told at start. Made from the program's settings by its wiring.

use std::path::{Path, PathBuf};

use crablet_model::PodRef;

#[derive(Clone, Debug)]
pub struct Folders {
    /// `--root-dir`.
    pub root: PathBuf,
    /// `podLogsDir`.
    pub pod_logs: PathBuf,
    /// Links for log shippers.
    pub container_logs: PathBuf,
}

impl Folders {
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub fn pod(&self, id: &PodRef) -> PathBuf {
        self.pods().join(id.uid.as_str())
    }

    /// The pod's memory over the agent's deaths.
    pub fn record(&self, id: &PodRef) -> PathBuf {
        self.pod(id).join("crablet.json")
    }

    pub fn logs(&self, id: &PodRef) -> PathBuf {
        self.pod_logs.join(id.log_dir_name())
    }

    pub fn container_log(&self, id: &PodRef, container: &str) -> PathBuf {
        self.logs(id).join(container)
    }

    pub fn is_below(path: &Path, parent: &Path) -> bool {
        path.starts_with(parent) && path != parent
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImagePulls {
    pub parallel: usize,
    /// Pulls begun per second in the long run; 0 for no limit.
    pub qps: f64,
    pub burst: u32,
}

//! What happens once, before the agent starts.

use anyhow::Context;
use crablet_config::{KUBERNETES_VERSION, Settings};
use crablet_host::lock::FileLock;
use crablet_host::process::{set_oom_score_adj, set_open_files, user_id};
use tracing::{error, info, warn};

use super::{folders, kubeconfig};

/// Held as long as the process lives.
pub struct Prepared {
    _lock: Option<FileLock>,
}

/// The first lines of every log.
pub fn introduce(settings: &Settings) {
    // Upstream's first line, which tools look for.
    info!(kubeletVersion = KUBERNETES_VERSION, node = settings.node_name, "Kubelet version");
    for warning in &settings.warnings {
        warn!("{warning}");
    }
    if !settings.not_yet.is_empty() {
        let settings = settings.not_yet.join(", ");
        warn!(settings, "These settings are accepted and have no effect in this version");
    }
    let user = user_id();
    if user != 0 {
        let error = format!("kubelet needs to run as uid `0`. It is being run as {user}");
        error!(error, "Kubelet running with insufficient permissions");
    }
}

/// Waits for the lock file if there is one. Signals have their default action until this is over.
pub fn prepare(settings: &Settings) -> anyhow::Result<Prepared> {
    let lock = take_lock(settings)?;
    kubeconfig::check(settings)?;
    if let Some(path) = &settings.kubeconfig {
        error!(
            kubeconfig = %path.display(),
            "This version does not talk to an API server yet: only static pods run, and no Node is registered"
        );
    } else {
        info!("Standalone mode, no API client");
    }
    take_limits(settings);
    folders::make(settings)?;
    Ok(Prepared { _lock: lock })
}

fn take_lock(settings: &Settings) -> anyhow::Result<Option<FileLock>> {
    let Some(path) = &settings.lock_file else { return Ok(None) };
    info!(path = %path.display(), "Acquiring file lock");
    let lock = FileLock::acquire(path);
    let lock =
        lock.with_context(|| format!("unable to acquire file lock on {:?}", path.display().to_string()))?;
    Ok(Some(lock))
}

/// An agent that gets less than it asks for still does its work.
fn take_limits(settings: &Settings) {
    let wanted = settings.max_open_files;
    match if wanted > 0 { set_open_files(wanted) } else { Ok(wanted) } {
        Ok(granted) if granted == wanted => {}
        Ok(granted) => warn!(wanted, granted, "The machine grants fewer open files than asked for"),
        Err(error) => warn!(wanted, %error, "Failed to set the limit of open files"),
    }
    let wanted = settings.oom_score_adj;
    match set_oom_score_adj(wanted) {
        Ok(granted) if granted == wanted => {}
        Ok(granted) => {
            warn!(wanted, granted, "The machine does not grant this oom_score_adj; the nearest is taken")
        }
        Err(error) => warn!(wanted, %error, "Failed to ApplyOOMScoreAdj"),
    }
}

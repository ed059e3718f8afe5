//! What happens once, before the agent starts.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use crablet_config::{KUBERNETES_VERSION, Settings};
use crablet_host::lock::FileLock;
use crablet_host::process::{set_oom_score_adj, set_open_files, user_id};
use crablet_pods::ledger;
use tracing::{error, info, warn};

use super::{folders, join};

/// Held as long as the process lives.
pub struct Prepared {
    _lock: Option<FileLock>,
}

/// Gates that are closed by default, and behind which there is nothing about volumes yet.
const WITHOUT_EFFECT: [&str; 2] = ["LocalStorageCapacityIsolationFSQuotaMonitoring", "ImageVolumeWithDigest"];

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
    for gate in WITHOUT_EFFECT.iter().filter(|gate| settings.feature_gates.enabled(gate)) {
        warn!(gate, "This feature gate is accepted and has no effect in this version");
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
    refuse_unfit_machine(settings, &Memory::read())?;
    join::check(settings)?;
    if settings.kubeconfig.is_none() {
        info!("Standalone mode, no API client");
    }
    take_limits(settings);
    folders::make(settings)?;
    check_ledgers(settings)?;
    if settings.kubeconfig.is_some()
        && let Err(error) = crablet_volumes::linux::make_shared(&settings.root_dir)
    {
        let path = settings.root_dir.display();
        warn!(%path, %error, "Mounts of containers will not show outside of them: the root folder is not shared");
    }
    Ok(Prepared { _lock: lock })
}

/// What pods were granted must not be forgotten: a file that makes no sense is for an operator to remove, as upstream has it.
fn check_ledgers(settings: &Settings) -> anyhow::Result<()> {
    for name in [ledger::ALLOCATED, ledger::ACTUATED] {
        let path = settings.root_dir.join(name);
        if let Ok(content) = fs::read(&path) {
            ledger::check(&path, &content).map_err(anyhow::Error::msg)?;
        }
    }
    Ok(())
}

/// How the machine manages memory, as far as it decides whether the agent starts.
struct Memory {
    cgroup_v1: bool,
    /// `/proc/swaps`: a heading, and a line for each swap area that is on.
    swaps: String,
}

impl Memory {
    fn read() -> Self {
        Self {
            cgroup_v1: !Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            swaps: fs::read_to_string("/proc/swaps").unwrap_or_default(),
        }
    }
}

/// In upstream's words. `crablet check` says the same beforehand, with what to do about it.
fn refuse_unfit_machine(settings: &Settings, memory: &Memory) -> anyhow::Result<()> {
    if memory.cgroup_v1 && settings.fail_cgroup_v1 {
        bail!(
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be \
             removed in a future release (failCgroupV1: false allows it)"
        );
    }
    if settings.fail_swap_on && memory.swaps.lines().count() > 1 {
        bail!(
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
        );
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use crablet_config::{Command, Environment};

    use super::*;

    fn refusal(flags: &[&str], memory: &Memory) -> Option<String> {
        let environment = Environment { hostname: "node1".to_owned() };
        let no_files = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        match crablet_config::parse(flags.iter().map(Into::into), &environment, no_files) {
            Ok(Command::Run(settings)) => {
                refuse_unfit_machine(&settings, memory).err().map(|error| error.to_string())
            }
            other => panic!("the flags are refused: {other:?}"),
        }
    }

    #[test]
    fn a_machine_is_refused_for_what_the_configuration_says() {
        let fit = Memory { cgroup_v1: false, swaps: "Filename Type Size Used Priority\n".to_owned() };
        assert_eq!(refusal(&[], &fit), None);
        let old = Memory { cgroup_v1: true, swaps: String::new() };
        assert!(refusal(&[], &old).is_some_and(|text| text.contains("cgroup v1")));
        assert_eq!(refusal(&["--fail-cgroupv1=false"], &old), None);
        let swapping =
            Memory { cgroup_v1: false, swaps: "Filename\n/dev/sda2 partition 1 0 -2\n".to_owned() };
        assert!(refusal(&[], &swapping).is_some_and(|text| text.contains("--fail-swap-on")));
        assert_eq!(refusal(&["--fail-swap-on=false"], &swapping), None);
    }
}

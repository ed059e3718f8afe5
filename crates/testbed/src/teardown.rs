//! The one way in which everything that belongs to a scratch folder is removed, by force and from facts alone: the
//! folder, `/proc`, the mount table, the cgroup trees. It serves a normal stop as well as the remains of a killed run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::network::Network;
use crate::process::{self, ProcessId};
use crate::scratch::{self, Scratch};
use crate::wait::Deadline;
use crate::{cgroups, mounts, packages, say, suites, traces};

/// How long killed processes may take to be gone.
const DEATH: Duration = Duration::from_secs(10);

/// A signal's thread and the one it interrupted may both want the same folder gone.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Removes all of it. A failure is reported and stops nothing but the removal of the folder.
pub fn remove(scratch: &Scratch) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let last = scratch::others(scratch).is_empty();
    let ids = container_ids(scratch);
    let killed = kill_processes(scratch, &ids);
    let groups = cgroups::of_containers(&ids);
    cgroups::remove(&groups, last);
    let unmounted = mounts::remove_below(scratch.dir());
    if let Some(network) = Network::of(scratch) {
        cgroups::remove_tree(&network.cgroup_root());
    }
    remove_proxy_rules(scratch);
    let suites = suites::remove_traces(scratch);
    traces::put_back(scratch);
    let network = Network::of(scratch).map_or(Ok(()), |network| network.remove(last));
    remove_outside_traces(scratch, &ids);
    // The folder goes last and only when all else is gone: it is what the next sweep finds its work by, and behind a
    // mount that stayed there may be files of the machine.
    killed.and(unmounted).and(suites).and(network)?;
    remove_folder(scratch.dir())?;
    scratch::forget(scratch.dir());
    Ok(())
}

/// kube-proxy itself knows best which rules are its own; no other cluster's can be there beside them. The one chain that
/// it leaves is where kubelets would have put rules: it goes when it is empty.
fn remove_proxy_rules(scratch: &Scratch) {
    let Ok(binary) = fs::read_to_string(scratch.proxy_file()) else { return };
    if let Err(error) = process::output_of(Command::new(binary).arg("--cleanup")) {
        say::note(format!("kube-proxy did not remove its rules: {error:#}"));
    }
    for program in ["iptables", "ip6tables"].into_iter().filter_map(packages::program) {
        let filter =
            |args: &[&str]| process::output_of(Command::new(&program).args(["--wait", "10"]).args(args));
        if filter(&["-S", "KUBE-FIREWALL"]).is_ok_and(|rules| rules.lines().count() == 1) {
            for chain in ["INPUT", "OUTPUT"] {
                let _ = filter(&["-D", chain, "-j", "KUBE-FIREWALL"]);
            }
            let _ = filter(&["-X", "KUBE-FIREWALL"]);
        }
    }
}

fn remove_folder(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Kills in rounds, since a process that is about to be killed may just have started another.
fn kill_processes(scratch: &Scratch, ids: &[String]) -> Result<()> {
    let deadline = Deadline::after(DEATH);
    suites::kill(scratch, deadline);
    // The agent first, so that it does not start again what is killed next; then the daemon and the rest.
    process::kill_all(&scratch.noted_processes(), deadline);
    loop {
        let mut victims = process::with_descendants(&runtime_processes(scratch));
        victims.extend(cgroups::processes(&cgroups::of_containers(ids)));
        victims.retain(|victim| victim.is_alive());
        if victims.is_empty() {
            return Ok(());
        }
        if deadline.passed() {
            bail!("{} processes of `{}` do not die", victims.len(), scratch.dir().display());
        }
        process::kill_all(&victims, deadline);
    }
}

/// The daemon, its shims and their helpers, known by the folder in their command line.
pub fn runtime_processes(scratch: &Scratch) -> Vec<ProcessId> {
    let folder = format!("{}/", scratch.dir().display());
    let ours = |process: &ProcessId| {
        let command = process::command_line(*process);
        let program = command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let known = ["containerd", "containerd-shim-runc-v2", "runc", "ctr"].contains(&program);
        known && command.iter().any(|word| word.contains(&folder))
    };
    process::all().into_iter().filter(ours).collect()
}

/// The shims alone: one for each sandbox.
pub fn shims(scratch: &Scratch) -> Vec<ProcessId> {
    let is_shim = |process: &ProcessId| {
        process::command_line(*process).first().is_some_and(|path| path.ends_with("containerd-shim-runc-v2"))
    };
    runtime_processes(scratch).into_iter().filter(is_shim).collect()
}

/// Every container that the runtime knows or ever spoke of, asked of the disk since the daemon may be dead.
pub fn container_ids(scratch: &Scratch) -> Vec<String> {
    let mut ids = Vec::new();
    for folder in [scratch.state(), scratch.root()] {
        ids.extend(names_in(&folder.join("io.containerd.runtime.v2.task/k8s.io")));
    }
    ids.extend(names_in(&scratch.runc_root().join("k8s.io")));
    // The log names containers that are long gone: how else to notice that one left a cgroup behind?
    let log = fs::read_to_string(scratch.containerd_log()).unwrap_or_default();
    let words = log.split(|letter: char| !letter.is_ascii_alphanumeric());
    ids.extend(words.filter(|word| is_id(word)).map(str::to_owned));
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn is_id(word: &str) -> bool {
    word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

/// What runtime parts put into folders that cannot be chosen: shims' sockets, cached CNI results of the loopback
/// network, and links to log files that upstream's kubelet makes in `/var/log/containers`.
fn remove_outside_traces(scratch: &Scratch, ids: &[String]) {
    for id in names_in(&scratch.state().join("io.containerd.runtime.v2.task/k8s.io")) {
        let bundle = scratch.state().join("io.containerd.runtime.v2.task/k8s.io").join(id);
        if let Some(socket) = shim_socket(&bundle) {
            let _ = fs::remove_file(socket);
        }
    }
    for id in ids {
        let _ = fs::remove_file(format!("/var/lib/cni/results/cni-loopback-{id}-lo"));
    }
    let Ok(links) = fs::read_dir("/var/log/containers") else { return };
    for link in links.filter_map(Result::ok).map(|entry| entry.path()) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(scratch.dir())) {
            let _ = fs::remove_file(link);
        }
    }
}

/// `unix:///run/containerd/s/<hash>`, written by a shim into its bundle.
fn shim_socket(bundle: &Path) -> Option<PathBuf> {
    let address = fs::read_to_string(bundle.join("address")).ok()?;
    address.trim().strip_prefix("unix://").map(PathBuf::from)
}

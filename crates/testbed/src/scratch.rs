//! Scratch folders: `<temp>/crablet-testbed/<pid>-<n>`, one for each runtime that the test bed starts.
//!
//! A folder carries everything that is needed to remove what was made for it: who owns it, which network it claimed,
//! which processes it started. So the same removal serves a normal stop, a panic, Ctrl-C, and (for an owner that was
//! killed) the next run, which sweeps the folders whose owner is gone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::network::{self, Network};
use crate::process::{self, ProcessId};
use crate::{say, teardown};

/// Written into the owner file of a folder that is to outlive its maker.
const KEPT: &str = "kept";

/// Folders of this process, for [`crate::guard`]: a signal handler's thread has no other way to find them.
static OURS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A scratch folder and the names of what is in it.
#[derive(Debug, Clone)]
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// Makes a folder of our own with a network of its own, after sweeping what dead owners left.
    pub fn claim() -> Result<(Scratch, Network)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = base()?;
        let _lock = lock(&base)?;
        sweep_locked(&base);
        if all(&base).is_empty() {
            network::remove_abandoned_chains();
        }
        let owner = ProcessId::of_self();
        let dir = base.join(format!("{}-{}", owner.pid, COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&dir).with_context(|| format!("cannot make scratch folder `{}`", dir.display()))?;
        let scratch = Scratch { dir };
        fs::create_dir(scratch.pids())?;
        fs::write(scratch.owner_file(), owner.to_string())?;
        OURS.lock().unwrap().push(scratch.dir.clone());
        let network = Network::claim(&scratch).inspect_err(|_| {
            let _ = teardown::remove(&scratch);
        })?;
        Ok((scratch, network))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// runc's own state; its usual place is shared by all runtimes of a machine.
    pub fn runc_root(&self) -> PathBuf {
        self.dir.join("runc")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    pub fn containerd_config(&self) -> PathBuf {
        self.dir.join("containerd.toml")
    }

    pub fn containerd_log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    pub fn cni_conf(&self) -> PathBuf {
        self.dir.join("cni")
    }

    pub fn cni_data(&self) -> PathBuf {
        self.dir.join("cni-data")
    }

    /// Where the runtime looks for registries that stand in for others.
    pub fn registry_hosts(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    /// Where shims listen, if the runtime lets us choose.
    pub fn shim_sockets(&self) -> PathBuf {
        self.dir.join("s")
    }

    pub(crate) fn network_file(&self) -> PathBuf {
        self.dir.join("network")
    }

    /// Names the kube-proxy whose rules are to be removed with the rest.
    pub(crate) fn proxy_file(&self) -> PathBuf {
        self.dir.join("kube-proxy")
    }

    fn owner_file(&self) -> PathBuf {
        self.dir.join("owner")
    }

    fn pids(&self) -> PathBuf {
        self.dir.join("pids")
    }

    /// Notes a process of ours, so that it can be ended without its parent's help.
    pub fn note_process(&self, name: &str, pid: u32) -> Result<()> {
        let Some(process) = ProcessId::of(pid) else { bail!("`{name}` ended as soon as it was started") };
        fs::write(self.pids().join(name), process.to_string())?;
        Ok(())
    }

    /// The noted processes that still run.
    pub fn noted_processes(&self) -> Vec<ProcessId> {
        let Ok(files) = fs::read_dir(self.pids()) else { return Vec::new() };
        files
            .filter_map(|file| process::read_pid_file(&file.ok()?.path()))
            .filter(|process| process.is_alive())
            .collect()
    }

    /// Lets the folder and all that runs from it outlive this process, until [`remove_kept`].
    pub fn keep(&self) -> Result<()> {
        fs::write(self.owner_file(), KEPT)?;
        forget(&self.dir);
        Ok(())
    }

    fn owner_is_gone(&self) -> bool {
        match fs::read_to_string(self.owner_file()) {
            Ok(text) if text == KEPT => false,
            Ok(text) => !text.parse::<ProcessId>().is_ok_and(ProcessId::is_alive),
            // No owner file: its maker died between two steps (both happen under the lock that we hold).
            Err(_) => true,
        }
    }

    fn is_kept(&self) -> bool {
        fs::read_to_string(self.owner_file()).is_ok_and(|text| text == KEPT)
    }
}

/// Takes a folder off the list that a signal would remove.
pub(crate) fn forget(dir: &Path) {
    OURS.lock().unwrap().retain(|ours| ours != dir);
}

/// The folders that this process made and did not yet remove.
pub(crate) fn ours() -> Vec<Scratch> {
    OURS.lock().unwrap().iter().map(|dir| Scratch { dir: dir.clone() }).collect()
}

/// All scratch folders on the machine but `except`, whoever owns them.
pub(crate) fn others(except: &Scratch) -> Vec<Scratch> {
    base()
        .map(|base| all(&base))
        .unwrap_or_default()
        .into_iter()
        .filter(|other| other.dir != except.dir)
        .collect()
}

/// Removes what runs left whose process is gone.
pub fn sweep() -> Result<()> {
    let base = base()?;
    let _lock = lock(&base)?;
    sweep_locked(&base);
    Ok(())
}

/// Removes what was left running on purpose; says how many there were.
pub fn remove_kept() -> Result<usize> {
    let base = base()?;
    let _lock = lock(&base)?;
    let kept: Vec<Scratch> = all(&base).into_iter().filter(Scratch::is_kept).collect();
    for scratch in &kept {
        teardown::remove(scratch)?;
    }
    Ok(kept.len())
}

fn sweep_locked(base: &Path) {
    for scratch in all(base).into_iter().filter(Scratch::owner_is_gone) {
        say::note(format!("removing what a dead run left in `{}`", scratch.dir.display()));
        if let Err(error) = teardown::remove(&scratch) {
            say::note(format!("could not remove all of it: {error:#}"));
        }
    }
}

fn all(base: &Path) -> Vec<Scratch> {
    let Ok(entries) = fs::read_dir(base) else { return Vec::new() };
    let folders = entries.filter_map(Result::ok).filter(|entry| entry.path().is_dir());
    folders.map(|entry| Scratch { dir: entry.path() }).collect()
}

/// The folder of all scratch folders. It is ours alone: what lies in it is killed and removed by name, and the
/// temporary folder is open to every user. Others cannot list it, but they can pass: pods with users of their own have
/// their root folders in there.
fn base() -> Result<PathBuf> {
    let base = std::env::temp_dir().join("crablet-testbed");
    let _ = fs::DirBuilder::new().recursive(true).mode(0o711).create(&base);
    let meta = fs::symlink_metadata(&base).with_context(|| format!("cannot make `{}`", base.display()))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        bail!("`{}` belongs to someone else\nhint: remove it, or set `TMPDIR`", base.display());
    }
    fs::set_permissions(&base, fs::Permissions::from_mode(0o711))?;
    Ok(base)
}

/// Held while folders are made, swept or given a network; let go when dropped.
fn lock(base: &Path) -> Result<fs::File> {
    let path = base.join("lock");
    let file = fs::File::create(&path).with_context(|| format!("cannot open `{}`", path.display()))?;
    file.lock().with_context(|| format!("cannot lock `{}`", path.display()))?;
    Ok(file)
}

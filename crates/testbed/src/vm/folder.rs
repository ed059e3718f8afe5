//! A folder for one boot, in the cache: the files that come with it and the changes it makes to its disk. Its owner
//! holds a lock on it; where nobody does, the owner is dead, and the next boot removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{self, ProcessId};
use crate::wait::Deadline;
use crate::{cache, guard, say};

const OWNER: &str = "owner";
/// The noted process of the machine, for a sweep by someone else.
const MACHINE: &str = "machine";
/// How long a killed machine may take to be gone.
const DEATH: Duration = Duration::from_secs(10);

pub struct Folder {
    path: PathBuf,
    _owner: fs::File,
}

impl Folder {
    /// Makes one, after removing what dead owners left.
    pub fn claim() -> Result<Folder> {
        Folder::claim_in(&cache::dir()?.join("vm-boots"))
    }

    fn claim_in(base: &Path) -> Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(base)?;
        // Held while folders are made and swept, so that nobody sweeps one that has no lock yet.
        let turn = fs::File::create(base.join("lock"))?;
        turn.lock().with_context(|| format!("cannot lock `{}`", base.display()))?;
        sweep(base)?;
        let path = base.join(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        let owner = fs::File::create(path.join(OWNER))?;
        owner.lock()?;
        let interrupted = path.clone();
        guard::at_interruption(move || {
            let _ = fs::remove_dir_all(interrupted);
        });
        Ok(Folder { path, _owner: owner })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn dir(&self) -> &Path {
        &self.path
    }

    /// Notes the machine's process, so that it can be ended without its parent's help.
    pub fn note_machine(&self, pid: u32) -> Result<()> {
        if let Some(process) = ProcessId::of(pid) {
            fs::write(self.path(MACHINE), process.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn sweep(base: &Path) -> Result<()> {
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        if !path.is_dir() || has_owner(&path) {
            continue;
        }
        say::note(format!("removing what a dead run left in `{}`", path.display()));
        if let Some(machine) = process::read_pid_file(&path.join(MACHINE)) {
            process::kill_all(&[machine], Deadline::after(DEATH));
        }
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove `{}`", path.display()))?;
    }
    Ok(())
}

fn has_owner(folder: &Path) -> bool {
    fs::File::open(folder.join(OWNER)).is_ok_and(|file| file.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_owner_left_goes_and_what_is_owned_stays() {
        let base = std::env::temp_dir().join(format!("crablet-vm-folder-test-{}", std::process::id()));
        let living = Folder::claim_in(&base).unwrap();
        let dead = base.join("1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(OWNER), "").unwrap();
        let mut machine = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = ProcessId::of(machine.id()).unwrap();
        fs::write(dead.join(MACHINE), process.to_string()).unwrap();

        let next = Folder::claim_in(&base).unwrap();
        assert!(!dead.exists());
        assert!(!process.is_alive());
        assert!(living.dir().exists() && next.dir().exists());

        machine.wait().unwrap();
        let gone = next.dir().to_owned();
        drop(next);
        assert!(!gone.exists());
        fs::remove_dir_all(&base).unwrap();
    }
}

//! Where slow things are kept between runs: built runtimes and images, outside the checkout so that
//! `cargo clean` or a fresh clone does not throw minutes of building away.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::mounts;

/// `$CRABLET_CACHE`, else `$XDG_CACHE_HOME/crablet`, else `$HOME/.cache/crablet`; made when missing.
pub fn dir() -> Result<PathBuf> {
    let dir = choose(|name| env::var_os(name).map(PathBuf::from)).ok_or_else(|| {
        anyhow!("no cache folder: neither `CRABLET_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set")
    })?;
    fs::create_dir_all(&dir).with_context(|| format!("cannot make the cache folder `{}`", dir.display()))?;
    Ok(dir)
}

fn choose(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The XDG specification says that a relative path is to be ignored.
    let absolute = |name: &str| var(name).filter(|path| path.is_absolute());
    absolute("CRABLET_CACHE")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|dir| dir.join("crablet")))
        .or_else(|| absolute("HOME").map(|dir| dir.join(".cache/crablet")))
}

/// Fills `target` by `fill` in a temporary folder beside it and renames, so that a folder that exists is whole.
/// A lock file makes a second builder wait and then find the work done.
pub fn build_once(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let name = target.file_name().context("a cache entry needs a name")?.to_string_lossy().into_owned();
    let parent = target.parent().context("a cache entry needs a folder")?;
    fs::create_dir_all(parent)?;
    let lock_path = parent.join(format!("{name}.lock"));
    let lock =
        fs::File::create(&lock_path).with_context(|| format!("cannot make `{}`", lock_path.display()))?;
    lock.lock().with_context(|| format!("cannot lock `{}`", lock_path.display()))?;
    if target.exists() {
        return Ok(());
    }
    let temporary = parent.join(format!("{name}.tmp"));
    // We hold the lock, so a temporary folder that is there was left by a builder that died.
    if temporary.exists() {
        // A root file system may have had parts of the machine mounted into it.
        mounts::remove_below(&temporary)?;
        fs::remove_dir_all(&temporary)?;
    }
    fs::create_dir_all(&temporary)?;
    fill(&temporary)?;
    fs::rename(&temporary, target).with_context(|| format!("cannot put `{}` in place", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(vars: &[(&str, &str)]) -> Option<PathBuf> {
        choose(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value)))
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let all = [("CRABLET_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(chosen(&all), Some("/a".into()));
        assert_eq!(chosen(&all[1..]), Some("/b/crablet".into()));
        assert_eq!(chosen(&all[2..]), Some("/c/.cache/crablet".into()));
        assert_eq!(chosen(&[("HOME", "relative")]), None);
    }

    #[test]
    fn a_failed_fill_leaves_no_entry_behind() {
        let scratch = std::env::temp_dir().join(format!("crablet-cache-test-{}", std::process::id()));
        let target = scratch.join("entry");
        assert!(build_once(&target, |_| Err(anyhow!("no luck"))).is_err());
        assert!(!target.exists());
        build_once(&target, |dir| Ok(fs::write(dir.join("file"), "x")?)).unwrap();
        assert!(target.join("file").exists());
        build_once(&target, |_| panic!("it is there already")).unwrap();
        fs::remove_dir_all(&scratch).unwrap();
    }
}

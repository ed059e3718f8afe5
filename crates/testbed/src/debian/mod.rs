//! Debian as material: root file systems and single files from the mirror that the machine's own apt uses.

mod apt;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

pub use self::apt::release;

use crate::longrun::{contained, run};
use crate::packages;
use crate::process::output_of;

/// Makes a small root file system of the machine's own release in `target`, with `packages` beside the essential ones.
/// Takes about 40 seconds. Where something is wrong, `<target>.log` has what was said.
///
/// debootstrap runs in namespaces of its own: what it mounts is seen nowhere else and vanishes with it, and however this
/// process ends, all that it started ends too.
pub fn bootstrap(target: &Path, packages: &[&str]) -> Result<()> {
    packages::ensure_bootstrap()?;
    let release = release()?;
    let mirror = apt::mirror(&release)?;
    let mut command = contained("debootstrap");
    command.arg("--variant=minbase");
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    if let Some(keyring) = mirror.keyring.as_ref().filter(|path| path.exists()) {
        command.arg(format!("--keyring={}", keyring.display()));
    }
    command
        .arg(&release)
        .arg(target)
        .arg(&mirror.uri)
        .envs(apt::proxies())
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let log = target.with_extension("log");
    run(&mut command, "making a root file system", &log)
        .context("cannot install Debian into a folder\nhint: does `apt-get update` work on this machine?")?;
    fs::remove_file(&log)?;
    Ok(())
}

/// Installs more packages into a root file system that [`bootstrap`] made. Their services are not started.
pub fn install(target: &Path, packages: &[&str]) -> Result<()> {
    let policy = target.join("usr/sbin/policy-rc.d");
    // 101 means "action forbidden by policy", which package scripts take for success.
    fs::write(&policy, "#!/bin/sh\nexit 101\n")
        .with_context(|| format!("cannot write `{}`", policy.display()))?;
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))?;
    let mut command = contained("chroot");
    command
        .arg(target)
        .args(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"])
        .args(packages);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    run(&mut command, "installing packages", &target.with_extension("log"))?;
    fs::remove_file(&policy)?;
    Ok(())
}

/// Fetches a file of the mirror's pool, e.g. `pool/main/b/busybox/busybox_1.37.0.orig.tar.bz2`, by apt's own means
/// (so through its proxy) and checks its digest.
pub fn fetch(file: &str, sha256: &str, to: &Path) -> Result<()> {
    let mut helper = Command::new("/usr/lib/apt/apt-helper");
    helper
        .arg("download-file")
        .arg(format!("{}/{file}", apt::mirror(&release()?)?.uri.trim_end_matches('/')))
        .arg(to)
        .arg(format!("SHA256:{sha256}"));
    output_of(&mut helper).with_context(|| format!("cannot fetch `{file}` from apt's mirror"))?;
    Ok(())
}

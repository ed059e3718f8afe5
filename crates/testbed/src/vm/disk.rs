//! The machine's disk: Debian with systemd, containerd and what a kubelet calls, made once and never written to again.
//! All that may differ between boots comes with the boot (see [`super::payload`]), so the disk is seldom made anew.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::output_of;
use crate::{cache, debian, guard, mounts, packages, say, sha256};

/// Raise it when the contents made below change in a way that the texts in the key do not show.
const EDITION: u32 = 1;
/// The file system's size; the file has holes and takes what is used of it.
const SIZE: &str = "4G";
/// By which the kernel finds its root file system.
pub const LABEL: &str = "crablet-vm";

/// What a node has, beyond the smallest Debian.
const PACKAGES: &[&str] = &[
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "curl",
    "dbus",
    "ethtool",
    "initramfs-tools",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "linux-image-cloud-amd64",
    "procps",
    "runc",
    "systemd",
    "systemd-sysv",
    "udev",
];

/// Work of a long-lived machine that a short boot can do without, and prompts that nobody answers.
const MASKED: &[&str] = &[
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "serial-getty@.service",
];

/// Below the root file system, with what each says.
const FILES: &[(&str, &str)] = &[
    ("etc/systemd/system/vm-unpack.service", include_str!("guest/unpack.service")),
    ("etc/systemd/system/vm-script.service", include_str!("guest/script.service")),
    ("etc/hostname", "vm\n"),
    ("etc/hosts", "127.0.0.1 localhost vm\n::1 localhost\n"),
    // The maker's own would be copied otherwise. There is no network to resolve names on.
    ("etc/resolv.conf", "nameserver 127.0.0.1\n"),
    ("etc/modules-load.d/node.conf", "overlay\nbr_netfilter\n"),
    ("etc/sysctl.d/node.conf", "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n"),
];

/// The files that a boot needs.
#[derive(Debug, Clone)]
pub struct Disk {
    pub image: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

/// The disk from the cache; made when it is not there (some minutes, and the package sources are asked).
pub fn ensure() -> Result<Disk> {
    let release = debian::release()?;
    let name = format!("vm-{release}-{}", &key(&release)[..16]);
    let home = cache::dir()?.join(name);
    cache::build_once(&home, |dir| build(dir, &release))?;
    Ok(Disk { image: home.join("disk.img"), kernel: home.join("vmlinuz"), initrd: home.join("initrd.img") })
}

/// Everything that decides what is in the disk, in one digest. Not the mirror: all of them serve the same.
fn key(release: &str) -> String {
    let inputs = format!("{EDITION} {release} {SIZE} {LABEL} {PACKAGES:?} {MASKED:?} {FILES:?}");
    sha256::hex(inputs.as_bytes())
}

fn build(dir: &Path, release: &str) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the virtual node is made for x86_64 only, and this machine is `{}`", std::env::consts::ARCH);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("making the virtual node's disk takes root\nhint: run it as root once; the disk is kept");
    }
    packages::ensure_vm()?;
    let unfinished = dir.to_owned();
    guard::at_interruption(move || {
        let _ = remove_tree(&unfinished);
    });
    let started = Instant::now();
    let root = dir.join("root");
    say::step(format!("making the virtual node's disk of Debian `{release}` (2 minutes or more, once)"));
    debian::bootstrap(&root, PACKAGES)?;
    configure(&root)?;
    take_kernel(&root, dir)?;
    output_of(&mut make_image(&root, &dir.join("disk.img")))?;
    remove_tree(&root)?;
    say::note(format!("made in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn configure(root: &Path) -> Result<()> {
    for (path, text) in FILES {
        let file = root.join(path);
        let folder = file.parent().context("a file has a folder")?;
        fs::create_dir_all(folder)?;
        // Some are links that point out of the root file system.
        let _ = fs::remove_file(&file);
        fs::write(&file, text).with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    let units = root.join("etc/systemd/system");
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    symlink("/etc/systemd/system/vm-script.service", wanted.join("vm-script.service"))?;
    for unit in MASKED {
        let link = units.join(unit);
        let _ = fs::remove_file(&link);
        symlink("/dev/null", link)?;
    }
    // Whoever looks at the disk by hand gets in without a password.
    let shadow = root.join("etc/shadow");
    let text = fs::read_to_string(&shadow)?;
    fs::write(&shadow, without_password(&text))?;
    for useless in
        ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"]
    {
        let _ = fs::remove_dir_all(root.join(useless));
    }
    Ok(())
}

/// `root:*:20000:0:99999:7:::` without the star.
fn without_password(shadow: &str) -> String {
    let line = |line: &str| match line.strip_prefix("root:").and_then(|rest| rest.split_once(':')) {
        Some((_, rest)) => format!("root::{rest}\n"),
        None => format!("{line}\n"),
    };
    shadow.lines().map(line).collect()
}

/// QEMU loads kernel and initial file system itself, so the disk needs no boot loader.
fn take_kernel(root: &Path, dir: &Path) -> Result<()> {
    for (start, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd.img")] {
        let entries = fs::read_dir(root.join("boot"))?;
        let found = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(start)));
        let found = found.with_context(|| format!("the kernel's package brought no `/boot/{start}*`"))?;
        fs::rename(found, dir.join(name))?;
    }
    Ok(())
}

/// Fills a file with a file system without mounting anything.
fn make_image(root: &Path, image: &Path) -> Command {
    let program = packages::program("mke2fs").unwrap_or_else(|| "mke2fs".into());
    let mut command = Command::new(program);
    command.args(["-q", "-F", "-t", "ext4", "-L", LABEL, "-m", "0", "-d"]).arg(root).arg(image).arg(SIZE);
    command
}

/// Removes a folder that may have been a root file system: never through a mount.
fn remove_tree(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    mounts::remove_below(folder)?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove `{}`", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_names_the_release_and_is_the_same_every_time() {
        assert_eq!(key("bookworm"), key("bookworm"));
        assert_ne!(key("bookworm"), key("trixie"));
    }

    #[test]
    fn root_gets_in_and_the_others_stay_as_they_are() {
        let shadow = "root:*:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n";
        assert_eq!(without_password(shadow), "root::20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n");
    }
}

//! Root file systems of Debian as layers: one with the tools that specs call, and one on top of it with servers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::archive::Layer;
use crate::process::output_of;
use crate::{cache, debian, mounts, say, sha256};

/// What upstream's agnhost image installs, by Debian's names; `bash`, `perl` and util-linux are there anyway.
const TOOLS: &[&str] = &["bind9-dnsutils", "ca-certificates", "curl", "iperf", "iproute2", "netcat-openbsd"];
const SERVERS: &[&str] = &["etcd-server", "nginx-light"];

/// Not for images: what belongs to the machine, what the runtime mounts over, what nobody reads in a container.
const LEFT_OUT: &[&str] = &[
    "./dev/*",
    "./proc/*",
    "./run/*",
    "./sys/*",
    "./etc/hostname",
    "./etc/resolv.conf",
    "./usr/share/doc/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
    "./var/cache/*",
    "./var/lib/apt/lists/*",
    "./var/log/*.log",
];

/// Part of the cache's key: raise it when the layers change in another way than by the lists above.
const EDITION: u32 = 1;

pub struct Rootfs {
    pub base: Layer,
    /// Belongs on top of `base`.
    pub servers: Layer,
    /// `/etc/passwd` and `/etc/group` of `base`.
    pub passwd: String,
    pub group: String,
    commands: BTreeSet<String>,
}

/// Names what is made, for cache keys.
pub fn recipe() -> String {
    format!("{EDITION} {TOOLS:?} {SERVERS:?} {LEFT_OUT:?}")
}

/// Makes the layers when the cache lacks them: a minute.
pub fn ensure() -> Result<Rootfs> {
    let home = cache::dir()?.join(format!("rootfs-{}", &sha256::hex(recipe().as_bytes())[..16]));
    cache::build_once(&home, build)?;
    let text =
        |name: &str| fs::read_to_string(home.join(name)).with_context(|| format!("cannot read `{name}`"));
    let layer = |name: &str| -> Result<Layer> { Ok(Layer::of_tar(fs::read(home.join(name))?)) };
    Ok(Rootfs {
        base: layer("base.tar")?,
        servers: layer("servers.tar")?,
        passwd: text("passwd")?,
        group: text("group")?,
        commands: text("commands")?.lines().map(str::to_owned).collect(),
    })
}

impl Rootfs {
    /// Whether the lower layer has a command of this name.
    pub fn has_command(&self, name: &str) -> bool {
        self.commands.contains(name)
    }
}

fn build(dir: &Path) -> Result<()> {
    say::step("making a root file system of Debian for the images (a minute)");
    let root = dir.join("root");
    debian::bootstrap(&root, TOOLS)?;
    for file in ["passwd", "group"] {
        fs::copy(root.join("etc").join(file), dir.join(file))?;
    }
    fs::write(dir.join("commands"), commands(&root)?)?;
    pack(&root, &dir.join("base.tar"), &["."])?;

    let marker = dir.join("marker");
    fs::write(&marker, "")?;
    debian::install(&root, SERVERS)?;
    let changed = dir.join("changed");
    let mut find = Command::new("find");
    find.arg(".").arg("-cnewer").arg(&marker).arg("-fprint0").arg(&changed).current_dir(&root);
    output_of(&mut find)?;
    let list = changed.to_string_lossy();
    pack(&root, &dir.join("servers.tar"), &["--no-recursion", "--null", "--files-from", &list])?;

    mounts::remove_below(&root)?;
    fs::remove_dir_all(&root)?;
    Ok(())
}

fn pack(root: &Path, tar: &Path, what: &[&str]) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--create", "--numeric-owner", "--sort=name", "--wildcards"]).arg("--file").arg(tar);
    command.args(LEFT_OUT.iter().map(|path| format!("--exclude={path}")));
    command.args(what).current_dir(root);
    output_of(&mut command)?;
    Ok(())
}

fn commands(root: &Path) -> Result<String> {
    let mut names = String::new();
    for folder in ["usr/bin", "usr/sbin"] {
        for entry in fs::read_dir(root.join(folder))? {
            names += &entry?.file_name().to_string_lossy();
            names.push('\n');
        }
    }
    Ok(names)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn stand_in() -> Rootfs {
        Rootfs {
            base: Layer::of_tar(Vec::new()),
            servers: Layer::of_tar(Vec::new()),
            passwd: String::new(),
            group: String::new(),
            commands: BTreeSet::from(["env".into()]),
        }
    }
}

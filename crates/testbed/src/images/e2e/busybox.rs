//! BusyBox at the very version of the suites' image, built from its source with its default options. Distributions'
//! builds are not the same: Debian's leaves applets out (`nmeter`, which node e2e tells the time by), and its shell
//! drops environment variables whose names are not shell names, which specs of config maps and secrets look for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::archive::File;
use crate::process::output_of;
use crate::{cache, debian, longrun, packages, say, sha256};

/// The source as Debian's mirrors have it; the digest is that of BusyBox's own release.
const SOURCE: &str = "pool/main/b/busybox/busybox_1.37.0.orig.tar.bz2";
const SOURCE_SHA256: &str = "3311dff32e746499f4df0d5df04d7eb396382d7e108bb9250e7b519b837043a4";
/// The folder in it.
const SOURCE_FOLDER: &str = "busybox-1.37.0";

/// Options that differ from the defaults: alone in an image it can have no libraries, and its `tc` asks for kernel
/// headers older than 6.8.
const OPTIONS: &[(&str, bool)] = &[("CONFIG_STATIC", true), ("CONFIG_TC", false)];

/// As in the official image, so that specs find the users and groups that they know.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
sys:x:3:3:sys:/dev:/bin/false
sync:x:4:100:sync:/bin:/bin/sync
mail:x:8:8:mail:/var/spool/mail:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
operator:x:37:37:Operator:/var:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
";
const GROUP: &str = "root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
lp:x:7:
mail:x:8:
kmem:x:9:
wheel:x:10:root
cdrom:x:11:
dialout:x:18:
floppy:x:19:
video:x:28:
audio:x:29:
tape:x:32:
www-data:x:33:
operator:x:37:
utmp:x:43:
plugdev:x:46:
staff:x:50:
lock:x:54:
netdev:x:82:
users:x:100:
nobody:x:65534:
";

/// The built program.
pub struct Busybox {
    program: Vec<u8>,
    applets: Vec<String>,
}

/// Names what is built, for cache keys.
pub fn recipe() -> String {
    format!("{SOURCE_SHA256} {OPTIONS:?} {PASSWD} {GROUP}")
}

/// Builds it when the cache lacks it: a minute.
pub fn ensure() -> Result<Busybox> {
    let key = sha256::hex(format!("{SOURCE_SHA256} {OPTIONS:?}").as_bytes());
    let home = cache::dir()?.join(format!("busybox-{}", &key[..16]));
    cache::build_once(&home, build)?;
    let program = home.join("busybox");
    let applets = output_of(Command::new(&program).arg("--list"))?;
    let applets = applets.lines().filter(|name| !name.is_empty() && *name != "busybox");
    Ok(Busybox { applets: applets.map(str::to_owned).collect(), program: fs::read(&program)? })
}

fn build(dir: &Path) -> Result<()> {
    packages::ensure_busybox_build()?;
    say::step("building BusyBox from source (a minute)");
    let archive = dir.join("source.tar.bz2");
    debian::fetch(SOURCE, SOURCE_SHA256, &archive)?;
    output_of(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir))?;
    let source = dir.join(SOURCE_FOLDER);
    make(&source, &["defconfig"])?;
    let config = source.join(".config");
    fs::write(&config, with_options(&fs::read_to_string(&config)?))?;
    // Options that depend on a changed one take their defaults: no answer is an end of input, which means that.
    make(&source, &["oldconfig"])?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&source, &[&format!("-j{jobs}"), "busybox"])?;
    fs::rename(source.join("busybox"), dir.join("busybox")).context("the build made no `busybox`")?;
    fs::remove_dir_all(&source)?;
    Ok(fs::remove_file(&archive)?)
}

fn make(source: &Path, args: &[&str]) -> Result<()> {
    let log: PathBuf = source.with_extension("log");
    // Out of the reach of flags for other builds.
    let mut command = longrun::contained("make");
    command
        .arg("-C")
        .arg(source)
        .args(args)
        .env_remove("CFLAGS")
        .env_remove("LDFLAGS")
        .env_remove("MAKEFLAGS");
    longrun::run(&mut command, "building BusyBox", &log)
}

/// The configuration with our options in place of the defaults.
fn with_options(config: &str) -> String {
    let lines = config.lines().map(|line| {
        let name = line.trim_start_matches("# ").split(['=', ' ']).next().unwrap_or_default();
        match OPTIONS.iter().find(|(option, _)| *option == name) {
            Some((option, true)) => format!("{option}=y\n"),
            Some((option, false)) => format!("# {option} is not set\n"),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

impl Busybox {
    /// A whole root file system, laid out as the official image is.
    pub fn image_files(&self) -> Vec<File> {
        let folders = [
            ("bin", 0o755),
            ("etc", 0o755),
            ("home", 0o755),
            ("root", 0o700),
            ("tmp", 0o1777),
            ("usr", 0o755),
            ("usr/bin", 0o755),
            ("usr/sbin", 0o755),
            ("var", 0o755),
            ("var/spool", 0o755),
            ("var/spool/mail", 0o755),
            ("var/www", 0o755),
        ];
        let mut files: Vec<File> = folders.map(|(path, mode)| File::folder(path, mode)).into();
        files.push(File::plain("etc/passwd", 0o644, PASSWD));
        files.push(File::plain("etc/group", 0o644, GROUP));
        files.push(File::plain("bin/busybox", 0o755, self.program.as_slice()));
        files.push(File::link("usr/bin/env", "../../bin/env"));
        files.extend(self.applets.iter().map(|applet| File::link(&format!("bin/{applet}"), "busybox")));
        files
    }

    /// What makes a root file system of Debian fit for specs that were written on Alpine, whose commands are
    /// BusyBox's: the shell, and each command that `has` does not know.
    pub fn supplement(&self, has: impl Fn(&str) -> bool) -> Vec<File> {
        let missing = self.applets.iter().filter(|applet| *applet == "sh" || !has(applet));
        let links = missing.map(|applet| File::link(&format!("usr/bin/{applet}"), "busybox"));
        std::iter::once(File::plain("usr/bin/busybox", 0o755, self.program.as_slice())).chain(links).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn stand_in() -> Busybox {
        Busybox { program: Vec::new(), applets: vec!["sh".into(), "env".into()] }
    }

    #[test]
    fn our_options_replace_the_defaults() {
        let defaults = "# CONFIG_STATIC is not set\nCONFIG_TC=y\nCONFIG_TCPSVD=y\n# CONFIG_PAM is not set\n";
        let wanted = "CONFIG_STATIC=y\n# CONFIG_TC is not set\nCONFIG_TCPSVD=y\n# CONFIG_PAM is not set\n";
        assert_eq!(with_options(defaults), wanted);
    }
}

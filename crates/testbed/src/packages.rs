//! The Debian packages that the test bed stands on: looked for by their binaries, installed only when one is missing.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::shown;
use crate::say;

/// A package and the file by which we know that it (or an equal from elsewhere) is there.
struct Package {
    name: &'static str,
    found: fn() -> bool,
}

/// What running pods takes: a runtime, its network plugins, images' contents, and the tools that clean up after them.
const TO_RUN: &[Package] = &[
    Package { name: "containerd", found: || program("containerd").is_some() && program("ctr").is_some() },
    Package { name: "runc", found: || program("runc").is_some() },
    Package { name: "containernetworking-plugins", found: || cni_plugins().is_some() },
    Package { name: "busybox-static", found: || static_busybox().is_some() },
    Package { name: "iptables", found: || program("iptables-save").is_some() },
    Package { name: "iproute2", found: || program("ip").is_some() },
    Package { name: "gcc", found: || program("cc").is_some() },
    // `cc -static` for the pause image needs the archive of the C library.
    Package { name: "libc6-dev", found: || in_multiarch_folder("libc.a") },
];

/// What building runc from source takes beyond Go itself.
const TO_BUILD_RUNC: &[Package] = &[
    Package { name: "libseccomp-dev", found: || Path::new("/usr/include/seccomp.h").exists() },
    Package { name: "pkg-config", found: || program("pkg-config").is_some() },
];

/// What a control plane takes beyond Kubernetes' own programs, and what kubelets and kube-proxy call.
const TO_RUN_A_CLUSTER: &[Package] = &[
    Package { name: "etcd-server", found: || program("etcd").is_some() },
    Package { name: "conntrack", found: || program("conntrack").is_some() },
    Package { name: "ethtool", found: || program("ethtool").is_some() },
    Package { name: "kmod", found: || program("modprobe").is_some() },
    Package { name: "socat", found: || program("socat").is_some() },
    // Signs what nodes ask for their pods.
    Package { name: "openssl", found: || program("openssl").is_some() },
];

/// What building BusyBox from source takes beyond a C compiler.
const TO_BUILD_BUSYBOX: &[Package] = &[
    Package { name: "bzip2", found: || program("bzip2").is_some() },
    Package { name: "make", found: || program("make").is_some() },
];

/// What makes root file systems of Debian.
const TO_BOOTSTRAP: &[Package] =
    &[Package { name: "debootstrap", found: || program("debootstrap").is_some() }];

/// What a virtual machine takes.
const TO_RUN_A_VM: &[Package] = &[
    Package { name: "qemu-system-x86", found: || program("qemu-system-x86_64").is_some() },
    Package { name: "e2fsprogs", found: || program("mke2fs").is_some() },
];

/// Makes sure that pods can be run with the distribution's runtime.
pub fn ensure_runtime() -> Result<()> {
    ensure(TO_RUN)
}

/// Whether nothing would have to be installed for that.
pub fn runtime_is_there() -> bool {
    TO_RUN.iter().all(|package| (package.found)())
}

/// Makes sure that the pinned runtime can be built. Go itself is not a package here: Debian's is too old.
pub fn ensure_build() -> Result<()> {
    ensure(TO_BUILD_RUNC)
}

/// Makes sure that a control plane and its nodes can be run.
pub fn ensure_cluster() -> Result<()> {
    ensure_runtime()?;
    ensure(TO_RUN_A_CLUSTER)
}

/// Makes sure that BusyBox can be built.
pub fn ensure_busybox_build() -> Result<()> {
    ensure(TO_BUILD_BUSYBOX)
}

/// Whether nothing would have to be installed for that.
pub fn cluster_is_there() -> bool {
    runtime_is_there() && TO_RUN_A_CLUSTER.iter().all(|package| (package.found)())
}

/// Makes sure that a root file system of Debian can be made.
pub fn ensure_bootstrap() -> Result<()> {
    ensure(TO_BOOTSTRAP)
}

/// Makes sure that a virtual machine can be made and run.
pub fn ensure_vm() -> Result<()> {
    ensure(TO_BOOTSTRAP)?;
    ensure(TO_RUN_A_VM)
}

fn ensure(packages: &[Package]) -> Result<()> {
    let missing = || packages.iter().filter(|package| !(package.found)()).map(|package| package.name);
    let names: Vec<&str> = missing().collect();
    if names.is_empty() {
        return Ok(());
    }
    install(&names)?;
    match missing().next() {
        Some(name) => bail!("package `{name}` was installed, but what it should bring is still not found"),
        None => Ok(()),
    }
}

fn install(names: &[&str]) -> Result<()> {
    if program("apt-get").is_none() {
        bail!(
            "missing: {}\nhint: no `apt-get` here; install them with your system's package manager",
            names.join(", ")
        );
    }
    if !rustix::process::geteuid().is_root() {
        bail!("missing: {}\nhint: run `apt-get install {}` as root", names.join(", "), names.join(" "));
    }
    let policy = NoServices::set()?;
    say::step("updating the package lists");
    apt_get(&["update", "--quiet"])?;
    for name in names {
        say::step(format!("installing package `{name}`"));
        apt_get(&["install", "--quiet", "--yes", "--no-install-recommends", name])?;
    }
    drop(policy);
    Ok(())
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().context("cannot run `apt-get`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}):\n{}", shown(&command), output.status, said.trim());
    }
    Ok(())
}

/// While it lives, package scripts start no services: the test bed runs its own containerd and wants no other.
/// `policy-rc.d` is Debian's interface for that; an existing one (in most container images) is left as it is.
struct NoServices {
    made: Option<PathBuf>,
}

impl NoServices {
    fn set() -> Result<NoServices> {
        let path = PathBuf::from("/usr/sbin/policy-rc.d");
        if path.exists() {
            return Ok(NoServices { made: None });
        }
        // 101 means "action forbidden by policy", which package scripts take for success.
        fs::write(&path, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(NoServices { made: Some(path) })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// A program on the path, or where administrators' tools live when the path of an ordinary user lacks it.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The folder of the CNI plugins: Debian's place, the upstream one, Fedora's.
pub fn cni_plugins() -> Option<PathBuf> {
    let has_all = |dir: &Path| {
        ["bridge", "host-local", "loopback", "portmap"].iter().all(|p| is_executable(&dir.join(p)))
    };
    ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"]
        .map(PathBuf::from)
        .into_iter()
        .find(|dir| has_all(dir))
}

/// A busybox that runs without any library, since it will be alone in its image.
pub fn static_busybox() -> Option<PathBuf> {
    let file = program("busybox")?;
    // A dynamic executable names its loader; a static one has no PT_INTERP and so no such string.
    let bytes = fs::read(&file).ok()?;
    let dynamic =
        [&b"/ld-linux"[..], b"/ld-musl"].iter().any(|name| contains(&bytes[..bytes.len().min(4096)], name));
    (!dynamic).then_some(file)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn in_multiarch_folder(file: &str) -> bool {
    let lib = Path::new("/usr/lib");
    let multiarch = lib.join(format!("{}-linux-gnu", env::consts::ARCH));
    [multiarch, lib.to_owned(), PathBuf::from("/usr/lib64")].iter().any(|dir| dir.join(file).exists())
}

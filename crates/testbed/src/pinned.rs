//! The pinned runtime: a new containerd with its shim, `ctr`, runc and CNI plugins, built from the Go module in
//! `go/runtime` (versions and checksums are in its `go.mod` and `go.sum`). Distributions lag years behind; CRI's
//! event stream, for one, is only in containerd 2. Built only when a test or a bench asks for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::shown;
use crate::{cache, packages, say, sha256};

const GO_MOD: &str = include_str!("../go/runtime/go.mod");
const GO_SUM: &str = include_str!("../go/runtime/go.sum");

struct Part {
    package: &'static str,
    cgo: bool,
    tags: &'static str,
}

const PARTS: &[Part] = &[
    plain("github.com/containerd/containerd/v2/cmd/containerd"),
    plain("github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    plain("github.com/containerd/containerd/v2/cmd/ctr"),
    plain("github.com/containernetworking/plugins/plugins/ipam/host-local"),
    plain("github.com/containernetworking/plugins/plugins/main/bridge"),
    plain("github.com/containernetworking/plugins/plugins/main/loopback"),
    plain("github.com/containernetworking/plugins/plugins/meta/portmap"),
    // runc enters namespaces in C before Go's runtime starts, and seccomp filters come from libseccomp.
    Part { package: "github.com/opencontainers/runc", cgo: true, tags: "seccomp" },
];

const fn plain(package: &'static str) -> Part {
    // btrfs would need its C headers, and nothing here uses it.
    Part { package, cgo: false, tags: "no_btrfs" }
}

/// The folder that holds the binaries when they are built, without building.
pub fn bin_dir() -> Result<PathBuf> {
    let key = sha256::hex(format!("{GO_MOD}\n{GO_SUM}").as_bytes());
    Ok(cache::dir()?.join(format!("runtime-{}", &key[..16])).join("bin"))
}

pub fn is_built() -> bool {
    bin_dir().is_ok_and(|dir| dir.exists())
}

/// Builds what is missing (minutes the first time) and gives the folder of the binaries.
pub fn ensure() -> Result<PathBuf> {
    let bin = bin_dir()?;
    if bin.exists() {
        return Ok(bin);
    }
    let Some(go) = packages::program("go") else {
        bail!(
            "the pinned container runtime is built with Go, and no `go` is on the path\n\
             hint: install Go (version as in crates/testbed/go/runtime/go.mod), or leave the pinned runtime out"
        );
    };
    packages::ensure_build()?;
    let home = bin.parent().context("the binaries' folder has a parent")?;
    cache::build_once(home, |dir| build_all(&go, dir))?;
    Ok(bin)
}

fn build_all(go: &Path, dir: &Path) -> Result<()> {
    say::step("building the pinned container runtime from source (a minute or two, once)");
    let started = Instant::now();
    // The module is written out from this very binary, so that what is built is what the cache key names.
    let module = dir.join("module");
    fs::create_dir_all(&module)?;
    fs::write(module.join("go.mod"), GO_MOD)?;
    fs::write(module.join("go.sum"), GO_SUM)?;
    let bin = dir.join("bin");
    fs::create_dir_all(&bin)?;
    for part in PARTS {
        say::note(format!("building `{}`", part.package));
        build(go, &module, &bin, part)?;
    }
    fs::remove_dir_all(&module)?;
    say::note(format!("built in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn build(go: &Path, module: &Path, bin: &Path, part: &Part) -> Result<()> {
    let mut command = Command::new(go);
    command
        .args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags=-s -w",
            "-tags",
            part.tags,
            "-o",
        ])
        .arg(bin)
        .arg(part.package)
        .current_dir(module)
        .env("CGO_ENABLED", if part.cgo { "1" } else { "0" })
        // Versions are pinned: no newer toolchain behind the builder's back, no flags from the environment.
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env_remove("GOFLAGS")
        .stdin(Stdio::null());
    let output = command.output().context("cannot run `go`")?;
    if !output.status.success() {
        bail!("`{}` failed:\n{}", shown(&command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

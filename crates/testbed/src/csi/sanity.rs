//! The public `csi-sanity`, built from the Go module in `go/csi-sanity`: it judges whether a driver keeps to the
//! specification.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::gobuild::{Module, Program};

const MODULE: Module = Module {
    name: "csi-sanity",
    go_mod: include_str!("../../go/csi-sanity/go.mod"),
    go_sum: include_str!("../../go/csi-sanity/go.sum"),
};

const PROGRAM: Program =
    Program::plain("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity", "half a minute");

pub fn is_built() -> bool {
    MODULE.has(&[PROGRAM])
}

/// The program, built when it is missing.
pub fn ensure() -> Result<PathBuf> {
    Ok(MODULE.ensure(&[PROGRAM])?.join(PROGRAM.name))
}

/// Judges the driver behind a socket; `scratch` is for its mounts. Gives the last lines of what it said.
pub fn judge(endpoint: &Path, scratch: &Path) -> Result<String> {
    let place = |name: &str| scratch.join(name).display().to_string();
    let done = Command::new(ensure()?)
        .arg(format!("--csi.endpoint=unix://{}", endpoint.display()))
        .args(["--csi.stagingdir", &place("staging"), "--csi.mountdir", &place("mount")])
        .arg("--ginkgo.no-color")
        .current_dir(scratch)
        .output()
        .context("cannot run `csi-sanity`")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("{said}\n{}", String::from_utf8_lossy(&done.stderr));
    }
    let last = said.lines().rev().find(|line| line.contains("Passed"));
    Ok(last.unwrap_or_default().trim().to_owned())
}

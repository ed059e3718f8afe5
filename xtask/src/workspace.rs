//! The checkout and cargo.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use crablet_testbed::guard::Group;
use serde_json::Value;

/// The folder of the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo as it was called, in the workspace. In a process group of its own, so that a signal ends all of it, also the
/// test programs that it started.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null()).process_group(0);
    command
}

/// The same command, content with what others leave of the processor.
pub fn politely(command: &Command) -> Command {
    let mut polite = Command::new("nice");
    polite.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    polite.current_dir(root()).stdin(Stdio::null()).process_group(0);
    polite
}

/// Builds the release binary and says where it is.
pub fn build_crablet() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "-p", "crablet", "--message-format=json-render-diagnostics"]);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run `cargo`")?;
    let _group = Group::of(&child);
    let messages = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
    let mut binary = None;
    for line in messages.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let is_it = message["reason"] == "compiler-artifact" && message["target"]["name"] == "crablet";
        if let Some(path) = message["executable"].as_str().filter(|_| is_it) {
            binary = Some(PathBuf::from(path));
        }
    }
    if !child.wait()?.success() {
        bail!("`crablet` does not build");
    }
    binary.context("cargo built `crablet` and did not say where it is")
}

/// `cargo metadata`: packages, targets and the resolved graph for this machine's platform.
pub fn metadata() -> Result<Value> {
    let version = crablet_testbed::process::output_of(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` names no host")?;
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    let text = crablet_testbed::process::output_of(&mut command)?;
    serde_json::from_str(&text).context("cannot read what `cargo metadata` says")
}

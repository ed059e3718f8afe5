//! Programs that work for minutes: they say that they are still at it, and they cannot outlive the one who asked.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::containerd::tail_of;
use crate::guard::{self, Group};
use crate::process::{shown, wait_child};
use crate::say;

/// How often a long run says that it is still at it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// A command that runs in process and mount namespaces of its own. When this process ends, by whatever signal, the
/// kernel kills all that the command started, and what it mounted is gone with it.
pub fn contained(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    command.args([
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
        "--",
        program,
    ]);
    command
}

/// Runs it to its end; `what` is for progress lines. All that it says goes to `log`, whose end a failure shows.
pub fn run(command: &mut Command, what: &str, log: &Path) -> Result<()> {
    let started = Instant::now();
    let said = fs::File::create(log).with_context(|| format!("cannot make `{}`", log.display()))?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
    guard::refuse_when_stopping()?;
    let mut child = command.spawn().with_context(|| format!("cannot run `{}`", shown(command)))?;
    let _group = Group::of(&child);
    let status = loop {
        match wait_child(&mut child, SIGN_OF_LIFE)? {
            Some(status) => break status,
            None => say::note(format!("still {what}, {} s", started.elapsed().as_secs())),
        }
    };
    if !status.success() {
        guard::refuse_when_stopping()?;
        bail!("`{}` failed ({status}):\n{}", shown(command), tail_of(log, 20));
    }
    Ok(())
}

//! Upstream's suites are Ginkgo programs: one command line for all of them, its output followed while it runs.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use super::stream::{Event, Parser};
use crate::guard::{self, Group};
use crate::scratch::Scratch;

/// Longer than any suite takes: what hangs has a time limit of its own in each spec.
const WHOLE_RUN: &str = "24h";
/// Specs that run for longer than this are told by name while they run, and again from time to time.
const LONG: &str = "20s";
const AGAIN: &str = "60s";

/// Which specs to run: all of it must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Ginkgo's language of labels: `NodeConformance && !Serial`.
    pub labels: String,
    /// A regular expression that the source file must not match.
    pub not_in: Option<String>,
    /// A regular expression that the name must match.
    pub focus: Option<String>,
    /// A regular expression that the name must not match.
    pub skip: Option<String>,
}

/// How many specs of a suite would run: asked of the suite itself, in seconds and without a cluster. It may leave a
/// trifle in `folder`.
pub fn selected(ginkgo: &Path, suite: &Path, selection: &Selection, folder: &Path) -> Result<usize> {
    let mut command = Command::new(ginkgo);
    command.args(["--dry-run", "--no-color"]).args(selection.flags()).arg(suite).current_dir(folder);
    let output = command.stdin(Stdio::null()).output().context("cannot run `ginkgo`")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut parser = Parser::default();
    let count = said.lines().find_map(|line| match parser.line(line) {
        Some(Event::Selected(count)) => Some(count),
        _ => None,
    });
    match count {
        Some(count) => Ok(count),
        None => {
            bail!("the suite does not tell its specs:\n{said}{}", String::from_utf8_lossy(&output.stderr))
        }
    }
}

/// One run of a suite.
#[derive(Debug)]
pub struct Run<'a> {
    pub ginkgo: PathBuf,
    pub suite: PathBuf,
    pub selection: &'a Selection,
    pub processes: usize,
    /// The suite's own flags.
    pub flags: Vec<OsString>,
    pub environment: Vec<(&'static str, OsString)>,
    /// Where the suite runs, and leaves what it leaves.
    pub folder: PathBuf,
    /// Where Ginkgo's report goes.
    pub report: PathBuf,
    /// Everything that was said.
    pub log: PathBuf,
}

impl Run<'_> {
    /// Runs it to its end. The exit status only echoes the report, which is the better source.
    pub fn carry_out(&self, scratch: &Scratch, mut news: impl FnMut(Event)) -> Result<ExitStatus> {
        let mut command = self.command();
        let mut log =
            fs::File::create(&self.log).with_context(|| format!("cannot write `{}`", self.log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone()?).process_group(0);
        guard::refuse_when_stopping()?;
        let mut child = command.spawn().context("cannot run `ginkgo`")?;
        let _group = Group::of(&child);
        scratch.note_process("ginkgo", child.id())?;
        let said = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
        let mut parser = Parser::default();
        for line in said.split(b'\n') {
            let line = line?;
            log.write_all(&line)?;
            log.write_all(b"\n")?;
            if let Some(event) = parser.line(&String::from_utf8_lossy(&line)) {
                news(event);
            }
        }
        Ok(child.wait()?)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.ginkgo);
        command
            .arg(format!("--procs={}", self.processes))
            .args(["-v", "--no-color", "--fail-on-empty=false", "--keep-going"])
            .arg(format!("--timeout={WHOLE_RUN}"))
            .arg(format!("--poll-progress-after={LONG}"))
            .arg(format!("--poll-progress-interval={AGAIN}"))
            .arg(format!("--json-report={}", file_name(&self.report)))
            .arg(format!("--output-dir={}", self.report.parent().unwrap_or(Path::new(".")).display()))
            .args(self.selection.flags())
            .arg(&self.suite)
            .arg("--")
            .args(&self.flags)
            .current_dir(&self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Selection {
    fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--label-filter={}", self.labels)];
        flags.extend(self.not_in.iter().map(|file| format!("--skip-file={file}")));
        flags.extend(self.focus.iter().map(|focus| format!("--focus={focus}")));
        flags.extend(self.skip.iter().map(|skip| format!("--skip={skip}")));
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_focus_and_skip_must_all_hold() {
        let labels = "NodeConformance && !Serial".to_owned();
        let mut selection = Selection { labels, ..Selection::default() };
        assert_eq!(selection.flags(), ["--label-filter=NodeConformance && !Serial"]);
        selection.focus = Some("Pods should be".into());
        selection.skip = Some("websockets".into());
        assert_eq!(selection.flags()[1..], ["--focus=Pods should be", "--skip=websockets"]);
    }
}

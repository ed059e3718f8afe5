//! A changed configuration, applied to the running agent as far as that goes.
//!
//! The same command line is read again, with all rules, when the configuration's folders change or SIGHUP asks for it. A
//! configuration that is not good changes nothing. Nothing here ever ends a pod: what a running pod was made from stays
//! as it was, and new containers get the new values.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_config::{Command, Settings, reload_diff};
use crablet_host::changes::Changes;
use tokio::signal::unix::Signal;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use super::command_line::CommandLine;

/// Changes that come closer together than this are one change.
const QUIET: Duration = Duration::from_millis(100);
/// A folder that never gets quiet is looked at this often all the same.
const LONGEST_NOISE: Duration = Duration::from_secs(1);
/// Links that lead to links, and folders in the folder of drop-ins: more than anybody has.
const MAX_STEPS: usize = 64;

pub struct Reloader {
    line: CommandLine,
    /// What the agent was started with: what needs a restart still holds as it is here.
    started: Settings,
    /// The last good configuration.
    last: Settings,
    /// What was wrong with the one that was seen last.
    complaint: Option<String>,
    watch: Option<Changes>,
}

/// Why to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Changed,
    Asked,
}

impl Reloader {
    /// Watches from now on. Must be called inside a tokio runtime.
    pub fn new(line: CommandLine, settings: &Settings) -> Self {
        let mut reloader =
            Self { line, started: settings.clone(), last: settings.clone(), complaint: None, watch: None };
        reloader.watch();
        reloader
    }

    fn watch(&mut self) {
        let folders = folders_to_watch(&self.last);
        self.watch = match folders.is_empty() {
            true => None,
            false => Changes::of(folders)
                .inspect_err(|error| {
                    warn!(%error, "cannot watch the configuration; SIGHUP makes the agent look at it");
                })
                .ok(),
        };
    }

    /// Until there is a reason to look at the configuration.
    pub async fn wanted(&mut self, hangup: &mut Signal) -> Reason {
        // Both arms are cancel-safe.
        tokio::select! {
            _ = hangup.recv() => return Reason::Asked,
            () = next(&mut self.watch) => {}
        }
        let noise_ends = Instant::now() + LONGEST_NOISE;
        while timeout_at((Instant::now() + QUIET).min(noise_ends), next(&mut self.watch)).await.is_ok() {}
        Reason::Changed
    }

    /// Reads the configuration, and says what became of it. Returns what holds from now on, if that is new.
    pub async fn look(&mut self, reason: Reason) -> Option<&Settings> {
        // Watched before it is read, so that nothing falls in between; links may lead elsewhere now.
        self.watch();
        let line = self.line.clone();
        let read = tokio::task::spawn_blocking(move || line.read()).await;
        let new = match read {
            Ok(Ok(Command::Run(new))) => *new,
            Ok(Ok(_)) => return None, // the command line is the same: it runs the agent
            Ok(Err(problem)) => {
                self.refuse(problem.to_string());
                return None;
            }
            Err(broken) => {
                self.refuse(broken.to_string());
                return None;
            }
        };
        if self.complaint.take().is_some() {
            info!("The configuration is good again");
        }
        if new == self.last {
            if reason == Reason::Asked {
                info!("The configuration has not changed");
            }
            return None;
        }
        self.take(new);
        Some(&self.last)
    }

    fn refuse(&mut self, problem: String) {
        if self.complaint.as_ref() != Some(&problem) {
            let error = one_line(&problem);
            error!(error, "The new configuration is not used; the one before still holds");
            self.complaint = Some(problem);
        }
    }

    fn take(&mut self, new: Settings) {
        let now = reload_diff(&self.last, &new).now;
        let needs_restart = reload_diff(&self.started, &new).needs_restart;
        for warning in new.warnings.iter().filter(|warning| !self.last.warnings.contains(warning)) {
            warn!("{warning}");
        }
        self.last = new;
        if !now.is_empty() {
            info!(fields = now.join(", "), "The configuration has changed");
        }
        if !needs_restart.is_empty() {
            let fields = needs_restart.join(", ");
            warn!(fields, "The configuration has changed: this needs a restart");
        }
    }
}

/// What is made for a terminal, made for a log.
fn one_line(problem: &str) -> String {
    let lines = problem.lines().map(|line| line.strip_prefix("error: ").unwrap_or(line).trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Until something happens in a watched folder; forever if none is watched. A watch that broke says so once and is over:
/// the next look makes a new one.
async fn next(watch: &mut Option<Changes>) {
    let Some(changes) = watch else { return std::future::pending().await };
    if let Err(error) = changes.next().await {
        warn!(%error, "the configuration is no longer watched; SIGHUP makes the agent look at it");
        *watch = None;
    }
}

/// Wherever a change can make the configuration another: beside each file, beside each link on the way to it, and in the
/// folder of drop-ins.
fn folders_to_watch(settings: &Settings) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    if let Some(file) = &settings.config_file {
        follow(file, &mut folders);
    }
    if let Some(folder) = &settings.config_dir {
        follow(folder, &mut folders);
        add_tree(folder, &mut folders);
    }
    folders
}

/// The folder of `path`, and of each link that it leads through.
fn follow(path: &Path, folders: &mut BTreeSet<PathBuf>) {
    let mut path = path.to_owned();
    for _ in 0..MAX_STEPS {
        for above in path.ancestors().skip(1).filter(|above| is_link(above)) {
            folders.extend(above.parent().map(Path::to_owned));
        }
        let Some(folder) = path.parent().map(Path::to_owned) else { return };
        folders.insert(folder.clone());
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return,
        }
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn add_tree(folder: &Path, folders: &mut BTreeSet<PathBuf>) {
    let mut to_do = vec![folder.to_owned()];
    for _ in 0..MAX_STEPS {
        let Some(folder) = to_do.pop() else { return };
        let entries: io::Result<Vec<_>> = fs::read_dir(&folder).and_then(Iterator::collect);
        let entries = entries.unwrap_or_default().into_iter();
        to_do.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        folders.insert(folder);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn followed(path: &Path) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::new();
        follow(path, &mut folders);
        folders
    }

    #[test]
    fn every_folder_is_watched_where_a_link_can_be_swapped() {
        let home = tempfile::tempdir().expect("a folder");
        let at = |name: &str| home.path().join(name);
        for folder in ["a", "a/..1", "b"] {
            fs::create_dir(at(folder)).expect("made");
        }
        fs::write(at("a/..1/config"), "").expect("written");
        fs::write(at("b/config"), "").expect("written");
        // As Kubernetes swaps files of a volume.
        symlink("..1", at("a/..data")).expect("linked");
        symlink("..data/config", at("a/config")).expect("linked");
        assert!(followed(&at("a/config")).is_superset(&[at("a"), at("a/..data")].into()));
        // A link to elsewhere, below a folder that is a link.
        symlink(at("b/config"), at("a/elsewhere")).expect("linked");
        symlink("a", at("current")).expect("linked");
        let folders = followed(&at("current/elsewhere"));
        assert!(folders.is_superset(&[home.path().to_owned(), at("current"), at("b")].into()), "{folders:?}");
        // A link to itself ends.
        symlink("loop", at("loop")).expect("linked");
        followed(&at("loop"));
    }
}

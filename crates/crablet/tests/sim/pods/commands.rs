//! What comes of the commands of hooks and probes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_cri::fake::{Command, Commands};
use tokio::time::Instant;

/// How often a probe of [`FailsLater`](super::parts::Liveness::FailsLater) finds its container well.
const WELL_FOR: u32 = 3;

/// When each container passed its startup probe, by `pod/container`.
#[derive(Clone, Default)]
pub struct Started(Arc<Mutex<BTreeMap<String, Vec<Duration>>>>);

impl Started {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Duration>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Did a container of this name pass in this time?
    pub fn between(&self, pod: &str, container: &str, from: Duration, to: Duration) -> bool {
        let all = self.all();
        let times = all.get(&format!("{pod}/{container}"));
        times.into_iter().flatten().any(|at| (from..=to).contains(at))
    }
}

/// Must be made when the night begins: passes are noted in its time.
pub fn commands(started: &Started) -> Commands {
    let (started, begun) = (started.clone(), Instant::now());
    // How often each probe of each instance was asked.
    let asked: Mutex<BTreeMap<(Vec<String>, u32), u32>> = Mutex::default();
    Arc::new(move |_, attempt, command| {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let count = || {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let count = asked.entry((command.to_vec(), attempt)).or_default();
            *count += 1;
            *count
        };
        let fails = match words.as_slice() {
            ["sleep", seconds] => return sleeps(seconds),
            ["hang"] => return Command::Hangs,
            ["hang-first"] if attempt == 0 => return Command::Hangs,
            ["refuse"] => return Command::Refused("cannot exec in container: no such shim".to_owned()),
            ["fail"] => true,
            ["fail-first"] => attempt == 0,
            ["fail-later", _] => attempt == 0 && count() > WELL_FOR,
            ["late", times, what, who] => {
                let is_late = count() <= times.parse().unwrap_or_default();
                if !is_late && *what == "startup" {
                    started.all().entry((*who).to_owned()).or_default().push(begun.elapsed());
                }
                is_late
            }
            _ => false,
        };
        Command::exits(i32::from(fails), if fails { "not well" } else { "" })
    })
}

fn sleeps(seconds: &str) -> Command {
    let after = Duration::from_secs(seconds.parse().unwrap_or_default());
    match Command::exits(0, "") {
        Command::Ends { output, .. } => Command::Ends { after, output },
        other => other,
    }
}

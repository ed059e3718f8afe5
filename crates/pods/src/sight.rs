//! What a worker knows of its pod in the runtime, and how much of it has to be asked for again.
//!
//! The first look lists everything. After that a look asks only for what may have changed: what an operation of the
//! agent's own has touched, and what an event named. Whatever is not understood (an operation that failed, a relist that
//! found a difference, an event about something unknown) leads to a listing again.
//!
//! ```text
//!            look                rest: the pod runs, nothing is under way
//!  Nothing ────────> All ────────────────> Ids
//!     ^               │ ^                   │
//!     └── forget ─────┘ └────── look ───────┘   asks for the status of each
//! ```

use std::collections::BTreeSet;

use crablet_cri::{Result, Runtime};
use crablet_model::PodUid;
use crablet_model::runtime::{ContainerState, PodRuntime, RuntimeEventKind, SandboxState};

use crate::inspect::{container_if_there, inspect, sandbox_if_there};

/// More unknown things than that, and everything is listed.
const MOST_STRANGERS: usize = 16;

/// Which things in the runtime an operation has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    Nothing,
    Sandbox(String),
    Container(String),
    SandboxGone(String),
    ContainerGone(String),
    /// It failed half-way, or was given up.
    Unknown,
}

#[derive(Debug, Default)]
pub struct Sight {
    known: Known,
    /// To be asked for at the next look.
    sandboxes: BTreeSet<String>,
    containers: BTreeSet<String>,
    /// Named by an event and not known: made by an operation that is under way, or by somebody else.
    strangers: BTreeSet<String>,
    /// A look is to be kept: nothing has made it doubtful since.
    fresh: bool,
    /// An operation failed or was given up. What it began may show at any time, so memory is not relied on any more.
    wary: bool,
}

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    /// A pod at rest takes little memory.
    Ids {
        sandboxes: Vec<Seen>,
        containers: Vec<Seen>,
    },
    All(PodRuntime),
}

#[derive(Debug)]
struct Seen {
    id: Box<str>,
    stage: Stage,
}

/// How far a sandbox or container has come. None ever goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The runtime cannot say: every event is news.
    Unknown,
    Created,
    Running,
    Ended,
}

impl Sight {
    /// Nothing is taken for known any more.
    pub fn forget(&mut self) {
        *self = Self { wary: self.wary, ..Self::default() };
    }

    /// Looks at the pod. `making`: an operation is under way that makes a sandbox or a container, so that an event about
    /// something unknown may be about that. The caller gives it back with [`Sight::keep`].
    pub async fn look(&mut self, runtime: &dyn Runtime, uid: &PodUid, making: bool) -> Result<PodRuntime> {
        if self.wary || !self.strangers.is_empty() && !making {
            self.forget();
        }
        self.fresh = true;
        let known = std::mem::take(&mut self.known);
        let doubtful = (std::mem::take(&mut self.sandboxes), std::mem::take(&mut self.containers));
        let (mut seen, sandboxes, containers) = match known {
            Known::Nothing => return inspect(runtime, uid).await,
            Known::All(seen) => (seen, doubtful.0, doubtful.1),
            Known::Ids { sandboxes, containers } => {
                let ids = |seen: Vec<Seen>| seen.into_iter().map(|s| String::from(s.id));
                let both = (ids(sandboxes), ids(containers));
                (
                    PodRuntime::default(),
                    both.0.chain(doubtful.0).collect::<BTreeSet<_>>(),
                    both.1.chain(doubtful.1).collect(),
                )
            }
        };
        for id in sandboxes {
            seen.sandboxes.retain(|s| s.id != id);
            seen.sandboxes.extend(sandbox_if_there(runtime, &id).await?);
        }
        for id in containers {
            seen.containers.retain(|c| c.id != id);
            seen.containers.extend(container_if_there(runtime, &id).await?);
        }
        // That nothing is left is a thing to be sure of.
        if seen.is_empty() {
            return inspect(runtime, uid).await;
        }
        Ok(seen.sorted())
    }

    /// What the last look saw, unless it is in doubt already.
    pub fn keep(&mut self, seen: PodRuntime) {
        if std::mem::take(&mut self.fresh) {
            self.known = Known::All(seen);
        }
    }

    /// The pod runs and nothing is under way.
    pub fn rest(&mut self) {
        let Known::All(all) = &self.known else { return };
        let seen = |id: &str, stage| Seen { id: id.into(), stage };
        let sandboxes = all.sandboxes.iter().map(|s| seen(&s.id, of_sandbox(s.state))).collect();
        let containers = all.containers.iter().map(|c| seen(&c.id, of_container(&c.state))).collect();
        self.known = Known::Ids { sandboxes, containers };
    }

    /// An operation has ended.
    pub fn touched(&mut self, touched: Touched) {
        match touched {
            Touched::Nothing => {}
            Touched::Sandbox(id) => {
                self.strangers.remove(&id);
                // What lives in it may have changed with it.
                if let Known::All(all) = &self.known {
                    let inside = all.containers.iter().filter(|c| c.sandbox_id == id);
                    let alive = inside.filter(|c| c.state.exit().is_none());
                    self.containers.extend(alive.map(|c| c.id.clone()));
                }
                self.sandboxes.insert(id);
            }
            Touched::Container(id) => {
                self.strangers.remove(&id);
                self.containers.insert(id);
            }
            Touched::SandboxGone(id) => self.gone(|all| {
                all.sandboxes.retain(|s| s.id != id);
                // Nobody can say what became of what lived in it.
                all.containers.iter().all(|c| c.sandbox_id != id)
            }),
            Touched::ContainerGone(id) => {
                self.gone(|all| {
                    all.containers.retain(|c| c.id != id);
                    true
                });
            }
            Touched::Unknown => {
                self.wary = true;
                self.forget();
            }
        }
    }

    /// Takes something away; lists again where that leaves nothing, or cannot be told.
    fn gone(&mut self, take: impl FnOnce(&mut PodRuntime) -> bool) {
        let certain = match &mut self.known {
            Known::All(all) => take(all) && !all.is_empty(),
            Known::Nothing | Known::Ids { .. } => false,
        };
        if !certain {
            self.forget();
        }
    }

    /// Takes an event in. Returns whether it is news.
    pub fn heard(&mut self, id: &str, kind: RuntimeEventKind) -> bool {
        let (of_sandbox, stage) = match self.stage(id) {
            Some(found) => found,
            None => return self.heard_of_stranger(id, kind),
        };
        let is_old = match kind {
            RuntimeEventKind::Created => stage >= Stage::Created,
            RuntimeEventKind::Started => stage >= Stage::Running,
            RuntimeEventKind::Stopped => stage == Stage::Ended,
            RuntimeEventKind::Deleted => false,
        };
        if !is_old {
            if of_sandbox { &mut self.sandboxes } else { &mut self.containers }.insert(id.to_owned());
        }
        !is_old
    }

    fn heard_of_stranger(&mut self, id: &str, kind: RuntimeEventKind) -> bool {
        let is_awaited = self.sandboxes.contains(id) || self.containers.contains(id);
        if is_awaited || matches!(self.known, Known::Nothing) {
            return true;
        }
        if kind == RuntimeEventKind::Deleted {
            return false; // gone, and not known: nothing to learn
        }
        self.strangers.insert(id.to_owned());
        if self.strangers.len() > MOST_STRANGERS {
            self.forget();
        }
        true
    }

    /// Whether it is a sandbox, and how far it has come.
    fn stage(&self, id: &str) -> Option<(bool, Stage)> {
        match &self.known {
            Known::Nothing => None,
            Known::Ids { sandboxes, containers } => {
                let find = |all: &[Seen]| all.iter().find(|s| &*s.id == id).map(|s| s.stage);
                find(sandboxes).map(|s| (true, s)).or_else(|| find(containers).map(|s| (false, s)))
            }
            Known::All(all) => {
                let sandbox = all.sandboxes.iter().find(|s| s.id == id).map(|s| of_sandbox(s.state));
                let container = all.containers.iter().find(|c| c.id == id).map(|c| of_container(&c.state));
                sandbox.map(|s| (true, s)).or_else(|| container.map(|s| (false, s)))
            }
        }
    }
}

fn of_sandbox(state: SandboxState) -> Stage {
    match state {
        SandboxState::Ready => Stage::Running,
        SandboxState::NotReady => Stage::Ended,
    }
}

fn of_container(state: &ContainerState) -> Stage {
    match state {
        ContainerState::Created => Stage::Created,
        ContainerState::Running { .. } => Stage::Running,
        ContainerState::Exited(_) => Stage::Ended,
        ContainerState::Unknown => Stage::Unknown,
    }
}

#[cfg(test)]
mod tests;

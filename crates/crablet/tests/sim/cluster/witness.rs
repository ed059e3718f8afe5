//! Looks at every write of the agent to a pod in the API as it happens, and at what is on the node at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_cri::fake::FakeRuntime;
use crablet_model::api::PodStatus;
use crablet_model::names::{annotation, condition, phase};
use crablet_model::runtime::SandboxState;
use serde_json::Value;
use tokio::time::Instant;

use crate::sim::Broken;
use crate::sim::machine::Machine;
use crate::sim::observer::{MOVED, compare};

/// A condition that is not the agent's.
pub const FOREIGN: &str = "example.com/checked";

/// What the agent wrote.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    pub all: u64,
    /// Status patches that reached the server.
    pub patches: u64,
    /// Those that changed nothing.
    pub idle_patches: u64,
    /// Calls of any kind, by what was asked.
    pub calls: u64,
    pub lost_answers: u64,
    pub failures: u64,
}

pub struct Witness {
    runtime: FakeRuntime,
    machine: Machine,
    begun: Instant,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By UID.
    last: BTreeMap<String, PodStatus>,
    foreign: BTreeSet<String>,
    broken: Vec<Broken>,
    writes: Writes,
}

impl Witness {
    pub fn new(runtime: FakeRuntime, machine: Machine) -> Self {
        Self { runtime, machine, begun: Instant::now(), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self, count: impl FnOnce(&mut Writes)) {
        count(&mut self.seen().writes);
    }

    /// Somebody else's condition is on this pod from now on.
    pub fn has_foreign(&self, uid: &str) {
        self.seen().foreign.insert(uid.to_owned());
    }

    pub fn broken(&self) -> Vec<Broken> {
        self.seen().broken.clone()
    }

    pub fn writes(&self) -> Writes {
        self.seen().writes.clone()
    }

    fn breaks(&self, invariant: &'static str, seen: String) {
        let at = self.begun.elapsed().as_secs_f64();
        self.seen().broken.push(Broken::new(invariant, format!("at {at:.3}s, {seen}")));
    }

    /// Nothing of a pod is on the node when the agent lets it go.
    pub fn judge_deletion(&self, pod: Option<&Value>, body: &[u8]) {
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        let wanted = &options["preconditions"]["uid"];
        if options["gracePeriodSeconds"] != 0 || !wanted.is_string() {
            self.breaks("deletions say what they delete", options.to_string());
        }
        let Some(pod) = pod.filter(|pod| pod["metadata"]["uid"] == *wanted) else { return };
        let (uid, name) = (wanted.as_str().unwrap_or_default(), &pod["metadata"]["name"]);
        if is_mirror(pod) {
            return;
        }
        if pod["metadata"]["deletionTimestamp"].is_null() {
            self.breaks("only pods that were asked to go are deleted", name.to_string());
        }
        let running =
            self.runtime.containers().into_iter().filter(|c| c.uid.as_str() == uid && c.state.is_running());
        let up = self
            .runtime
            .sandboxes()
            .into_iter()
            .filter(|s| s.uid.as_str() == uid && s.state == SandboxState::Ready);
        let held =
            running.map(|c| format!("container {}", c.name)).chain(up.map(|s| format!("sandbox {}", s.id)));
        let held: Vec<_> = held.chain(self.machine.held_by(uid)).collect();
        if !held.is_empty() {
            self.breaks(
                "a pod is let go only when nothing of it is left",
                format!("{name}: {}", held.join(", ")),
            );
        }
        if !phase::is_terminal(pod["status"]["phase"].as_str().unwrap_or_default()) {
            let text = format!("{name} is {}", pod["status"]["phase"]);
            self.breaks("a pod is let go only after its end was told", text);
        }
    }

    /// What may not differ between one status of a pod and the next.
    pub fn look(&self, pod: &Value) {
        let name = &pod["metadata"]["name"];
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let status: PodStatus = match serde_json::from_value(pod["status"].clone()) {
            Ok(status) => status,
            Err(error) => return self.breaks("statuses decode", format!("{name}: {error}")),
        };
        let conditions = status.conditions.as_deref().unwrap_or_default();
        if self.seen().foreign.contains(&uid)
            && !conditions.iter().any(|c| {
                c.type_ == FOREIGN && c.status == "True" && c.message.as_deref() == Some("by others")
            })
        {
            self.breaks("conditions of others stay", name.to_string());
        }
        let before = self.seen().last.insert(uid, status.clone());
        for (invariant, text) in before.iter().flat_map(|before| compare(before, &status)) {
            // A mirror lives on while its static pod is replaced by another. There and back again is seen as a moved time
            // by those who were not told of the way; nobody but the scheduler has a say in its own condition.
            let is_skipped = invariant == MOVED && !text.starts_with(condition::POD_SCHEDULED);
            if !is_mirror(pod) && !is_skipped {
                self.breaks(invariant, format!("in the API, pod {name} {text}"));
            }
        }
    }
}

pub fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][annotation::CONFIG_MIRROR].is_null()
}

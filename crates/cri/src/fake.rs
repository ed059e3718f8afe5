//! A container runtime in memory, for tests and the simulation.
//!
//! It is stateful and behaves as containerd does where Crablet can tell the difference: it reserves names, keeps
//! exited containers until they are removed, finishes (or undoes) work whose client has given up, and outlives the
//! agent. Nothing is real: time is tokio's, chance comes from one seeded generator, and every answer follows from the
//! calls and the seed alone, so that a run can be replayed exactly.
//!
//! | module | what it is |
//! |---|---|
//! | `calls` | the [`Runtime`](crate::Runtime) port: every call passes the gate, the faults, and then takes effect |
//! | `state` | what the daemon knows: records of sandboxes and containers, reserved names, the agenda |
//! | `sandboxes`, `containers`, `images` | what each verb does to that state |
//! | `works` | work that takes time, and what becomes of it when the client or the daemon goes away |
//! | `commands` | what comes of commands that are run in containers |
//! | `behaviour` | how containers live and how they take a TERM; images and their registry |
//! | `faults` | what goes wrong with calls, by rule and by chance |
//! | `events` | the event stream and its faults |
//! | `trace` | everything an outsider could have seen, for invariants and for people |
//! | `checks` | what may never happen, noticed at the moment it does |
//! | `world` | what tests do from outside: break things, look inside |

mod behaviour;
mod calls;
mod checks;
mod commands;
mod containers;
mod events;
mod faults;
mod images;
mod sandboxes;
mod state;
mod trace;
mod works;
mod world;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

pub use behaviour::{Behaviour, FakeImage, Life, OnTerm, Pull};
pub use checks::{Violation, ViolationKind};
pub use commands::{Command, Commands};
pub use events::EventFaults;
pub use faults::{CallFault, Chaos, FaultKind};
pub use trace::{Call, Cause, Subject, TraceEntry, What};

use state::State;

/// Passed at every step of every call, before and after its effect, with the call's name. `false` means that the agent
/// dies here: the call never returns, and whoever owns the gate drops the agent. The same type as the fake disk's.
pub type Gate = Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

/// The wall clock that the runtime stamps its records with.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How the runtime writes log files and containers write termination messages: a host path and the content. An error
/// keeps the container from starting.
pub type WriteFile = Arc<dyn Fn(&str, &[u8]) -> std::result::Result<(), String> + Send + Sync>;

/// How the runtime makes the folder of a mount whose source is not there; says whether it did.
pub type MakeSource = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What kind of runtime this is.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// It can stream events. Without, `events` answers `Unimplemented`.
    pub streams_events: bool,
    /// Stopping or removing what is not there succeeds, as in containerd. Else it is `NotFound`.
    pub forgives_absence: bool,
    /// Creating a sandbox, creating a container and starting one take between these.
    pub work_time: (Duration, Duration),
    /// The deadline of a call, as the client has it: twice that for sandboxes, plus the grace for stopping, none for
    /// pulling.
    pub call_timeout: Duration,
    /// Whether listings and inspections appear in the trace. They are most of all calls.
    pub trace_reads: bool,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            streams_events: true,
            forgives_absence: true,
            work_time: (Duration::ZERO, Duration::ZERO),
            call_timeout: Duration::from_secs(120),
            trace_reads: false,
        }
    }
}

/// The runtime, and the handle by which a test governs it. Clones share it, and it lives on when the agent that holds
/// one dies.
#[derive(Clone)]
pub struct FakeRuntime {
    state: Arc<Mutex<State>>,
}

impl FakeRuntime {
    /// Must be made inside the tokio runtime whose time it follows: it starts the task in which containers live.
    pub fn new(settings: RuntimeSettings, rng: fastrand::Rng, now: Now) -> Self {
        let wake = Arc::new(Notify::new());
        let state = Arc::new(Mutex::new(State::new(settings, rng, now, wake.clone())));
        tokio::spawn(live(state.clone(), wake));
        Self { state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// Lets time pass inside the runtime: containers exit, work gets done.
async fn live(state: Arc<Mutex<State>>, wake: Arc<Notify>) {
    loop {
        let next = state.lock().unwrap().agenda.next();
        let woken = wake.notified();
        match next {
            // Biased: an unbiased select draws from a generator that no seed governs.
            Some(at) => tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep_until(at) => {}
            },
            None => woken.await,
        }
        state.lock().unwrap().run_due();
    }
}

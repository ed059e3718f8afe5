//! Bad nights of a node, in virtual time.
//!
//! The whole agent, wired as in production, runs against a runtime, a disk and a clock in memory, on one thread with
//! paused time. A seed decides what happens; the same seed always gives the same night.
//!
//! ```text
//!  seed ─> story ─> world (agent + fakes) ─> trace, statuses, disk ─> invariants ─> what broke
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`story`] | a seed turned into pods, their behaviour, and what happens when: pure data |
//! | [`pods`] | pods of a story: their manifests, and what should become of them |
//! | [`world`] | the night itself: the fakes, the agent's lives and deaths, what the operator did |
//! | [`cluster`] | what is different on nights with an API server |
//! | [`machine`] | what is below the agent besides runtime and disk: volumes, cgroups, the node's own facts |
//! | [`night`] | one seed from the evening to the checks in the morning |
//! | [`room`] | who has which part of the node, and whether that is right |
//! | [`observer`] | reads every status the agent publishes |
//! | [`invariants`] | what must hold of everything an outsider saw |
//! | [`mutants`] | broken planners and a broken disk, to show that the invariants bite |

pub mod cluster;
pub mod invariants;
pub mod machine;
pub mod mutants;
pub mod night;
pub mod observer;
pub mod pods;
pub mod room;
pub mod story;
pub mod world;

/// A broken promise: which one, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static str,
    pub seen: String,
}

impl Broken {
    pub fn new(invariant: &'static str, seen: impl Into<String>) -> Self {
        Self { invariant, seen: seen.into() }
    }
}

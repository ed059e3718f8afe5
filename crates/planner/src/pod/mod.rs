//! One pod: [`plan`] looks at everything that is known about it and says what to do next.
//!
//! ```text
//!   Facts { pod, wish, runtime, memory, session, node, now }
//!     └─ plan ─> Plan { cancel, actions, status, urgency, memory, events, wake_at, why, finished }
//! ```
//!
//! Hands outside carry each [`Action`] out as an operation of its own and report an [`Outcome`]; [`Memory::absorb`]
//! turns it into what the next plan has to know. An operation that runs is in [`Session::ops`], so that no plan asks
//! for it twice. Facts come from inspecting the runtime: an operation's answer is never taken for the state itself.
//!
//! | module | what it decides |
//! |---|---|
//! | [`facts`], [`memory`], [`plan`](mod@plan) | the types |
//! | `run` | a pod that should run: sandbox, images, starts, restarts, back-off |
//! | `ending` | a pod that should end: stop, tear down, remove, forget |
//! | `gc` | dead containers and sandboxes that nobody needs |
//! | [`restart`] | restart policy and crash-loop back-off |
//! | [`status`] | phase, conditions, container states |
//! | [`config`] | what exactly the runtime is asked to create |
//!
//! Where the rest of a pod's life will go: init containers and sidecars extend `run` (they are starts with an order),
//! hooks belong to the start and stop operations (an outcome of their own), volumes are one more preparation before
//! the sandbox (like images before a start), probe results are facts that `run` reads beside the container states, and
//! a resize is one more action on a running container.

pub mod config;
mod draft;
mod ending;
pub mod facts;
mod gc;
pub mod memory;
pub mod plan;
pub mod restart;
mod run;
pub mod status;

pub use facts::{Ending, Facts, NodeFacts, Operation, PreparedImage, Session, SwapControl, Wish};
pub use memory::{Failure, Memory};
pub use plan::{Action, OpKey, Outcome, Plan, PullPolicy, Urgency, plan};

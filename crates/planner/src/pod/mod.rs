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
//! | `run` | a pod that should run |
//! | `sandbox` | whether its sandbox is fit, and how a new one takes its place |
//! | `init` | init containers in their order, and sidecars |
//! | `containers` | regular and ephemeral containers |
//! | `start` | the way to a running container: back-off, image, start |
//! | `reset` | all containers begin afresh because one asked for it |
//! | `verdict` | what the node itself decides, and the pod's own deadline |
//! | `ending` | a pod that should end: torn down, removed, forgotten |
//! | `clock` | that waits stay as long as they are when the clock is set back |
//! | `stop`, `grace` | how a container is stopped: hook, turn, and its time for that |
//! | [`resize`] | other resources for what runs |
//! | `gc` | dead containers and sandboxes that nobody needs |
//! | [`restart`] | restart policies, restart rules and crash-loop back-off |
//! | [`status`] | phase, conditions, container states |
//! | [`config`] | what exactly the runtime is asked to create |

mod clock;
pub mod config;
mod containers;
mod draft;
mod ending;
pub mod facts;
mod gc;
mod grace;
pub mod images;
mod init;
pub mod memory;
pub mod plan;
mod reset;
pub mod resize;
pub mod restart;
mod run;
mod sandbox;
mod start;
pub mod status;
mod stop;
mod verdict;

pub use facts::{
    CgroupKind, Ending, Facts, NetworkTold, NodeFacts, Operation, PreStop, PreparedImage, Probed, Probes,
    REJECTED, Session, SwapControl, Verdict, Wish,
};
pub use memory::{Failure, Memory};
pub use plan::{Action, OpKey, Outcome, Plan, PullPolicy, Urgency, plan};
pub use resize::{Grants, Pending};

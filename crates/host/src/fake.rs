//! A host in memory, for tests and the simulation: nothing here touches a real disk, a thread or the wall clock, and
//! chance comes from one seeded generator, so that a run can be replayed exactly.
//!
//! | module | what it is |
//! |---|---|
//! | `tree` | folders, files and links, and how a path is resolved |
//! | `disk` | [`FakeFiles`]: a tree that survives the agent's death, and what tests do with it |
//! | `port` | the file port over that tree |
//! | `faults` | [`FileFault`], [`DiskChaos`]: what goes wrong, by rule and by chance |
//! | `watches` | who is told of a change, and how badly: [`WatchFaults`] |
//! | `clock` | [`SimClock`]: wall-clock time on top of tokio's (paused) time |

mod clock;
mod disk;
mod faults;
mod port;
mod tree;
mod watches;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use clock::SimClock;
pub use disk::FakeFiles;
pub use faults::{DiskChaos, FileFault, FileFaultKind};
pub use watches::WatchFaults;

/// Passed at every step of every call of a fake port, before and after the effect, with the call's name.
///
/// `false` means that the agent dies here: the call never returns, and whoever owns the gate drops the agent. The fake
/// runtime takes a gate of the same type, so that one counter sees every port call of the agent.
pub type Gate = Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

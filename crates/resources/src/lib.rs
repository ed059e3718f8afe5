//! What the node grants to pods, and the kernel's side of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`cgroups`] | [`Cgroups`]: the cgroups above containers, made, set, found and removed |
//! | [`settings`] | what the node's configuration says about them |
//! | [`port`] | [`CgroupHost`]: what is asked of the machine |
//! | [`linux`] | the real one: cgroup v1 and v2, by files or through systemd |
//! | `fake` | (feature `fake`) cgroups in memory that survive the agent's death |
//!
//! Deliberately absent: memory reservations of cgroup v2, and the managers that hand out CPUs and memory nodes.

pub mod cgroups;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod linux;
pub mod port;
pub mod settings;

pub use cgroups::Cgroups;
pub use linux::LinuxCgroups;
pub use port::CgroupHost;
pub use settings::{CgroupSettings, NodeLimits};

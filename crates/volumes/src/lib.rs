//! The volumes of pods: folders, mounts and files that containers get to see.
//!
//! ```text
//!   set_up(pod) ──> plugins/* ──> VolumeHost (folders, payloads, mounts)
//!                      ^   └────> Objects (config maps, secrets, tokens)
//!   updates (one task) ┘ <── Objects::changes, pod_changed, token refresh times
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`port`] | [`VolumeHost`]: the file system and the mount table; [`VolumeEvents`]: who is told of failures |
//! | [`linux`] | the real one |
//! | `fake` | (feature `fake`) a host in memory that survives the agent's death |
//! | [`payload`] | what a volume of files shall hold, and which paths it may name |
//! | `plugins` | a file per kind of volume |
//! | `layout` | where things lie below `pods/<uid>` |
//! | `pod` | what of a pod matters to its volumes |
//! | `volumes` | [`Volumes`]: setting up, sub paths |
//! | `teardown` | taking away, also what an earlier life of the agent has left |
//! | `updates` | the task that renders volumes again when what they show has changed |
//!
//! What is on disk has upstream's names and modes, so that either agent can take over the other's pods. Nothing is
//! remembered on disk besides: markers and the mount table say what is there.
//!
//! Absent so far: persistent volume claims, CSI, NFS, iSCSI, FC, local and image volumes, disk quotas, SELinux mount
//! contexts. A pod that asks for one of them gets an error that names it.

#[cfg(feature = "fake")]
pub mod fake;
mod layout;
pub mod linux;
pub mod payload;
mod plugins;
mod pod;
pub mod port;
mod teardown;
mod updates;
mod volumes;

pub use linux::LinuxVolumeHost;
pub use port::{VolumeEvents, VolumeHost};
pub use volumes::{VolumePorts, VolumeSettings, Volumes};

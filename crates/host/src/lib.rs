//! Linux behind small ports. The only crate that may use `unsafe`.
//!
//! | module | what it is |
//! |---|---|
//! | [`files`] | [`Files`]: the few things Crablet does with folders and files, symlink-safe where outsiders can write |
//! | [`linux`] | the real one |
//! | [`clock`] | [`Clock`]: wall-clock time; waiting is always tokio's, so that a simulation can own it |
//! | [`keeper`] | a second process that lets calls to the runtime end after the agent was killed |
//! | [`memory`] | giving freed memory back to the kernel |
//! | `fake` | (feature `fake`) a disk in memory that survives the agent's death |

pub mod clock;
#[cfg(feature = "fake")]
pub mod fake;
pub mod files;
pub mod keeper;
pub mod linux;
pub mod memory;

pub use clock::{Clock, SystemClock};
pub use files::FolderEvent;
pub use files::{FileKind, Files, FolderEntry, FolderEvents};
pub use linux::LinuxFiles;

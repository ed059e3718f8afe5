//! Linux behind small ports. The only crate that may use `unsafe`.
//!
//! | module | what it is |
//! |---|---|
//! | [`files`] | [`Files`]: the few things Crablet does with folders and files, symlink-safe where outsiders can write |
//! | [`linux`] | the real one |
//! | [`clock`] | [`Clock`]: wall-clock time; waiting is always tokio's, so that a simulation can own it |
//! | [`changes`] | waiting for a change in any of several folders |
//! | [`lookup`] | addresses of names, off the threads that work with files |
//! | [`lock`] | a file that one process at a time may hold |
//! | [`process`] | what the kernel grants this process: open files, its place in the OOM killer's queue, signals |
//! | [`supervisor`] | telling systemd how things are |
//! | [`keeper`] | a second process that lets calls to the runtime end after the agent was killed |
//! | [`memory`] | giving freed memory back to the kernel |
//! | `fake` | (feature `fake`) a disk in memory that survives the agent's death |

pub mod changes;
pub mod clock;
#[cfg(feature = "fake")]
pub mod fake;
pub mod files;
pub mod keeper;
pub mod linux;
pub mod lock;
pub mod lookup;
pub mod memory;
pub mod process;
pub mod supervisor;

pub use clock::{Clock, SystemClock};
pub use files::FolderEvent;
pub use files::{FileKind, Files, FolderEntry, FolderEvents};
pub use linux::LinuxFiles;

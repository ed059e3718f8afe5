//! Pure decisions: facts in, a plan out. No tokio, no files, no clock, no randomness; time is an input.
//!
//! | module | decides |
//! |---|---|
//! | [`pod`] | what to do next for one pod, what its status is, when to look again, and why |
//!
//! Decisions about the node as a whole (eviction, garbage collection of images, shutdown order) are not here yet.

pub mod node;
pub mod pod;

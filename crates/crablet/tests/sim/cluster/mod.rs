//! Nights with an API server: pods that an operator creates, edits and deletes there, beside static pods and their mirrors.
//!
//! | module | what it is |
//! |---|---|
//! | [`story`] | what happens in the cluster, and when: pure data |
//! | [`api`] | the API server as the agent meets it: weather, a gate for the dead |
//! | [`witness`] | a careful eye on every write to a pod |
//! | [`operator`] | carries out what a story asks of the cluster |
//! | [`checks`] | what must be true of the cluster in the morning |

pub mod api;
pub mod checks;
pub mod operator;
pub mod story;
pub mod witness;

//! Decisions about the Node object: what it says, whether that has changed, and how the API server is told.
//!
//! | module | decides |
//! |---|---|
//! | [`admission`] | which pods may run here, and who makes room for them |
//! | [`facts`] | (input) what is set, what the machine is, how the runtime fares |
//! | [`addresses`] | under which addresses the node is known |
//! | [`resources`] | capacity, and what of it pods may have |
//! | [`conditions`] | the pressure conditions and `Ready`, with the words for what is wrong |
//! | [`status`] | the whole status, one setter after the other |
//! | [`initial`] | the object to register with |
//! | [`reconcile`] | what registration changes in a Node that is there already |
//! | [`compare`] | whether a status says anything new |
//! | [`patch`] | the strategic merge patch between two versions of a Node |

pub mod addresses;
pub mod admission;
pub mod compare;
pub mod conditions;
pub mod facts;
pub mod initial;
pub mod patch;
pub mod reconcile;
pub mod resources;
pub mod status;
#[cfg(test)]
mod tests;

pub use compare::status_changed;
pub use facts::{DefaultRoute, Interface, Machine, Network, NodeFacts, NodeSettings, RuntimeState};
pub use initial::initial_node;
pub use patch::status_patch;
pub use reconcile::reconcile;
pub use status::{StatusOutcome, set_status, update_node};

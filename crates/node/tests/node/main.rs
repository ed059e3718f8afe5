//! The node's tasks against an API server in memory, on a paused clock.

mod csi_drivers;
mod lease;
mod registration;
mod status;
mod world;

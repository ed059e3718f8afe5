//! The program, as a library so that a simulation can wire the same agent.

pub mod cli;
pub mod logging;
pub mod machine;
pub mod process;
pub mod wiring;

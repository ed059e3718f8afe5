//! The container runtime, behind a port.
//!
//! | module | what it is |
//! |---|---|
//! | [`port`] | the [`Runtime`] trait: everything Crablet asks of a runtime, in the words of `crablet_model::runtime` |
//! | [`client`] | the real one: gRPC to a CRI v1 socket, one deadline per call, reconnecting by itself |
//! | `fake` | (feature `fake`) a runtime in memory, with faults, for tests and the simulation |
//!
//! Protobuf types stay inside [`client`].

pub mod client;
#[cfg(feature = "fake")]
pub mod fake;
pub mod port;

pub use port::{CommandOutput, CriError, ErrorKind, EventStream, RegistryAuth, Result, Runtime, Streams};

//! The words everyone in Crablet uses.
//!
//! | module | what it names |
//! |---|---|
//! | [`ids`] | which pod is meant: [`PodUid`], [`PodRef`] |
//! | [`names`] | labels, annotations, reasons and constants that other programs read |
//! | [`runtime`] | what is asked of a container runtime and what it reports, free of any wire format |
//! | [`events`] | Kubernetes events as values |
//! | [`allocation`] | what a pod was granted, beside what it asks for |
//! | [`cgroup`] | cgroups of pods: names, and what they are allowed |
//! | [`manifest`] | static pod manifests: bytes in, a defaulted and validated pod out |
//! | [`roster`] | all containers of a pod and the part that each plays |
//! | [`hash`], [`quantity`], [`qos`], [`image`], [`duration`], [`resources`], [`sysctl`], [`paths`], [`text`] | small rules with exact results |
//!
//! Nothing here does I/O, reads a clock or draws a random number.

pub mod allocation;
pub mod cgroup;
pub mod duration;
mod env_value;
pub mod events;
pub mod hash;
pub mod ids;
pub mod image;
pub mod manifest;
pub mod names;
pub mod paths;
pub mod qos;
pub mod quantity;
pub mod resources;
pub mod roster;
pub mod runtime;
pub mod sysctl;
pub mod text;

pub use ids::{PodRef, PodUid};
pub use k8s_openapi::api::core::v1 as api;
pub use roster::Role;

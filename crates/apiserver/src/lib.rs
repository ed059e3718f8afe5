//! Everything said to the control plane, behind one small port.
//!
//! | module | what it is |
//! |---|---|
//! | [`port`] | the [`ApiServer`] trait: calls and watches as paths and JSON bytes |
//! | [`objects`] | the [`Objects`] port: secrets, config maps, tokens, services and runtime classes that pods need |
//! | [`reflector`] | a mirror of one collection or object: list, then watch, for ever |
//! | [`cluster_objects`] | the objects of a real cluster |
//! | [`events`] | events, correlated as upstream does it, and sent |
//! | `fake` | an API server in memory, with weather (feature `fake`) |
//!
//! The real connection is in `crablet-apiclient`. Standalone mode has [`NoObjects`] and starts nothing of the rest.

pub mod cluster_objects;
pub mod events;
#[cfg(feature = "fake")]
pub mod fake;
pub mod objects;
pub mod port;
pub mod reflector;

pub use cluster_objects::{ClusterObjects, ObjectSettings, Strategy};
pub use events::Recorder;
pub use objects::{
    NoObjects, ObjectError, ObjectKey, ObjectKind, Objects, ServicePort, ServiceView, Token, TokenWanted,
};
pub use port::{
    ApiError, ApiServer, Call, Change, ErrorKind, Lane, Verb, WatchCall, WatchEvent, WatchStream,
};
pub use reflector::{Reflected, Reflection, reflect};

/// What time it is, for what is written down. Waiting is tokio's matter.
pub type Now = std::sync::Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

//! What Crablet answers when it is asked. Nothing here decides anything about pods.
//!
//! | module | what it is |
//! |---|---|
//! | [`ports`] | what this crate needs from the rest of the program |
//! | [`healthz`] | is the agent well? Served everywhere; alone on port 10248 |
//! | [`pods`] | which pods run here, as upstream's read-only port tells it |
//! | [`local`] | the local socket: all of the above, a stream of changes, manifests, explanations |
//! | [`manifests`] | storing manifests through the local socket |
//! | [`serve`] | accept loops with limits, for TCP and for a unix socket |
//! | [`unix`] | a unix socket that is private from its first moment |
//!
//! Deliberately absent: TLS, authentication and everything that needs them. What listens on TCP only tells, and is either
//! bound to the loopback address or switched off unless it is asked for.

pub mod healthz;
pub mod local;
pub mod manifests;
pub mod pods;
pub mod ports;
mod reply;
pub mod serve;
pub mod unix;

pub use healthz::router as healthz_router;
pub use local::router as local_router;
pub use pods::router as read_only_router;
pub use ports::{ManifestRefusal, Manifests, PodView, Stored};
pub use serve::{serve_tcp, serve_unix};
pub use unix::{BindError, LocalSocket};

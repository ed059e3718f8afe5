//! What Crablet answers when it is asked. Nothing here decides anything about pods.
//!
//! | module | what it is |
//! |---|---|
//! | [`ports`] | what this crate needs from the rest of the program |
//! | [`healthz`] | is the agent well? Served everywhere; alone on port 10248 |
//! | [`pods`] | which pods run here, as upstream's read-only port tells it |
//! | [`local`] | the local socket: all of the above, a stream of changes, manifests, explanations |
//! | [`manifests`] | storing manifests through the local socket |
//! | [`kubelet`] | the main port, 10250: TLS, and all that the API server asks of a node |
//! | `auth` | who asks the main port, and whether they may |
//! | `mux` | which paths there are, and what upstream's routers say to all others |
//! | `logs` | containers' logs: reading, following, and the endpoint |
//! | `debugging` | what upstream calls debugging handlers: logs of the node, commands, checkpoints, pages about the agent |
//! | `streaming` | exec, attach and port-forward |
//! | [`metrics`] | figures about requests, under upstream's names |
//! | [`serve`] | accept loops with limits, for TCP and for a unix socket |
//! | [`unix`] | a unix socket that is private from its first moment |
//!
//! What listens on TCP without TLS only tells, and is either bound to the loopback address or switched off unless it is
//! asked for.

mod auth;
mod debugging;
pub mod healthz;
pub mod kubelet;
pub mod local;
mod logs;
pub mod manifests;
pub mod metrics;
mod mux;
pub mod pods;
pub mod ports;
mod query;
mod reply;
pub mod serve;
mod streaming;
pub mod unix;

pub use auth::ApiReviews;
pub use healthz::router as healthz_router;
pub use kubelet::{
    AuthorizationMode, KubeletServer, KubeletServerPorts, KubeletServerSettings, SettingsError, TlsSettings,
};
pub use local::router as local_router;
pub use pods::router as read_only_router;
pub use ports::{
    AccessAttributes, ContainerName, Containers, Decision, ImagePulls, KnownPod, LogFile, LogRefusal, Logs,
    ManifestRefusal, Manifests, PodView, Refusal, Reviews, Stored, UserInfo, Verbosity,
};
pub use serve::{serve_tcp, serve_unix};
pub use unix::{BindError, LocalSocket};

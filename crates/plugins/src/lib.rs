//! Plugins of the node that make themselves known by a socket in `<root-dir>/plugins_registry`.
//!
//! ```text
//!  a socket appears ──> GetInfo ──> Handler::validate ──> Handler::register ──> NotifyRegistrationStatus(true)
//!  a socket goes, or is another one ──> Handler::deregister
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`folder`] | which sockets there are, and when that changes |
//! | [`handshake`] | the talk with a plugin that wants to register |
//! | [`manager`] | the task that does what sockets ask for |
//!
//! What a plugin is good for its [`Handler`] knows. A kind of plugin without a handler is told so, as upstream does.

mod folder;
mod handshake;
mod manager;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinSet;

/// The kinds of plugins, as they name themselves.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub name: String,
    /// Where it serves; the socket that it registers with unless it says otherwise.
    pub endpoint: PathBuf,
    pub versions: Vec<String>,
}

/// Takes plugins of one kind. Errors are told to the plugin.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    fn validate(&self, plugin: &Plugin) -> Result<(), String>;

    /// Called again after a failure. Takes its time: nothing else waits for it.
    async fn register(&self, plugin: &Plugin) -> Result<(), String>;

    async fn deregister(&self, plugin: &Plugin);
}

/// Handlers by the kind of plugin.
pub type Handlers = BTreeMap<&'static str, Arc<dyn Handler>>;

/// Starts to look for plugins once `ready` says so: they are of no use before there is a runtime.
pub fn start(
    folder: PathBuf,
    handlers: Handlers,
    ready: impl Future<Output = ()> + Send + 'static,
    tasks: &mut JoinSet<()>,
) {
    tasks.spawn(async move {
        ready.await;
        manager::run(folder, handlers).await;
    });
}

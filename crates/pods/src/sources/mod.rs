//! Where pods come from.
//!
//! Each source states the full set of pods it wants; the mux turns that into what changed.
//!
//! ```text
//!  folder ──── shelf ─┐
//!  submitted ─ shelf ─┼─> outlet (mux) ── PodUpdate ──> registry
//!  url ── fetch ──────┤
//!  API server ── watch┘
//! ```
//!
//! | module | task or value | what it does |
//! |---|---|---|
//! | `folder` | one task | inotify and a periodic check over the manifest folder |
//! | [`submitted`] | one task, a handle | manifests of the local API, kept as files |
//! | [`url`] | one task | a poll of the manifest URL, behind the port [`Fetch`] |
//! | `api` | one task | the API server's watch of this node's pods |
//! | `fetch` | value | [`HyperFetch`]: that port over a real network |
//! | `shelf` | value | files of a folder: their last good pods and what is wrong with them, said once |
//! | [`mux`] | pure | full sets in, changes out |
//! | `outlet` | shared value | the mux, its clock and its channel |
//! | [`control`] | handle | what a running source can be told, and what it has to say |
//! | `deadline` | value | file calls that a dead disk cannot hold up |
//!
//! Deliberately absent: a file's bytes in memory, and a pod's removal because its manifest got a typing error.

mod api;
pub mod control;
mod deadline;
mod fetch;
mod folder;
pub mod mux;
mod outlet;
mod shelf;
pub mod submitted;
pub mod url;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::{Clock, Files};
use crablet_model::PodRef;
use crablet_model::manifest::Gates;
use crablet_model::names;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use api::ApiSource;
pub use control::Control;
pub use fetch::HyperFetch;
pub use submitted::{Listed, Refusal, Stored, Submitted};
pub use url::{Fetch, FetchError, Fetched};

use self::control::paces;
use crate::events::EventSink;

/// Updates that wait for the registry before the sources do.
const QUEUE: usize = 50;

/// A source of pods. The order is the order in which they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The manifest folder.
    File,
    /// The manifest URL.
    Url,
    /// Manifests submitted over the local API.
    Submitted,
    /// The API server.
    Api,
}

impl Source {
    /// The value of the annotation `kubernetes.io/config.source`. Users' tools know upstream's words only.
    pub fn annotation(self) -> &'static str {
        match self {
            Self::File => names::source::FILE,
            Self::Url | Self::Submitted => names::source::HTTP,
            Self::Api => names::source::API,
        }
    }

    /// Pods of manifests are static: the cluster sees them only as mirrors.
    pub fn is_static(self) -> bool {
        self != Self::Api
    }
}

/// What happened to pods of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUpdate {
    pub source: Source,
    pub op: Op,
    /// Empty only in the one [`Op::Add`] that says: this source has spoken, and has no pods.
    pub pods: Vec<DesiredPod>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Update,
    /// Graceful deletion began: the pod has a deletion timestamp.
    Delete,
    /// The source no longer has the pod.
    Remove,
    /// Only the status differs.
    Reconcile,
}

/// A pod that somebody wants, kept as JSON: a decoded pod costs ten times as much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPod {
    pub id: PodRef,
    pub json: Arc<[u8]>,
    /// What the pod asks for and this version cannot do: it is shown as waiting for that.
    pub refused: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub node_name: String,
    pub folder: Option<PathBuf>,
    pub folder_check: Duration,
    pub url: Option<String>,
    pub url_headers: Vec<(String, String)>,
    pub url_check: Duration,
    /// Submitted manifests are kept here.
    pub submitted_folder: PathBuf,
    pub gates: Gates,
}

/// The sources at work.
pub struct Started {
    pub updates: mpsc::Receiver<PodUpdate>,
    /// The handle for the local API.
    pub submitted: Submitted,
    /// Which sources are to be heard before anything may be cleaned up.
    pub configured: Vec<Source>,
    pub control: Control,
}

/// Starts the sources that are set, as tasks of `tasks`.
pub fn start(
    settings: SourceSettings,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    fetch: Arc<dyn Fetch>,
    cluster: Option<ApiSource>,
    tasks: &mut JoinSet<()>,
) -> Started {
    let (sender, updates) = mpsc::channel(QUEUE);
    let outlet = outlet::Outlet::new(sender, clock, events);
    let (control, pace) = paces(&settings, outlet.problems());
    let mut configured = Vec::new();
    if let Some(folder) = settings.folder.clone() {
        configured.push(Source::File);
        tasks.spawn(folder::run(folder, settings.clone(), pace.folder, files.clone(), outlet.clone()));
    }
    if let Some(url) = settings.url.clone() {
        configured.push(Source::Url);
        tasks.spawn(url::run(url, settings.clone(), pace.url, fetch, outlet.clone()));
    }
    if let Some(source) = cluster {
        configured.push(Source::Api);
        tasks.spawn(source.run(outlet.clone()));
    }
    configured.push(Source::Submitted);
    let (submitted, keeper) = submitted::open(&settings, files, outlet);
    tasks.spawn(keeper);
    Started { updates, submitted, configured, control }
}

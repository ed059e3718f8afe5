//! The driver itself.
//!
//! | module | what it serves |
//! |---|---|
//! | `identity` | who it is |
//! | `controller` | making, growing and removing volumes |
//! | `node` | staging and publishing them by bind mounts |
//! | `registration` | its entry in a kubelet's `plugins_registry` |

mod controller;
mod identity;
mod node;
mod registration;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use crablet_protos::csi::controller_server::ControllerServer;
use crablet_protos::csi::identity_server::IdentityServer;
use crablet_protos::csi::node_server::NodeServer;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::Server;
use tonic::{Code, Status};

use super::DriverOptions;
use super::faults::{self, Seen};
use super::store::Store;

/// What all services of the driver work with.
pub struct Shared {
    pub options: DriverOptions,
    pub store: Store,
    /// Volumes that are being worked on: a second call for one is told to come again.
    busy: Mutex<BTreeSet<String>>,
}

impl Shared {
    /// Does the work of a call, with the faults that tests wish for, and writes down both ends of it.
    pub async fn call<T>(
        &self,
        method: &str,
        volume: &str,
        request: Value,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        let home = &self.options.home;
        let mut seen = Seen {
            method: method.to_owned(),
            begun: true,
            volume: volume.to_owned(),
            request,
            result: String::new(),
        };
        faults::note(home, &seen);
        let result = async {
            let _busy = self.begin(volume)?;
            faults::before(home, method, volume).await?;
            let result = work();
            faults::after(home, method, volume).await;
            result
        }
        .await;
        seen.begun = false;
        seen.result =
            result.as_ref().map_or_else(|status| format!("{:?}", status.code()), |_| "Ok".to_owned());
        faults::note(home, &seen);
        result
    }

    fn begin(&self, volume: &str) -> Result<Busy<'_>, Status> {
        let mut busy = self.busy.lock().unwrap();
        if !volume.is_empty() && !busy.insert(volume.to_owned()) {
            return Err(Status::aborted(format!("an operation on volume {volume} is under way")));
        }
        Ok(Busy { shared: self, volume: volume.to_owned() })
    }
}

struct Busy<'a> {
    shared: &'a Shared,
    volume: String,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.shared.busy.lock().unwrap().remove(&self.volume);
    }
}

pub fn internal(error: anyhow::Error) -> Status {
    Status::new(Code::Internal, format!("{error:#}"))
}

pub fn wanted(field: &str, value: &str) -> Result<(), Status> {
    match value.is_empty() {
        true => Err(Status::invalid_argument(format!("{field} is missing"))),
        false => Ok(()),
    }
}

/// Where the driver registers.
pub fn registration_socket(registry: &Path, name: &str) -> PathBuf {
    registry.join(format!("{name}-reg.sock"))
}

/// Serves until the process ends.
pub async fn serve(options: DriverOptions) -> Result<()> {
    let (endpoint, registry) = (options.endpoint(), options.registry.clone());
    let shared = Arc::new(Shared { store: Store::new(&options.home), options, busy: Mutex::default() });
    let driver = Server::builder()
        .add_service(IdentityServer::new(identity::Identity(shared.clone())))
        .add_service(ControllerServer::new(controller::Controller(shared.clone())))
        .add_service(NodeServer::new(node::Node(shared.clone())))
        .serve_with_incoming(Accepted(listener(&endpoint)?));
    let registration = async {
        let Some(registry) = registry else { return std::future::pending().await };
        let socket = registration_socket(&registry, &shared.options.name);
        registration::serve(shared.clone(), listener(&socket)?).await?;
        anyhow::Ok(())
    };
    tokio::select! {
        ended = driver => ended?,
        ended = registration => ended?,
    }
    Ok(())
}

fn listener(socket: &Path) -> Result<UnixListener> {
    let _ = fs::remove_file(socket);
    UnixListener::bind(socket).with_context(|| format!("cannot listen at `{}`", socket.display()))
}

/// Connections, one after the other.
struct Accepted(UnixListener);

impl futures_util::Stream for Accepted {
    type Item = std::io::Result<UnixStream>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

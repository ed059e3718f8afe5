//! What the agent listens on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crablet_config::Settings;
use crablet_server::{LocalSocket, PodView, healthz_router, serve_tcp};
use tokio::net::TcpListener;

/// What the agent listens on. Opened before anything else is done: the local socket is also the lock that keeps a second
/// agent away from the same root folder.
pub struct Listeners {
    pub healthz: Option<Healthz>,
    pub read_only: Option<TcpListener>,
    pub(super) local: LocalSocket,
}

/// A port that is only looked at: if it is taken, the agent goes on, and tries again.
pub struct Healthz {
    pub address: SocketAddr,
    listener: io::Result<TcpListener>,
}

/// As upstream's.
const HEALTHZ_RETRY: Duration = Duration::from_secs(5);

impl Listeners {
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self {
            local: LocalSocket::bind(&settings.local_socket()).await?,
            healthz: match settings.healthz_port {
                Some(port) => Some(Healthz::open((settings.healthz_bind_address, port).into()).await),
                None => None,
            },
            read_only: match settings.read_only_port {
                Some(port) => Some(listen((settings.address, port).into()).await?),
                None => None,
            },
        })
    }

    /// No ports: for an agent that leaves again soon.
    pub async fn local_only(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self { local: LocalSocket::bind(&settings.local_socket()).await?, healthz: None, read_only: None })
    }
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

impl Healthz {
    async fn open(address: SocketAddr) -> Self {
        Self { address, listener: TcpListener::bind(address).await }
    }

    pub(super) async fn serve(self, view: Arc<dyn PodView>) {
        let mut opened = self.listener;
        let listener = loop {
            match opened {
                Ok(listener) => break listener,
                Err(error) => {
                    tracing::error!(%error, address = %self.address, "Failed to start healthz server")
                }
            }
            tokio::time::sleep(HEALTHZ_RETRY).await;
            opened = TcpListener::bind(self.address).await;
        };
        serve_tcp(listener, healthz_router(view), std::future::pending()).await;
    }
}

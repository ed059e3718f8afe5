//! The accept loop. There is room for a bounded number of connections, and strangers, who have not said yet who they
//! are, have room for fewer: when that is taken, the one that has waited longest goes. So whoever opens connections and
//! says nothing keeps nobody else out for long.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::connection::{self, Guest};
use super::tls::Tls;
use super::wire::LargeHeads;
use crate::serve::{ACCEPT_PAUSE, Strangers, is_the_peers_fault};

/// Upgraded ones count until they are closed. An API server has one for each log that is followed, each command and each
/// forwarded port: hundreds of them are an ordinary day.
const CONNECTIONS: usize = 1536;
/// Everybody is one until the first request has come, so there is room for a burst of those who are none.
const STRANGERS: usize = 512;
/// How long answers under way may take to end once the agent stops.
const DRAIN: Duration = Duration::from_secs(1);

pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    mut tls: Tls,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = watch::channel(());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let large_heads = LargeHeads::default();
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::default();
    tokio::pin!(shutdown);
    loop {
        let accept = async {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { return std::future::pending().await };
            (place, listener.accept().await)
        };
        // Every arm is cancel-safe: an accept that is not done has taken nothing from the kernel's queue, and its place
        // is given back.
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            _ = connections.join_next(), if !connections.is_empty() => (),
            () = tls.client_ca_changed() => tls.rebuild(),
            (place, accepted) = accept => match accepted {
                Ok((stream, address)) => {
                    strangers.make_room(STRANGERS);
                    let known = Arc::new(AtomicBool::new(false));
                    let large_heads = large_heads.clone();
                    let guest = Guest { address, known: known.clone(), place, large_heads };
                    let connection =
                        connection::run(stream, tls.config(), router.clone(), guest, stopping.clone());
                    let task = connections.spawn(connection);
                    strangers.add(known, task);
                }
                Err(error) if is_the_peers_fault(&error) => (),
                Err(error) => {
                    warn!(err = %error, "Cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(stop);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        debug!(count = connections.len(), "Ending connections that did not end by themselves");
    }
    connections.shutdown().await;
}

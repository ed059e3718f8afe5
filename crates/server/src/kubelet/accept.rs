//! The accept loop. There is room for a bounded number of connections, and strangers, who have not said yet who they
//! are, have room for fewer: when that is taken, the one that has waited longest goes. So whoever opens connections and
//! says nothing keeps nobody else out for long.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use super::connection;
use super::tls::Tls;
use crate::serve::{ACCEPT_PAUSE, is_the_peers_fault};

const CONNECTIONS: usize = 512;
const STRANGERS: usize = 128;
/// How long answers under way may take to end once the agent stops.
const DRAIN: Duration = Duration::from_secs(1);

/// Connections by age, with whether they are known by now.
#[derive(Default)]
struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, (Arc<AtomicBool>, AbortHandle)>,
}

impl Strangers {
    /// Makes room for one more.
    fn make_room(&mut self, most: usize) {
        if self.waiting.len() < most {
            return;
        }
        self.waiting.retain(|_, (known, task)| !known.load(Ordering::Relaxed) && !task.is_finished());
        while self.waiting.len() >= most {
            if let Some((_, (_, task))) = self.waiting.pop_first() {
                debug!("Too many clients that did not say who they are, ending the oldest");
                task.abort();
            }
        }
    }

    fn add(&mut self, known: Arc<AtomicBool>, task: AbortHandle) {
        self.waiting.insert(self.next, (known, task));
        self.next += 1;
    }
}

pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    mut tls: Tls,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::default();
    tokio::pin!(shutdown);
    loop {
        let room = connections.len() < CONNECTIONS;
        // Every arm is cancel-safe: an accept that is not done has taken nothing from the kernel's queue.
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            _ = connections.join_next(), if !connections.is_empty() => (),
            () = tls.client_ca_changed() => tls.rebuild(),
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, _)) => {
                    strangers.make_room(STRANGERS);
                    let known = Arc::new(AtomicBool::new(false));
                    let connection =
                        connection::run(stream, tls.config(), router.clone(), known.clone(), stopping.clone());
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

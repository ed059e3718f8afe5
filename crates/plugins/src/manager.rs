//! The task that does what sockets ask for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use crate::Handlers;
use crate::folder::{self, Identity};
use crate::handshake::{self, Registered};

/// As upstream backs off between tries of one socket.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(122);
/// Beside inotify; and the pace where the machine has no watches left.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const LOOK_WITHOUT_WATCH: Duration = Duration::from_secs(1);

/// A socket that was seen at least once.
struct Socket {
    identity: Identity,
    /// Not there any more, or another one under the same name.
    stale: bool,
    state: State,
}

enum State {
    /// To be registered at this time.
    Waiting {
        failures: u32,
        at: Instant,
    },
    /// Registration or its end is under way.
    Busy {
        failures: u32,
    },
    Registered(Registered),
}

enum Done {
    Registered(Result<Registered, String>),
    Deregistered,
}

type Operation = Pin<Box<dyn Future<Output = (PathBuf, Done)> + Send>>;

struct Manager {
    folder: PathBuf,
    handlers: Arc<Handlers>,
    sockets: BTreeMap<PathBuf, Socket>,
    running: FuturesUnordered<Operation>,
}

pub async fn run(folder: PathBuf, handlers: Handlers) {
    let mut manager = Manager {
        folder,
        handlers: Arc::new(handlers),
        sockets: BTreeMap::new(),
        running: FuturesUnordered::new(),
    };
    manager.watch().await;
}

impl Manager {
    async fn watch(&mut self) {
        let mut failing = false;
        loop {
            let (mut changes, pace) = match folder::look(&self.folder).await {
                Ok((seen, changes)) => {
                    failing = false;
                    self.take_in(&seen.sockets);
                    let pace = if changes.is_some() { LOOK_AGAIN } else { LOOK_WITHOUT_WATCH };
                    (changes, pace)
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        error!(path = %self.folder.display(), %error, "Failed to look for plugins, will retry");
                    }
                    (None, LOOK_WITHOUT_WATCH)
                }
            };
            let look_again = Instant::now() + pace;
            let changed = async {
                let ended = match &mut changes {
                    Some(changes) => changes.next().await,
                    None => std::future::pending().await,
                };
                if ended.is_err() {
                    tokio::time::sleep(LOOK_WITHOUT_WATCH).await;
                }
            };
            tokio::pin!(changed);
            loop {
                self.begin();
                let next = self.next_time();
                // Every arm may be dropped: operations stay in the set, and the watch begins anew with a look.
                tokio::select! {
                    biased;
                    Some((socket, done)) = self.running.next() => {
                        if self.finish(&socket, done) {
                            break;
                        }
                    }
                    () = &mut changed => break,
                    () = sleep_until(next.unwrap_or(look_again)), if next.is_some() => {}
                    () = sleep_until(look_again) => break,
                }
            }
        }
    }

    fn take_in(&mut self, seen: &BTreeMap<PathBuf, Identity>) {
        for (path, socket) in &mut self.sockets {
            socket.stale = seen.get(path) != Some(&socket.identity);
        }
        for (path, identity) in seen {
            self.sockets.entry(path.clone()).or_insert_with(|| Socket::new(*identity));
        }
        // Those that nothing is to be ended for are forgotten, or begun anew, at once.
        self.sockets.retain(|path, socket| match (&socket.state, socket.stale) {
            (State::Waiting { .. }, true) => match seen.get(path) {
                Some(identity) => {
                    *socket = Socket::new(*identity);
                    true
                }
                None => false,
            },
            _ => true,
        });
    }

    /// Begins what it is time for.
    fn begin(&mut self) {
        let now = Instant::now();
        for (path, socket) in &mut self.sockets {
            match &mut socket.state {
                State::Waiting { failures, at } if *at <= now => {
                    socket.state = State::Busy { failures: *failures };
                    self.running.push(register(path.clone(), self.handlers.clone()));
                }
                State::Registered(_) if socket.stale => {
                    let busy = State::Busy { failures: 0 };
                    let State::Registered(there) = std::mem::replace(&mut socket.state, busy) else {
                        continue;
                    };
                    self.running.push(deregister(path.clone(), there));
                }
                _ => {}
            }
        }
    }

    /// Says whether to look at once, because what is under the name now is not known.
    fn finish(&mut self, path: &Path, done: Done) -> bool {
        let Some(socket) = self.sockets.get_mut(path) else { return true };
        let State::Busy { failures } = socket.state else { return true };
        match done {
            Done::Registered(Ok(registered)) => {
                let plugin = &registered.plugin;
                info!(plugin = plugin.name, path = %path.display(), "Registered a plugin");
                socket.state = State::Registered(registered);
                false
            }
            Done::Registered(Err(problem)) => {
                let wait = FIRST_RETRY.saturating_mul(1 << failures.min(16)).min(LAST_RETRY);
                error!(path = %path.display(), err = problem, retryIn = ?wait, "Registration of a plugin failed");
                socket.state = State::Waiting { failures: failures + 1, at: Instant::now() + wait };
                socket.stale
            }
            Done::Deregistered => {
                self.sockets.remove(path);
                true
            }
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let waiting = self.sockets.values().filter_map(|socket| match socket.state {
            State::Waiting { at, .. } => Some(at),
            _ => None,
        });
        waiting.min()
    }
}

impl Socket {
    fn new(identity: Identity) -> Self {
        Self { identity, stale: false, state: State::Waiting { failures: 0, at: Instant::now() } }
    }
}

fn register(path: PathBuf, handlers: Arc<Handlers>) -> Operation {
    Box::pin(async move {
        let done = handshake::register(&path, &handlers).await;
        (path, Done::Registered(done))
    })
}

fn deregister(path: PathBuf, registered: Registered) -> Operation {
    Box::pin(async move {
        let plugin = &registered.plugin;
        info!(plugin = plugin.name, path = %path.display(), "A plugin has taken its socket away");
        registered.handler.deregister(plugin).await;
        (path, Done::Deregistered)
    })
}

//! The clients. All talk to the kubelet's own port, so that no API server has a part in the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use crablet_testbed::kubelet_port::{KubeletPort, Protocol, Session, Wanted};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Plan;

/// Each kind of pod that says something or nothing.
pub const PODS: usize = 10;
/// Handshakes under way at once.
const DIALS: usize = 16;
const BLOCK: usize = 32 * 1024;
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// `logs -f`; of pods that say a line a second, or nothing.
    Followers { ticking: bool },
    /// `exec -i cat`; with as much as goes through it, or nothing.
    Sessions { protocol: Protocol, busy: bool },
}

impl Load {
    pub const ALL: [Load; 6] = [
        Load::Followers { ticking: false },
        Load::Followers { ticking: true },
        Load::Sessions { protocol: Protocol::WebSocketV5, busy: false },
        Load::Sessions { protocol: Protocol::WebSocketV5, busy: true },
        Load::Sessions { protocol: Protocol::Spdy, busy: false },
        Load::Sessions { protocol: Protocol::Spdy, busy: true },
    ];

    pub fn count(self, plan: &Plan) -> usize {
        match self {
            Load::Followers { .. } => plan.followers,
            Load::Sessions { .. } => plan.sessions,
        }
    }

    pub fn title(self, plan: &Plan) -> String {
        let count = self.count(plan);
        match self {
            Load::Followers { ticking: false } => format!("{count} `logs -f` of silent containers"),
            Load::Followers { ticking: true } => format!("{count} `logs -f`, a line a second each"),
            Load::Sessions { protocol, busy } => {
                let wire = if protocol == Protocol::Spdy { "SPDY" } else { "WebSocket" };
                let what = if busy { "that carry data both ways" } else { "that wait" };
                format!("{count} `exec` over {wire} {what}")
            }
        }
    }

    pub fn is_busy(self) -> bool {
        matches!(self, Load::Sessions { busy: true, .. })
    }
}

/// Clients at work, until this is dropped.
pub struct Held {
    clients: JoinSet<Result<()>>,
    bytes: Arc<AtomicU64>,
}

impl Held {
    /// What came back to the clients so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// None of them has ended by itself.
    pub async fn check(&mut self) -> Result<()> {
        match self.clients.try_join_next() {
            None => Ok(()),
            Some(end) => end?.and_then(|()| bail!("it ended")).context("a client did not stay"),
        }
    }

    /// Ends them all and waits until each has let go.
    pub async fn end(mut self) {
        self.clients.shutdown().await;
    }
}

/// All of them are being served when this comes back.
pub async fn hold(load: Load, port: &KubeletPort, plan: &Plan) -> Result<Held> {
    let bytes = Arc::new(AtomicU64::new(0));
    let dials = Arc::new(Semaphore::new(DIALS));
    let mut opening = JoinSet::new();
    for number in 0..load.count(plan) {
        let (port, dials) = (port.clone(), Arc::clone(&dials));
        opening.spawn(async move {
            let _place = dials.acquire_owned().await?;
            tokio::time::timeout(DEADLINE, open(load, &port, number)).await.context("no session")?
        });
    }
    let mut clients = JoinSet::new();
    while let Some(opened) = opening.join_next().await {
        let (opened, bytes) = (opened??, Arc::clone(&bytes));
        clients.spawn(opened.stay(load.is_busy(), bytes));
    }
    Ok(Held { clients, bytes })
}

enum Open {
    Follower(hyper::body::Incoming),
    Session(Session),
}

async fn open(load: Load, port: &KubeletPort, number: usize) -> Result<Open> {
    match load {
        Load::Followers { ticking } => {
            let pod = format!("{}-{}", if ticking { "tick" } else { "quiet" }, number % PODS);
            // Only what is said from now on.
            let path = format!("/containerLogs/default/{pod}/main?follow=true&tailLines=0");
            Ok(Open::Follower(port.get(&path).await?))
        }
        Load::Sessions { protocol, .. } => {
            let wanted = Wanted::command(&["cat"]).with_input();
            let mut session = port.session(protocol, "/exec/default/sh/main", &wanted).await?;
            session.talker.send(b"hello\n").await?;
            session.listener.until(|heard| heard == b"hello\n").await?;
            Ok(Open::Session(session))
        }
    }
}

impl Open {
    async fn stay(self, busy: bool, bytes: Arc<AtomicU64>) -> Result<()> {
        let count = |length: usize| {
            bytes.fetch_add(length as u64, Ordering::Relaxed);
        };
        match self {
            Open::Follower(mut body) => {
                while let Some(frame) = body.frame().await {
                    count(frame?.data_ref().map_or(0, |data| data.len()));
                }
                Ok(())
            }
            Open::Session(Session { talker, listener }) => {
                let talk = async {
                    let block = vec![b'x'; BLOCK];
                    if !busy {
                        return std::future::pending::<Result<()>>().await;
                    }
                    loop {
                        talker.send(&block).await?;
                    }
                };
                let listen = async {
                    let outcome = listener.count(count).await?;
                    ensure!(outcome.exit_code().is_ok(), "{outcome:?}");
                    Ok(())
                };
                tokio::select! { ended = talk => ended, ended = listen => ended }
            }
        }
    }
}

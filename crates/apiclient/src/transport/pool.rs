//! The connections of a lane. There is one as long as it has room, another when it has not, and each is dialled by the
//! request that needs it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::connection::{Connection, Http1, Http2, Lost, Outgoing};
use super::dial::{DialError, Dialler};
use super::socket::Switch;

/// Between failures to dial: short, as those who call have their own patience.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// HTTP/1.1: kept for the next request.
const MAX_IDLE: usize = 2;
const IDLE: Duration = Duration::from_secs(60);
/// HTTP/1.1: until a connection whose answer has been read can be used again.
const SETTLE: Duration = Duration::from_secs(1);

pub struct Pool {
    dialler: Arc<Dialler>,
    state: Mutex<State>,
    /// One dials, the others wait for what comes of it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    many: Vec<Arc<Http2>>,
    idle: Vec<(Http1, Instant)>,
    /// All there are, those in use included.
    switches: Vec<Weak<Switch>>,
    /// Counts how often all connections were given up, so that one that is being dialled meanwhile is not kept.
    generation: u64,
    failures: u64,
    in_a_row: u32,
    failed: Option<(Instant, DialError)>,
}

impl Pool {
    pub fn new(dialler: Arc<Dialler>) -> Arc<Self> {
        Arc::new(Self { dialler, state: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// Room for a request.
    pub async fn slot(self: &Arc<Self>) -> Result<Slot, DialError> {
        let failures = self.state().failures;
        if let Some(slot) = self.free() {
            return Ok(slot);
        }
        let _turn = self.turn.lock().await;
        loop {
            if let Some(slot) = self.free() {
                return Ok(slot);
            }
            if let Some(failure) = self.failure_after(failures) {
                return Err(failure);
            }
            let generation = self.pause().await;
            match self.dialler.dial().await {
                Ok(connection) => {
                    if let Some(slot) = self.add(connection, generation) {
                        return Ok(slot);
                    }
                }
                Err(error) => {
                    let mut state = self.state();
                    state.failures += 1;
                    state.in_a_row += 1;
                    state.failed = Some((Instant::now(), error.clone()));
                    return Err(error);
                }
            }
        }
    }

    /// Ends all connections gracefully: watches end, calls go on to their end, new ones dial anew.
    pub fn retire(&self) {
        self.give_up(Switch::retire);
    }

    /// Ends all connections at once.
    pub fn cut(&self) {
        self.give_up(Switch::cut);
    }

    fn give_up(&self, how: fn(&Switch)) {
        let (mut many, mut idle) = (Vec::new(), Vec::new());
        let switches = {
            let mut state = self.state();
            state.generation += 1;
            std::mem::swap(&mut state.many, &mut many);
            std::mem::swap(&mut state.idle, &mut idle);
            std::mem::take(&mut state.switches)
        };
        for switch in switches.iter().filter_map(Weak::upgrade) {
            how(&switch);
        }
    }

    fn free(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.state();
        state.many.retain(|connection| !connection.is_closed());
        // The oldest first, so that the others can become empty.
        if let Some(connection) = state.many.iter().find(|connection| connection.enter()) {
            let carrier = Carrier::Http2(Arc::clone(connection));
            return Some(Slot { pool: Arc::clone(self), carrier });
        }
        state.idle.retain(|(connection, since)| !connection.is_closed() && since.elapsed() < IDLE);
        let (connection, _) = state.idle.pop()?;
        Some(Slot { pool: Arc::clone(self), carrier: Carrier::Http1(Some(connection)) })
    }

    /// Whoever waited while another failed has got the same answer.
    fn failure_after(&self, failures: u64) -> Option<DialError> {
        let state = self.state();
        state.failed.as_ref().filter(|_| state.failures > failures).map(|(_, error)| error.clone())
    }

    async fn pause(&self) -> u64 {
        let until = {
            let state = self.state();
            let pause =
                FIRST_PAUSE.saturating_mul(1 << state.in_a_row.saturating_sub(1).min(10)).min(LAST_PAUSE);
            state.failed.as_ref().filter(|_| state.in_a_row > 0).map(|(at, _)| *at + pause)
        };
        if let Some(until) = until {
            time::sleep_until(until).await;
        }
        self.state().generation
    }

    /// None if it was dialled for nothing: all connections have been given up since.
    fn add(self: &Arc<Self>, connection: Connection, generation: u64) -> Option<Slot> {
        let mut state = self.state();
        (state.in_a_row, state.failed) = (0, None);
        if state.generation != generation {
            return None;
        }
        state.switches.retain(|switch| switch.strong_count() > 0);
        state.switches.push(Arc::downgrade(connection.switch()));
        let carrier = match connection {
            Connection::Http2(connection) => {
                let connection = Arc::new(connection);
                connection.enter();
                state.many.push(Arc::clone(&connection));
                Carrier::Http2(connection)
            }
            Connection::Http1(connection) => Carrier::Http1(Some(connection)),
        };
        Some(Slot { pool: Arc::clone(self), carrier })
    }

    /// An empty connection beside others is one too many.
    fn tidy(&self) {
        let mut extra = Vec::new();
        let mut state = self.state();
        while state.many.len() > 1 {
            let Some(at) = state.many.iter().rposition(|connection| connection.is_empty()) else { break };
            extra.push(state.many.remove(at));
        }
        drop(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one request, until it is dropped.
pub struct Slot {
    pool: Arc<Pool>,
    carrier: Carrier,
}

enum Carrier {
    Http2(Arc<Http2>),
    /// None once it has been given back.
    Http1(Option<Http1>),
}

impl Slot {
    pub async fn send(&mut self, outgoing: &Outgoing) -> Result<Response<Incoming>, Lost> {
        let address = &self.pool.dialler.address;
        match &mut self.carrier {
            Carrier::Http2(connection) => connection.send(address, outgoing).await,
            Carrier::Http1(Some(connection)) => connection.send(address, outgoing).await,
            Carrier::Http1(None) => {
                Err(Lost { message: "the connection was given back".to_owned(), unsent: true })
            }
        }
    }

    /// Becomes true when the connection is to be left.
    pub fn retired(&self) -> Option<watch::Receiver<bool>> {
        match &self.carrier {
            Carrier::Http2(connection) => Some(connection.switch.retired()),
            Carrier::Http1(connection) => connection.as_ref().map(|connection| connection.switch.retired()),
        }
    }

    /// The answer has been read to its end.
    pub fn done(mut self) {
        let Carrier::Http1(connection) = &mut self.carrier else { return };
        let Some(mut connection) = connection.take() else { return };
        let (pool, generation) = (Arc::clone(&self.pool), self.pool.state().generation);
        tokio::spawn(async move {
            if !time::timeout(SETTLE, connection.ready()).await.unwrap_or(false) {
                return;
            }
            let mut state = pool.state();
            let retired = *connection.switch.retired().borrow();
            if state.generation == generation && !retired && state.idle.len() < MAX_IDLE {
                state.idle.push((connection, Instant::now()));
            }
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Carrier::Http2(connection) = &self.carrier
            && connection.leave()
        {
            self.pool.tidy();
        }
    }
}

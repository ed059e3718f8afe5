//! A mirror of one collection, or of one object: list, then watch, for ever.
//!
//! ```text
//!            ┌──────────── 410 Gone ─────────────┐
//!            v                                   │
//!  Unknown ──┬── streaming list ── bookmark ──> Open <──┐ closed or broken: goes on from the last version seen
//!            └── list (if refused) ──> Known ────┴──────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`backoff`] | how long to wait after a failure |
//! | [`wire`] | the little that is read of objects |
//!
//! Objects stay the bytes that they are; only name and version are looked at.

mod backoff;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::backoff::Backoff;
use crate::port::{
    ApiError, ApiServer, CALL_DEADLINE, Call, Change, ErrorKind, Lane, WatchCall, WatchEvent, WatchStream,
};

/// The initial events come without a pause: a server that is silent for this long does not send them.
const INITIAL_SILENCE: Duration = Duration::from_secs(60);
/// The server closes a watch at its timeout; one that does not is dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// A watch that ends sooner and has told nothing was none.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Versions that expire again this soon are a failure, not the course of things.
const GONE_AGAIN: Duration = Duration::from_secs(60);

/// What a server says that has gone back in time, restored from a backup: what was seen is worth nothing.
const FROM_THE_FUTURE: &str = "Too large resource version";

/// What is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// `/api/v1/pods`
    pub path: String,
    /// `fieldSelector`, not encoded.
    pub selector: Option<String>,
    pub lane: Lane,
    /// Seconds after which the server closes a watch, drawn from this range: 300 to 600 for collections, 1800 to 3600 for
    /// single objects.
    pub timeout: (u64, u64),
}

/// What the mirror shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reflected {
    /// This is all there is.
    Replaced(Vec<Bytes>),
    /// New, or new in this state.
    Applied(Bytes),
    /// In its last state.
    Deleted(Bytes),
    /// The mirror stands still until the next try, which comes by itself.
    Failed(ApiError),
}

/// Whether the server refuses lists that are streamed. Reflections of one server may share it.
#[derive(Clone, Default)]
pub struct NoStreaming(Arc<AtomicBool>);

/// Mirrors for ever. Dropping the stream ends the watch.
pub fn reflect(api: Arc<dyn ApiServer>, what: Reflection, seed: u64) -> BoxStream<'static, Reflected> {
    reflect_sharing(api, what, seed, NoStreaming::default())
}

/// The same, with what is known of the server.
pub fn reflect_sharing(
    api: Arc<dyn ApiServer>,
    what: Reflection,
    seed: u64,
    no_streaming: NoStreaming,
) -> BoxStream<'static, Reflected> {
    let reflector = Reflector {
        api,
        what,
        no_streaming,
        backoff: Backoff::new(seed),
        state: State::Unknown,
        version: String::new(),
        pause: None,
        list_next: false,
        latest: false,
        gone: None,
    };
    stream::unfold(reflector, |mut reflector| async move {
        let reflected = reflector.next().await;
        Some((reflected, reflector))
    })
    .boxed()
}

enum State {
    /// Nothing is known, or what was known is too old.
    Unknown,
    /// Everything up to `version` has been told.
    Known,
    Open(Open),
}

struct Open {
    stream: WatchStream,
    begun: Instant,
    dead_at: Instant,
    told: bool,
}

struct Reflector {
    api: Arc<dyn ApiServer>,
    what: Reflection,
    no_streaming: NoStreaming,
    backoff: Backoff,
    state: State,
    version: String,
    pause: Option<Duration>,
    /// The streaming list went wrong: the next try is a plain one.
    list_next: bool,
    /// The version is too old for the server: the next list is not served from its cache.
    latest: bool,
    /// When versions expired last.
    gone: Option<Instant>,
}

/// One step: something to tell, or not yet.
type Step = Result<Option<Reflected>, ApiError>;

impl Reflector {
    async fn next(&mut self) -> Reflected {
        loop {
            if let Some(pause) = self.pause.take() {
                sleep(pause).await;
            }
            let step = match &mut self.state {
                State::Unknown if self.list_next || self.no_streaming.0.load(Ordering::Relaxed) => {
                    self.list().await
                }
                State::Unknown => self.streaming_list().await,
                State::Known => self.resume().await,
                State::Open(_) => self.told().await,
            };
            match step {
                Ok(Some(reflected)) => return reflected,
                Ok(None) => {}
                Err(error) => {
                    if let Some(failed) = self.failed(error) {
                        return failed;
                    }
                }
            }
        }
    }

    /// Decides what a failure means for the next step. Versions that expire are no failure.
    fn failed(&mut self, error: ApiError) -> Option<Reflected> {
        if error.kind == ErrorKind::Gone {
            let now = Instant::now();
            let again = self.gone.replace(now).is_some_and(|last| now.duration_since(last) < GONE_AGAIN);
            self.state = State::Unknown;
            self.latest = true;
            tracing::debug!(path = self.what.path, err = %error, "Watched version expired, listing again");
            if !again {
                return None;
            }
        } else if let State::Open(_) = self.state {
            self.state = State::Known;
        }
        if error.message.contains(FROM_THE_FUTURE) {
            self.state = State::Unknown;
            self.latest = true;
        }
        let refused = self.what.lane == Lane::Objects
            && matches!(error.kind, ErrorKind::Forbidden | ErrorKind::NotFound);
        self.pause = Some(self.backoff.wait(refused, error.retry_after));
        Some(Reflected::Failed(error))
    }

    /// The list as the beginning of the watch: complete at the bookmark that says so.
    async fn streaming_list(&mut self) -> Step {
        let mut open = match self.open("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await {
            Ok(open) => open,
            Err(error) => return self.streaming_failed(error),
        };
        let mut objects: BTreeMap<(String, String), Bytes> = BTreeMap::new();
        loop {
            let event = match timeout(INITIAL_SILENCE, open.stream.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return self.streaming_failed(error),
                Ok(None) => {
                    return self.streaming_failed(unfinished("the watch ended before the list was complete"));
                }
                Err(_) => return self.streaming_failed(unfinished("the server does not complete the list")),
            };
            if event.change == Change::Bookmark {
                let (version, end) = wire::bookmark(&event.object)?;
                if end {
                    self.version = version;
                    self.latest = false;
                    self.state = State::Open(open);
                    return Ok(Some(Reflected::Replaced(objects.into_values().collect())));
                }
                continue;
            }
            let identity = wire::identity(&event.object)?;
            let key = (identity.namespace, identity.name);
            if event.change == Change::Deleted {
                objects.remove(&key);
            } else {
                objects.insert(key, event.object);
            }
        }
    }

    /// A server that cannot stream lists is asked for a plain one at once, and for ever; one that merely failed to, once.
    fn streaming_failed(&mut self, error: ApiError) -> Step {
        match error.kind {
            ErrorKind::Invalid => {
                tracing::debug!(path = self.what.path, err = %error, "Server refuses streaming lists, listing instead");
                self.no_streaming.0.store(true, Ordering::Relaxed);
                Ok(None)
            }
            ErrorKind::Server | ErrorKind::Other if error.retry_after.is_none() => {
                tracing::debug!(path = self.what.path, err = %error, "Streaming list failed, listing instead");
                self.list_next = true;
                Ok(None)
            }
            _ => Err(error),
        }
    }

    async fn list(&mut self) -> Step {
        // A failure of the plain list is followed by a streaming one again, where the server can.
        self.list_next = false;
        let version = match self.version.as_str() {
            _ if self.latest => "",
            "" => "0",
            seen => seen,
        };
        let path = self.path(&format!("resourceVersion={version}"));
        let body = self.api.call(Call::get(self.what.lane, path)).await?;
        let (version, items) = wire::list(&body)?;
        self.version = version;
        self.latest = false;
        self.state = State::Known;
        Ok(Some(Reflected::Replaced(items)))
    }

    async fn resume(&mut self) -> Step {
        let open = self.open(&format!("&resourceVersion={}", wire::encoded(&self.version))).await?;
        self.state = State::Open(open);
        Ok(None)
    }

    /// Waits for the next thing that the watch tells.
    async fn told(&mut self) -> Step {
        let State::Open(open) = &mut self.state else { return Ok(None) };
        match timeout_at(open.dead_at, open.stream.next()).await {
            Ok(Some(Ok(WatchEvent { change: Change::Bookmark, object }))) => {
                open.told = true;
                self.version = wire::bookmark(&object)?.0;
                Ok(None)
            }
            Ok(Some(Ok(WatchEvent { change, object }))) => {
                open.told = true;
                match wire::identity(&object) {
                    Ok(identity) => self.version = identity.resource_version,
                    Err(error) => {
                        // What was missed is unknown.
                        self.state = State::Unknown;
                        return Err(error);
                    }
                }
                Ok(Some(if change == Change::Deleted {
                    Reflected::Deleted(object)
                } else {
                    Reflected::Applied(object)
                }))
            }
            Ok(Some(Err(error))) => Err(error),
            Ok(None) => {
                if !open.told && open.begun.elapsed() < SHORT_WATCH {
                    self.pause = Some(self.backoff.wait(false, None));
                }
                self.state = State::Known;
                Ok(None)
            }
            Err(_) => {
                self.state = State::Known;
                Ok(None)
            }
        }
    }

    async fn open(&mut self, query: &str) -> Result<Open, ApiError> {
        let seconds = self.backoff.between(self.what.timeout);
        let path = self.path(&format!("allowWatchBookmarks=true&timeoutSeconds={seconds}{query}"));
        let answer = timeout(CALL_DEADLINE, self.api.watch(WatchCall { path, lane: self.what.lane })).await;
        let silent = || ApiError::new(ErrorKind::TimedOut, "the server does not answer the watch");
        let stream = answer.unwrap_or_else(|_| Err(silent()))?;
        let begun = Instant::now();
        let dead_at = begun + Duration::from_secs(seconds) + WATCH_GRACE;
        Ok(Open { stream, begun, dead_at, told: false })
    }

    fn path(&self, query: &str) -> String {
        match &self.what.selector {
            Some(selector) => format!("{}?fieldSelector={}&{query}", self.what.path, wire::encoded(selector)),
            None => format!("{}?{query}", self.what.path),
        }
    }
}

fn unfinished(message: &str) -> ApiError {
    ApiError::new(ErrorKind::Other, message)
}

#[cfg(test)]
mod tests;

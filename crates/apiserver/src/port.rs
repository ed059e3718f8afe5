//! The API server as the agent meets it: paths, verbs and JSON bytes. The simulation has its own.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

/// How long a call may take where the caller does not say.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

#[async_trait]
pub trait ApiServer: Send + Sync + 'static {
    /// One request, one answer. Never takes longer than the call's deadline. The answer is the body of a 2xx.
    async fn call(&self, call: Call) -> Result<Bytes, ApiError>;

    /// Begins a watch: returns once the server has answered with 200. The stream ends when the server closes it.
    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError>;
}

pub type WatchStream = BoxStream<'static, Result<WatchEvent, ApiError>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    Post,
    Put,
    /// `application/strategic-merge-patch+json`
    StrategicPatch,
    /// `application/merge-patch+json`
    MergePatch,
    Delete,
}

/// Which traffic a call belongs to. Lanes have connections and limits of their own, so that none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Lease and node status: never throttled, never behind anything.
    Heartbeat,
    /// Pods, their status, tokens, registration, reviews: `kubeAPIQPS` and `kubeAPIBurst`.
    Main,
    /// `eventRecordQPS` and `eventBurst`.
    Events,
    /// Watches of single objects, of which there can be hundreds.
    Objects,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// With its query, encoded: `/api/v1/namespaces/default/pods/p?…`.
    pub path: String,
    /// JSON; empty for none.
    pub body: Bytes,
    pub lane: Lane,
    pub deadline: Duration,
}

impl Call {
    pub fn new(verb: Verb, lane: Lane, path: impl Into<String>) -> Self {
        Self { verb, path: path.into(), body: Bytes::new(), lane, deadline: CALL_DEADLINE }
    }

    pub fn get(lane: Lane, path: impl Into<String>) -> Self {
        Self::new(Verb::Get, lane, path)
    }

    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// A watch. The path has the whole query except `watch=true`, which the implementation adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCall {
    pub path: String,
    pub lane: Lane,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Added,
    Modified,
    Deleted,
    /// Only moves the resource version; may carry `k8s.io/initial-events-end`.
    Bookmark,
}

/// A line of a watch. A line of type `ERROR` is an [`ApiError`] instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    pub change: Change,
    /// JSON of the object.
    pub object: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// No answer: refused, reset, no route, bad certificate.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// 400, 422: asking again in the same words is useless.
    Invalid,
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 409 with reason `AlreadyExists`
    AlreadyExists,
    /// 409 otherwise
    Conflict,
    /// 410, or a watch error with reason `Expired` or `Gone`
    Gone,
    /// 429
    TooManyRequests,
    /// 5xx
    Server,
    /// Anything else, an answer that is not understood included.
    Other,
}

/// What the API server, or the way to it, said instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ApiError {
    pub kind: ErrorKind,
    /// The status' reason in the API's words; may be empty.
    pub reason: String,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl ApiError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, reason: String::new(), message: message.into(), retry_after: None }
    }

    /// From an HTTP status code and its body, which usually is a `Status`.
    pub fn of_status(code: u16, body: &[u8]) -> Self {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Details {
            retry_after_seconds: Option<u64>,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Status {
            reason: String,
            message: String,
            details: Option<Details>,
        }
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        let kind = match code {
            400 | 422 => ErrorKind::Invalid,
            401 => ErrorKind::Unauthorized,
            403 => ErrorKind::Forbidden,
            404 => ErrorKind::NotFound,
            409 if status.reason == "AlreadyExists" => ErrorKind::AlreadyExists,
            409 => ErrorKind::Conflict,
            410 => ErrorKind::Gone,
            429 => ErrorKind::TooManyRequests,
            500..=599 => ErrorKind::Server,
            _ => ErrorKind::Other,
        };
        let message =
            if status.message.is_empty() { format!("the server answered {code}") } else { status.message };
        let retry_after = status.details.and_then(|d| d.retry_after_seconds).map(Duration::from_secs);
        Self { kind, reason: status.reason, message, retry_after }
    }

    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Whether the object that was meant is there no more and another one has its name: a precondition says so, or the
    /// server, which takes the UID in a patch for the wish to change it.
    pub fn is_about_another(&self) -> bool {
        let is_other_uid = |text: &str| text.contains("metadata.uid") && text.contains("field is immutable");
        match self.kind {
            ErrorKind::Conflict => true,
            ErrorKind::Invalid => is_other_uid(&self.message),
            _ => false,
        }
    }

    /// Whether the same request may succeed later without anybody changing it.
    pub fn is_transient(&self) -> bool {
        !matches!(self.kind, ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::AlreadyExists)
    }
}

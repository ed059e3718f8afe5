//! A call as HTTP, and failures in the words that Go's client uses.

use std::time::Duration;

use bytes::Bytes;
use crablet_apiserver::{ApiError, ErrorKind, Verb};
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::transport::{DialError, Lost, Outgoing};

/// A list of everything in a large cluster stays below.
const MAX_BODY: usize = 64 << 20;

/// What is asked for, for messages: `Get "https://10.0.0.1:6443/api/v1/nodes/n"`.
#[derive(Clone, Debug)]
pub struct Subject {
    pub verb: Verb,
    pub url: String,
}

impl Subject {
    pub fn error(&self, kind: ErrorKind, why: &str) -> ApiError {
        let verb = match self.verb {
            Verb::Get => "Get",
            Verb::Post => "Post",
            Verb::Put => "Put",
            Verb::StrategicPatch | Verb::MergePatch => "Patch",
            Verb::Delete => "Delete",
        };
        ApiError::new(kind, format!("{verb} {:?}: {why}", self.url))
    }

    pub fn timed_out(&self) -> ApiError {
        self.error(ErrorKind::TimedOut, "context deadline exceeded")
    }

    pub fn undialled(&self, error: &DialError) -> ApiError {
        let kind = if error.timed_out { ErrorKind::TimedOut } else { ErrorKind::Unreachable };
        self.error(kind, &error.message)
    }

    pub fn lost(&self, lost: &Lost) -> ApiError {
        self.error(ErrorKind::Unreachable, &lost.message)
    }

    /// An answer that is none.
    pub fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ApiError {
        let mut error = ApiError::of_status(status.as_u16(), body);
        error.retry_after = retry_after(status, headers).or(error.retry_after);
        if error.reason.is_empty() {
            error.message = self.error(error.kind, &error.message).message;
        }
        error
    }
}

/// When the server wants to be asked again: only those answers of whom client-go believes it.
pub fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

pub fn outgoing(
    verb: Verb,
    path: &str,
    body: &Bytes,
    user_agent: &HeaderValue,
    authorization: Option<HeaderValue>,
) -> Outgoing {
    let (method, content_type) = match verb {
        Verb::Get => (Method::GET, "application/json"),
        Verb::Post => (Method::POST, "application/json"),
        Verb::Put => (Method::PUT, "application/json"),
        Verb::StrategicPatch => (Method::PATCH, "application/strategic-merge-patch+json"),
        Verb::MergePatch => (Method::PATCH, "application/merge-patch+json"),
        Verb::Delete => (Method::DELETE, "application/json"),
    };
    let mut headers = HeaderMap::with_capacity(5);
    headers.insert(USER_AGENT, user_agent.clone());
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    // Nothing here unpacks.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if !body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization);
    }
    Outgoing { method, path: path.to_owned(), headers, body: body.clone() }
}

/// The whole answer in an allocation of its own size: it may be kept.
pub async fn read(subject: &Subject, mut body: Incoming) -> Result<Bytes, ApiError> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(MAX_BODY).min(MAX_BODY);
    let mut bytes = Vec::with_capacity(expected);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| subject.lost(&Lost::midway(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > MAX_BODY {
            return Err(subject.error(ErrorKind::Other, "the answer is larger than 64 MiB"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Bytes::from(bytes.into_boxed_slice()))
}

//! The record of one API request, from its arrival to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::redact::redact;
use super::request_info::RequestInfo;
use crate::record::{Outcome, Phase, Recorded, Recorder};
use crate::secrets::Salt;

/// A line of the record. A request is one line when it has ended; a watch and an upgraded connection are one when they
/// begin and one when they end, with the same `call`.
#[derive(Debug, Clone, Serialize)]
pub struct ApiRecord {
    /// When the request arrived; for the end of a watch, when it ended.
    pub time: Timestamp,
    /// The request's number, from 1, in the order of arrival.
    pub call: u64,
    pub phase: Phase,
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths that are no API, the
    /// method in lower case.
    pub verb: String,
    pub path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub query: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// What the client speaks: `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: String,
    pub request_body: BodyInfo,
    /// The request's body, if it is JSON, with its secrets as hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// The status that the client got, or would have got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// As much of the answer as there was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<BodyInfo>,
    /// The API server's answer, if it is JSON and not a watch's, with its secrets as hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// How many events a watch brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What broke, for [`Outcome::Broken`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The rule that acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What is known of a body without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BodyInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// `gzip`, mostly; such a body is not shown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encoding: String,
    pub bytes: u64,
}

impl BodyInfo {
    pub fn of(headers: &HeaderMap) -> BodyInfo {
        BodyInfo {
            content_type: text(headers, CONTENT_TYPE),
            encoding: text(headers, CONTENT_ENCODING),
            bytes: 0,
        }
    }

    /// Whether it can be shown. Go's clients send JSON as server-side apply, which is called YAML.
    pub fn is_json(&self) -> bool {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        let known =
            kind == "application/json" || kind.ends_with("+json") || kind.ends_with("apply-patch+yaml");
        known && (self.encoding.is_empty() || self.encoding == "identity")
    }
}

/// What requests are counted by. For paths that are no API, the resource is the path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ApiKey {
    pub user: String,
    pub verb: String,
    pub resource: String,
    pub subresource: String,
}

impl Recorded for ApiRecord {
    type Key = ApiKey;
}

/// What all entries share.
pub struct Book {
    pub recorder: Recorder<ApiRecord>,
    pub salt: Salt,
    pub body_limit: usize,
}

/// Writes the request's line when it is finished, or when it is dropped: then the client gave up, or the proxy was
/// stopped.
pub struct Entry {
    book: Arc<Book>,
    line: ApiRecord,
    arrived: Instant,
    /// Grows while a request's body that is not read whole goes by.
    request_bytes: Arc<AtomicU64>,
    started: bool,
    finished: bool,
}

impl Entry {
    pub fn new(book: Arc<Book>, user: String, info: RequestInfo, parts: &Parts) -> Entry {
        let path = parts.uri.path().to_owned();
        let resource = if info.resource.is_empty() { path.clone() } else { info.resource.clone() };
        let (verb, subresource) = (info.verb.clone(), info.subresource.clone());
        let call = book.recorder.arrived(ApiKey { user: user.clone(), verb, resource, subresource });
        let line = ApiRecord {
            time: Timestamp::now(),
            call,
            phase: Phase::Call,
            user,
            verb: info.verb,
            path,
            query: parts.uri.query().unwrap_or_default().to_owned(),
            namespace: info.namespace,
            resource: info.resource,
            subresource: info.subresource,
            name: info.name,
            user_agent: text(&parts.headers, USER_AGENT),
            protocol: format!("{:?}", parts.version),
            request_body: BodyInfo::of(&parts.headers),
            request: None,
            status: None,
            response_body: None,
            response: None,
            events: None,
            duration_ms: None,
            outcome: None,
            error: None,
            rule: None,
        };
        let request_bytes = Arc::new(AtomicU64::new(0));
        Entry { book, line, arrived: Instant::now(), request_bytes, started: false, finished: false }
    }

    pub fn line(&self) -> &ApiRecord {
        &self.line
    }

    pub fn book(&self) -> &Book {
        &self.book
    }

    pub fn is_watch(&self) -> bool {
        self.line.verb == "watch"
    }

    pub fn request_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.request_bytes)
    }

    /// What is asked, and the rule that acts on it.
    pub fn asked(&mut self, request: Option<Value>, rule: Option<String>) {
        self.line.request = request.map(|request| self.redacted(request));
        self.line.rule = rule;
    }

    /// The answer begins.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.line.status = Some(status.as_u16());
        self.line.response_body = Some(BodyInfo::of(headers));
        if self.is_watch() || status == StatusCode::SWITCHING_PROTOCOLS {
            self.started = true;
            let mut line = ApiRecord { phase: Phase::Start, ..self.line.clone() };
            line.response_body = None;
            self.write(line);
            self.line.request = None;
        }
    }

    /// What there was of the answer's body; and the whole of it, if it is to be shown.
    pub fn body(&mut self, bytes: u64, events: Option<u64>, whole: Option<&[u8]>) {
        self.line.response_body.get_or_insert_default().bytes = bytes;
        self.line.events = events;
        if let Some(value) = whole.and_then(|whole| serde_json::from_slice(whole).ok()) {
            self.line.response = Some(self.redacted(value));
        }
    }

    /// A rule's own answer instead of the API server's.
    pub fn replaced(&mut self, status: u16) {
        self.line.status = Some(status);
    }

    pub fn broken(&mut self, error: &dyn std::error::Error) {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        self.line.error = Some(text);
        self.finish(Outcome::Broken);
    }

    pub fn finish(&mut self, outcome: Outcome) {
        if self.finished {
            return;
        }
        self.finished = true;
        self.line.outcome = Some(outcome);
        self.line.request_body.bytes = self.request_bytes.load(Ordering::Relaxed);
        self.line.duration_ms = Some(self.arrived.elapsed().as_micros() as f64 / 1000.0);
        if self.started {
            self.line.phase = Phase::End;
            self.line.time = Timestamp::now();
        }
        self.write(self.line.clone());
    }

    fn redacted(&self, mut value: Value) -> Value {
        redact(&mut value, &self.line.resource, &self.book.salt);
        value
    }

    fn write(&self, line: ApiRecord) {
        self.book.recorder.write(line);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.finish(Outcome::GivenUp);
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

//! A response that does not end, as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use crablet_apiserver::{ApiError, Change, ErrorKind, WatchEvent, WatchStream};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::request::Subject;
use crate::transport::{Lost, Slot};

/// No object is larger: etcd takes a tenth of it.
const MAX_LINE: usize = 16 << 20;
/// How long after its own end a watch may be silent.
const OVERTIME: Duration = Duration::from_secs(30);

/// `watch=true` is added to the path of a list.
pub fn path(list: &str) -> String {
    let separator = if list.contains('?') { '&' } else { '?' };
    format!("{list}{separator}watch=true")
}

/// The stream ends when the server ends it or the connection is to be left, and after any error.
pub fn events(subject: Subject, path: &str, slot: Slot, body: Incoming) -> WatchStream {
    let guard = timeout_seconds(path).map(|timeout| Instant::now() + timeout + OVERTIME);
    let retired = slot.retired();
    let reader = Reader {
        subject,
        guard,
        lines: Lines::default(),
        source: Some(Source { body, retired, _slot: slot }),
    };
    stream::unfold(reader, Reader::next).boxed()
}

/// How long the server was asked to watch.
fn timeout_seconds(path: &str) -> Option<Duration> {
    let (_, query) = path.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="))?;
    value.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()))
}

struct Reader {
    subject: Subject,
    guard: Option<Instant>,
    lines: Lines,
    /// None once nothing more will come; what is in `lines` is still told.
    source: Option<Source>,
}

struct Source {
    body: Incoming,
    retired: Option<watch::Receiver<bool>>,
    _slot: Slot,
}

enum Heard {
    Data(Bytes),
    End,
    Failed(ApiError),
}

impl Reader {
    async fn next(mut self) -> Option<(Result<WatchEvent, ApiError>, Self)> {
        loop {
            if let Some(line) = self.lines.next() {
                let event = event(line);
                return Some(self.tell(event));
            }
            let source = self.source.as_mut()?;
            match source.hear(&self.subject, self.guard).await {
                Heard::Data(data) => {
                    if let Err(why) = self.lines.add(&data) {
                        let error = self.subject.error(ErrorKind::Other, why);
                        return Some(self.tell(Err(error)));
                    }
                }
                Heard::End => {
                    self.source = None;
                    if !self.lines.is_empty() {
                        let error = self.subject.error(ErrorKind::Unreachable, "unexpected EOF");
                        return Some(self.tell(Err(error)));
                    }
                }
                Heard::Failed(error) => return Some(self.tell(Err(error))),
            }
        }
    }

    fn tell(mut self, event: Result<WatchEvent, ApiError>) -> (Result<WatchEvent, ApiError>, Self) {
        if event.is_err() {
            (self.source, self.lines) = (None, Lines::default());
        }
        (event, self)
    }
}

impl Source {
    async fn hear(&mut self, subject: &Subject, guard: Option<Instant>) -> Heard {
        loop {
            // Each can be dropped at any time: a flag, a timer, and frames of which none is lost before it is returned.
            tokio::select! {
                biased;
                () = left(self.retired.as_mut()) => return Heard::End,
                frame = self.body.frame() => match frame {
                    None => return Heard::End,
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Heard::Data(data);
                        }
                    }
                    Some(Err(error)) => return Heard::Failed(subject.lost(&Lost::midway(&error))),
                },
                () = over(guard) => return Heard::Failed(
                    subject.error(ErrorKind::TimedOut, "the watch has not ended when it should have"),
                ),
            }
        }
    }
}

async fn left(retired: Option<&mut watch::Receiver<bool>>) {
    if let Some(retired) = retired
        && retired.wait_for(|retired| *retired).await.is_ok()
    {
        return;
    }
    // Without a sender the connection is gone, and the frames tell of it.
    std::future::pending().await
}

async fn over(guard: Option<Instant>) {
    match guard {
        Some(at) => time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Bytes in, lines out. Holds no memory while there is nothing to hold.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Before this, everything has been told.
    told: usize,
    /// Before this, there is no end of a line that has not been told.
    searched: usize,
}

impl Lines {
    fn add(&mut self, data: &[u8]) -> Result<(), &'static str> {
        self.bytes.drain(..self.told);
        self.searched -= self.told;
        self.told = 0;
        if self.bytes.len() + data.len() > MAX_LINE {
            return Err("an event is larger than 16 MiB");
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn next(&mut self) -> Option<&[u8]> {
        loop {
            let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                if self.told == self.bytes.len() {
                    *self = Self::default();
                }
                return None;
            };
            let (start, end) = (self.told, self.searched + length);
            (self.told, self.searched) = (end + 1, end + 1);
            if !self.bytes[start..end].trim_ascii().is_empty() {
                return Some(self.bytes[start..end].trim_ascii());
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes[self.told..].trim_ascii().is_empty()
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn event(line: &[u8]) -> Result<WatchEvent, ApiError> {
    let wrong = |why: &str| {
        ApiError::new(ErrorKind::Other, format!("unable to decode an event from the watch stream: {why}"))
    };
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| wrong(&error.to_string()))?;
    let change = match line.kind {
        "ADDED" => Change::Added,
        "MODIFIED" => Change::Modified,
        "DELETED" => Change::Deleted,
        "BOOKMARK" => Change::Bookmark,
        "ERROR" => return Err(failure(line.object)),
        other => return Err(wrong(&format!("got invalid watch event type: {other}"))),
    };
    // An allocation of its own: objects are kept, and must not keep the line or the frame.
    Ok(WatchEvent { change, object: Bytes::copy_from_slice(line.object.get().as_bytes()) })
}

fn failure(status: &RawValue) -> ApiError {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        code: u16,
    }
    let text = status.get();
    let Status { code } = serde_json::from_str(text).unwrap_or_default();
    let mut error = ApiError::of_status(code, text.as_bytes());
    if matches!(error.reason.as_str(), "Expired" | "Gone") {
        error.kind = ErrorKind::Gone;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        let text = b"{\"a\":1}\n\n  {\"b\":2}\r\n{\"c\"";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut told = Vec::new();
            for piece in text.chunks(size) {
                lines.add(piece).expect("small");
                while let Some(line) = lines.next() {
                    told.push(String::from_utf8_lossy(line).into_owned());
                }
            }
            assert_eq!(told, ["{\"a\":1}", "{\"b\":2}"], "in pieces of {size}");
            assert!(!lines.is_empty(), "the last has not ended");
        }
    }

    #[test]
    fn objects_are_handed_on_as_they_came() {
        let given = event(br#"{"type":"ADDED","object":{"b": 1.0,  "a":"\u00e9"}}"#).expect("an event");
        assert_eq!((given.change, &given.object[..]), (Change::Added, &br#"{"b": 1.0,  "a":"\u00e9"}"#[..]));
        let error = event(
            br#"{"type":"ERROR","object":{"kind":"Status","code":500,"reason":"Expired","message":"m"}}"#,
        );
        assert_eq!(error.expect_err("an error").kind, ErrorKind::Gone);
        assert_eq!(event(b"<html>").expect_err("no JSON").kind, ErrorKind::Other);
    }

    #[test]
    fn the_query_gets_its_watch() {
        assert_eq!(path("/api/v1/pods"), "/api/v1/pods?watch=true");
        assert_eq!(path("/api/v1/pods?timeoutSeconds=7"), "/api/v1/pods?timeoutSeconds=7&watch=true");
        assert_eq!(timeout_seconds("/p?a=b&timeoutSeconds=7&c=d"), Some(Duration::from_secs(7)));
    }
}

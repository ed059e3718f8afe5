//! Bodies on their way through.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use super::entry::{BodyInfo, Entry};
use super::forward::Connection;
use crate::record::Outcome;
use crate::rules::Cut;

/// How long a connection stays open for what was let through to leave, before it is cut.
const LINGER: Duration = Duration::from_millis(50);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A request's body that is too long, or of unknown length: passed on piece by piece, and counted.
pub struct Counted {
    pub inner: Incoming,
    pub bytes: Arc<AtomicU64>,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body: passed on as it comes, recorded, and cut off if a rule says so.
pub struct Recording {
    inner: Incoming,
    entry: Entry,
    meter: Meter,
    connection: Arc<Connection>,
    cutting: Option<Pin<Box<Sleep>>>,
}

impl Recording {
    pub fn new(
        inner: Incoming,
        info: &BodyInfo,
        entry: Entry,
        cut: Option<Cut>,
        connection: Arc<Connection>,
    ) -> Recording {
        let meter = Meter::new(info, entry.is_watch(), entry.book().body_limit, cut);
        let mut body = Recording { inner, entry, meter, connection, cutting: None };
        body.finish_if_whole();
        body
    }

    /// The record is written before the last piece goes out: who has the answer finds it there.
    fn finish_if_whole(&mut self) {
        if self.cutting.is_none() && self.inner.is_end_stream() {
            self.finish(Outcome::Answered);
        }
    }

    fn finish(&mut self, outcome: Outcome) {
        self.meter.report(&mut self.entry);
        self.entry.finish(outcome);
    }
}

impl hyper::body::Body for Recording {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(sleep) = &mut self.cutting {
            ready!(sleep.as_mut().poll(cx));
            self.finish(Outcome::Cut);
            self.connection.cut.notify_one();
            return Poll::Ready(Some(Err("cut off by a rule".into())));
        }
        match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            None => {
                self.finish(Outcome::Answered);
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                let this = &mut *self;
                this.meter.report(&mut this.entry);
                this.entry.broken(&error);
                this.connection.cut.notify_one();
                Poll::Ready(Some(Err(error.into())))
            }
            Some(Ok(frame)) => match frame.into_data() {
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
                Ok(mut data) => {
                    if let Some(cut_at) = self.meter.take(&data) {
                        data.truncate(cut_at);
                        self.cutting = Some(Box::pin(tokio::time::sleep(LINGER)));
                    }
                    self.finish_if_whole();
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.cutting.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Whoever drops it before its end gave up, but what went by is known.
        self.meter.report(&mut self.entry);
    }
}

/// Watches an answer go by: counts it, keeps what is to be shown, and says where to cut it.
pub struct Meter {
    cut: Option<Cut>,
    bytes: u64,
    events: Option<Events>,
    /// `None`: not to be shown, or longer than may be shown.
    kept: Option<Vec<u8>>,
    limit: usize,
}

impl Meter {
    pub fn new(info: &BodyInfo, is_watch: bool, limit: usize, cut: Option<Cut>) -> Meter {
        let readable = info.encoding.is_empty() || info.encoding == "identity";
        let events = (is_watch && readable).then(|| Events::of(&info.content_type));
        let kept = (!is_watch && info.is_json()).then(Vec::new);
        Meter { cut, bytes: 0, events, kept, limit }
    }

    /// `Some`: the answer is cut after so much of this piece.
    pub fn take(&mut self, piece: &[u8]) -> Option<usize> {
        let mut cut_at = None;
        if let Some(Cut::AfterBytes(limit)) = self.cut
            && self.bytes + piece.len() as u64 >= limit
        {
            cut_at = Some((limit - self.bytes) as usize);
        }
        let whole = cut_at.unwrap_or(piece.len());
        if let Some(events) = &mut self.events {
            let limit = match self.cut {
                Some(Cut::AfterEvents(limit)) => limit,
                _ => u64::MAX,
            };
            cut_at = events.take(&piece[..whole], limit).or(cut_at);
        }
        let piece = &piece[..cut_at.unwrap_or(piece.len())];
        self.bytes += piece.len() as u64;
        match &mut self.kept {
            Some(kept) if kept.len() + piece.len() <= self.limit => kept.extend_from_slice(piece),
            kept => *kept = None,
        }
        cut_at
    }

    pub fn report(&self, entry: &mut Entry) {
        entry.body(self.bytes, self.events.as_ref().map(|events| events.seen), self.kept.as_deref());
    }
}

/// Counts the events of a watch: lines of JSON, or frames of protobuf with their length in front.
struct Events {
    framed: bool,
    seen: u64,
    /// Of a frame: the bytes of its length so far.
    head: Vec<u8>,
    /// Of a frame: how much is still to come.
    left: usize,
}

impl Events {
    fn of(content_type: &str) -> Events {
        Events { framed: content_type.contains("protobuf"), seen: 0, head: Vec::new(), left: 0 }
    }

    /// Where the event with number `limit` ends, if it is in this piece.
    fn take(&mut self, piece: &[u8], limit: u64) -> Option<usize> {
        if !self.framed {
            for (index, _) in piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                self.seen += 1;
                if self.seen == limit {
                    return Some(index + 1);
                }
            }
            return None;
        }
        let mut rest = piece;
        while !rest.is_empty() {
            if self.left == 0 {
                self.head.push(rest[0]);
                rest.advance(1);
                let Ok(head) = <[u8; 4]>::try_from(&self.head[..]) else { continue };
                self.head.clear();
                self.left = u32::from_be_bytes(head) as usize;
            }
            let taken = self.left.min(rest.len());
            rest.advance(taken);
            self.left -= taken;
            if self.left == 0 {
                self.seen += 1;
                if self.seen == limit {
                    return Some(piece.len() - rest.len());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(content_type: &str, stream: &[u8], limit: u64) -> Vec<(u64, Option<usize>)> {
        let cut = |size: usize| {
            let mut events = Events::of(content_type);
            let mut pieces = stream.chunks(size).enumerate();
            let cut = pieces.find_map(|(index, piece)| Some(index * size + events.take(piece, limit)?));
            (events.seen, cut)
        };
        (1..=stream.len()).map(cut).collect()
    }

    #[test]
    fn events_are_counted_however_they_are_cut_into_pieces() {
        for found in events("application/json", b"{1}\n{2}\n{3}\n", 2) {
            assert_eq!(found, (2, Some(8)));
        }
        let framed = [0, 0, 0, 1, 7, 0, 0, 0, 2, b'\n', 8, 0, 0, 0, 1];
        for found in events("application/vnd.kubernetes.protobuf;stream=watch", &framed, 2) {
            assert_eq!(found, (2, Some(11)));
        }
        for found in events("application/vnd.kubernetes.protobuf;stream=watch", &framed, 9) {
            assert_eq!(found, (2, None));
        }
    }

    #[test]
    fn a_meter_cuts_and_keeps() {
        let json = BodyInfo { content_type: "application/json".into(), ..BodyInfo::default() };
        let mut meter = Meter::new(&json, false, 8, Some(Cut::AfterBytes(5)));
        assert_eq!((meter.take(b"123"), meter.take(b"45678")), (None, Some(2)));
        assert_eq!((meter.bytes, meter.kept.as_deref()), (5, Some(&b"12345"[..])));
        let mut meter = Meter::new(&json, false, 4, None);
        assert_eq!((meter.take(b"123"), meter.take(b"45")), (None, None));
        assert_eq!((meter.bytes, meter.kept), (5, None));
    }
}

//! The socket of one connection, as HTTP reads it. Three things are done on the way:
//!
//! - the connection keeps its place among the counted ones until the socket is gone, upgraded or not;
//! - the head of a request may be as long as upstream's, but of those who are not admitted yet only a few may send long
//!   ones at a time, so that strangers fill no memory;
//! - a query that is longer than the HTTP library's type for addresses can hold is taken out of the first request of a
//!   connection and handed on beside it. `kubectl exec` sends whole scripts in a query, on a connection of their own.

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::http::{Extensions, Uri};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// As upstream's.
pub(super) const MAX_HEAD_BYTES: usize = 1 << 20;
/// What anybody may send as the head of a request.
const SMALL_HEAD: usize = 64 << 10;
/// A shorter request line needs no help. The library's limit is 65534 bytes.
const LONG_LINE: usize = 60_000;

/// How many may send heads longer than [`SMALL_HEAD`] at a time before they are admitted.
const LARGE_HEADS: usize = 16;

/// Turns for those who send long heads, shared by all connections.
#[derive(Clone)]
pub(super) struct LargeHeads(Arc<Semaphore>);

impl Default for LargeHeads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_HEADS)))
    }
}

/// The whole query of a request whose address could not hold it.
#[derive(Clone)]
struct LongQuery(Arc<str>);

/// A request's query, as long as it may be.
pub(crate) fn query_of<'a>(uri: &'a Uri, extensions: &'a Extensions) -> &'a str {
    extensions.get::<LongQuery>().map(|query| &*query.0).or_else(|| uri.query()).unwrap_or_default()
}

/// What is known of a connection on both sides of HTTP.
#[derive(Default)]
pub(super) struct Meter {
    admitted: AtomicBool,
    answered: AtomicUsize,
    large: Mutex<Option<OwnedSemaphorePermit>>,
    long_query: Mutex<Option<Arc<str>>>,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Meter {
    /// A request was let in: what the connection sends is not counted any more.
    pub fn admit(&self) {
        self.admitted.store(true, Ordering::Relaxed);
        drop(take(&self.large));
    }

    /// A request has its answer.
    pub fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        drop(take(&self.large));
    }

    /// Keeps something until the socket is gone.
    pub fn keep(&self, thing: Box<dyn Any + Send>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(thing);
    }

    /// Gives the first request its query, where that was taken out.
    pub fn give_query(&self, extensions: &mut Extensions) {
        if let Some(query) = take(&self.long_query) {
            extensions.insert(LongQuery(query));
        }
    }
}

fn take<T: Default>(from: &Mutex<T>) -> T {
    std::mem::take(&mut *from.lock().unwrap_or_else(PoisonError::into_inner))
}

type Turn = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

pub(crate) struct Wire<S> {
    stream: S,
    meter: Arc<Meter>,
    /// `None` where heads are counted by somebody else: HTTP/2.
    heads: Option<LargeHeads>,
    first_line: FirstLine,
    /// Bytes since the last answer, and how many answers there were then.
    since: (usize, usize),
    turn: Option<Turn>,
    _place: OwnedSemaphorePermit,
}

/// What has become of the first line that a client sends.
enum FirstLine {
    /// It has not ended yet.
    Held(Vec<u8>),
    /// Bytes that are still to be read, from a position on.
    Given(Vec<u8>, usize),
    Passed,
}

impl<S> Wire<S> {
    /// What is below, to be looked at only.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    pub(super) fn http1(
        stream: S,
        meter: Arc<Meter>,
        heads: LargeHeads,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let first_line = FirstLine::Held(Vec::new());
        Self { stream, meter, heads: Some(heads), first_line, since: (0, 0), turn: None, _place: place }
    }

    pub(super) fn http2(stream: S, meter: Arc<Meter>, place: OwnedSemaphorePermit) -> Self {
        let first_line = FirstLine::Passed;
        Self { stream, meter, heads: None, first_line, since: (0, 0), turn: None, _place: place }
    }

    /// Until this connection may send more.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(LargeHeads(turns)) = &self.heads else { return Poll::Ready(Ok(())) };
        if self.meter.admitted.load(Ordering::Relaxed) {
            self.turn = None;
            return Poll::Ready(Ok(()));
        }
        let answered = self.meter.answered.load(Ordering::Relaxed);
        if self.since.1 != answered {
            self.since = (0, answered);
        }
        let has_turn = || self.meter.large.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if self.since.0 < SMALL_HEAD || has_turn() {
            return Poll::Ready(Ok(()));
        }
        let turn = self.turn.get_or_insert_with(|| Box::pin(turns.clone().acquire_owned()));
        let permit = ready!(turn.as_mut().poll(context)).map_err(io::Error::other)?;
        self.turn = None;
        *self.meter.large.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if let FirstLine::Given(bytes, position) = &mut this.first_line {
                let rest = &bytes[*position..];
                let count = rest.len().min(buffer.remaining());
                buffer.put_slice(&rest[..count]);
                *position += count;
                if *position == bytes.len() {
                    this.first_line = FirstLine::Passed;
                }
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_turn(context))?;
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            this.since.0 += read.len();
            let FirstLine::Held(held) = &mut this.first_line else { return Poll::Ready(Ok(())) };
            let has_end = read.contains(&b'\n');
            if held.is_empty() && (has_end || read.is_empty()) {
                // Nearly always: a whole line came at once, and no line that comes at once is long.
                this.first_line = FirstLine::Passed;
                return Poll::Ready(Ok(()));
            }
            held.extend_from_slice(read);
            let is_over = has_end || read.is_empty() || held.len() > MAX_HEAD_BYTES;
            buffer.set_filled(before);
            if is_over {
                let mut held = std::mem::take(held);
                if let Some((short, query)) = shortened(&held) {
                    *this.meter.long_query.lock().unwrap_or_else(PoisonError::into_inner) = Some(query);
                    held = short;
                }
                this.first_line = FirstLine::Given(held, 0);
            }
        }
    }
}

/// The bytes of a request without its query, and the query; `None` for a line that is not long, or strange.
fn shortened(bytes: &[u8]) -> Option<(Vec<u8>, Arc<str>)> {
    let end = bytes.iter().position(|byte| *byte == b'\n').filter(|end| *end > LONG_LINE)?;
    let line = &bytes[..end];
    let (first, last) =
        (line.iter().position(|byte| *byte == b' ')?, line.iter().rposition(|byte| *byte == b' ')?);
    let target = line.get(first + 1..last)?;
    if !target.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mark = target.iter().position(|byte| *byte == b'?')?;
    let query = std::str::from_utf8(&target[mark + 1..]).ok()?;
    // A fragment is no part of a query, and no client sends one.
    if mark > LONG_LINE || query.contains('#') {
        return None;
    }
    let mut short = bytes[..first + 1 + mark].to_vec();
    short.extend_from_slice(&bytes[last..]);
    Some((short, query.into()))
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S> Drop for Wire<S> {
    fn drop(&mut self) {
        drop(take(&self.meter.kept));
    }
}

#[cfg(test)]
mod tests;

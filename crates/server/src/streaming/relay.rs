//! Bytes both ways, until one side ends; then both are closed, as upstream does it.
//!
//! A session at rest holds no buffer: blocks are read onto the stack and written from there, and only what the other
//! side does not take at once is kept.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::client::Client;

/// What is kept of each direction, at most.
const BLOCK: usize = 8 << 10;
/// A session in which nothing moves for so long is over. It is looked at once per period.
pub const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// While the runtime does not read, nothing is read from the client either: whether it is still there is looked at.
pub const LOOK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

pub async fn relay(client: Client, mut runtime: TcpStream, from_runtime: Bytes) {
    let Client { mut socket, early } = client;
    let (mut up, mut down) = (Direction::new(early), Direction::new(from_runtime));
    let mut quiet = Quiet::new();
    loop {
        let blocked = up.is_blocked();
        let nap = if blocked { LOOK } else { IDLE };
        let copying = poll_fn(|context| {
            let up_ended = up.poll(context, &mut socket, &mut runtime).is_ready();
            let down_ended = down.poll(context, &mut runtime, &mut socket).is_ready();
            if up_ended || down_ended {
                return Poll::Ready(true);
            }
            // It must be looked at sooner than was planned.
            if up.is_blocked() && !blocked { Poll::Ready(false) } else { Poll::Pending }
        });
        match tokio::time::timeout(nap, copying).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(_) if up.is_blocked() && socket.is_gone() => break,
            Err(_) if quiet.is_over(up.moved.wrapping_add(down.moved)) => break,
            Err(_) => {}
        }
    }
    // First, so that the runtime knows at once.
    drop(runtime);
    socket.close().await;
}

/// Whether anything has moved lately.
pub struct Quiet {
    moved: u64,
    since: Instant,
}

impl Quiet {
    pub fn new() -> Self {
        Self { moved: 0, since: Instant::now() }
    }

    pub fn is_over(&mut self, moved: u64) -> bool {
        if moved != self.moved {
            *self = Self { moved, since: Instant::now() };
        }
        self.since.elapsed() >= IDLE
    }
}

struct Direction {
    /// Read and not yet written.
    waiting: Bytes,
    moved: u64,
    /// The reader has come to its end.
    ended: bool,
}

impl Direction {
    fn new(waiting: Bytes) -> Self {
        Self { waiting, moved: 0, ended: false }
    }

    fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ready once this direction is over, well or badly: how makes no difference to what is done about it.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.waiting.is_empty() {
                let written = ready!(Pin::new(&mut *writer).poll_write(context, &self.waiting))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.waiting.advance(written);
                self.moved = self.moved.wrapping_add(written as u64);
            }
            // Nothing of the block stays here.
            self.waiting = Bytes::new();
            if self.ended {
                return Pin::new(&mut *writer).poll_flush(context);
            }
            let mut block = [MaybeUninit::uninit(); BLOCK];
            let mut block = ReadBuf::uninit(&mut block);
            match Pin::new(&mut *reader).poll_read(context, &mut block) {
                Poll::Pending => {
                    // A writer with TLS may hold back what it was given.
                    ready!(Pin::new(&mut *writer).poll_flush(context))?;
                    return Poll::Pending;
                }
                Poll::Ready(result) => result?,
            }
            let read = block.filled();
            if read.is_empty() {
                self.ended = true;
                continue;
            }
            let written = match Pin::new(&mut *writer).poll_write(context, read) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.moved = self.moved.wrapping_add(written as u64);
            if written < read.len() {
                self.waiting = Bytes::copy_from_slice(&read[written..]);
            }
        }
    }
}

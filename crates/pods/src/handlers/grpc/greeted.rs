//! A connection that tells whether the other side speaks HTTP/2: the first frame of such a server says its settings.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Where a frame's kind stands, after the three bytes of its length, and the kind of settings.
const KIND_AT: usize = 3;
const SETTINGS: u8 = 4;

pub(super) struct Greeted {
    stream: TcpStream,
    /// Bytes that have come, as long as they matter.
    come: usize,
    /// Told once, and dropped then or with the connection.
    hear: Option<mpsc::Sender<bool>>,
}

impl Greeted {
    pub fn new(stream: TcpStream, hear: mpsc::Sender<bool>) -> Self {
        Self { stream, come: 0, hear: Some(hear) }
    }

    fn look_at(&mut self, new: &[u8]) {
        if self.hear.is_none() {
            return;
        }
        let kind = new.get(KIND_AT - self.come);
        let ended = new.is_empty();
        self.come += new.len();
        if let Some(hear) = self.hear.take_if(|_| ended || kind.is_some()) {
            // Nobody listens any more: the probe's time is over.
            let _ = hear.try_send(kind == Some(&SETTINGS));
        }
    }
}

impl AsyncRead for Greeted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        self.look_at(into.filled().get(before..).unwrap_or_default());
        Poll::Ready(read)
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

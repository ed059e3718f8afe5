//! An upgraded connection: bytes in both directions, counted.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::entry::Entry;
use crate::record::Outcome;

/// Copies until both sides have ended, or one is gone.
pub async fn run(mut entry: Entry, client: OnUpgrade, server: OnUpgrade) {
    let (client, server) = match tokio::try_join!(client, server) {
        Ok(ends) => ends,
        Err(error) => return entry.broken(&error),
    };
    let (up, down) = (entry.request_bytes(), AtomicU64::new(0));
    let mut client = Metered { inner: TokioIo::new(client), read: &up };
    let mut server = Metered { inner: TokioIo::new(server), read: &down };
    let copied = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    entry.body(down.load(Ordering::Relaxed), None, None);
    match copied {
        // Many programs end a TLS connection by closing it.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => entry.broken(&error),
        _ => entry.finish(Outcome::Answered),
    }
}

/// Counts what is read, so that it is known however it ends.
struct Metered<'a, S> {
    inner: S,
    read: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.read.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

//! A stream that can be cut from outside: its requests then fail at once, whatever the network does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// How a connection is told to end.
#[derive(Debug)]
pub struct Switch {
    cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
    retired: watch::Sender<bool>,
}

impl Switch {
    pub fn new() -> Arc<Self> {
        let retired = watch::channel(false).0;
        Arc::new(Self {
            cut: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            retired,
        })
    }

    /// Fails everything that is under way.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Ends watches; calls may go on to their end.
    pub fn retire(&self) {
        self.retired.send_replace(true);
    }

    pub fn retired(&self) -> watch::Receiver<bool> {
        self.retired.subscribe()
    }

    /// The flag is looked at after the waker is in its place, so that a cut in between is not missed.
    fn check(&self, waker: &AtomicWaker, cx: &Context<'_>) -> io::Result<()> {
        waker.register(cx.waker());
        if self.is_cut() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "use of closed network connection"));
        }
        Ok(())
    }
}

pub struct Socket<S> {
    pub stream: S,
    pub switch: Arc<Switch>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.switch.check(&self.switch.reader, cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.switch.check(&self.switch.writer, cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.switch.check(&self.switch.writer, cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.switch.check(&self.switch.writer, cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.switch.check(&self.switch.writer, cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

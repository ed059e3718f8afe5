//! The client's socket after its upgrade.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::relay::LOOK;
use crate::kubelet::Wire;

/// How long the client may take to take the answer that begins the session.
const UPGRADE: Duration = Duration::from_secs(30);
/// How long the last bytes may take.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// Upgraded, with what came before anybody asked for it.
pub struct Client {
    pub socket: Socket,
    pub early: Bytes,
}

/// `None`: the client was gone before anything began.
pub async fn upgraded(upgrade: OnUpgrade) -> Option<Client> {
    let upgraded = match tokio::time::timeout(UPGRADE, upgrade).await {
        Ok(Ok(upgraded)) => upgraded,
        Ok(Err(error)) => {
            debug!(err = %error, "A client left before its streams were open");
            return None;
        }
        Err(_) => {
            debug!("A client did not take the answer that opens its streams");
            return None;
        }
    };
    let upgraded = match upgraded.downcast::<TokioIo<Wire<TlsStream<TcpStream>>>>() {
        Ok(parts) => {
            let socket = Socket::Tls(Box::new(parts.io.into_inner()));
            return Some(Client { socket, early: parts.read_buf });
        }
        Err(upgraded) => upgraded,
    };
    Some(match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => Client { socket: Socket::Plain(parts.io.into_inner()), early: parts.read_buf },
        Err(upgraded) => Client { socket: Socket::Other(TokioIo::new(upgraded)), early: Bytes::new() },
    })
}

pub enum Socket {
    Tls(Box<Wire<TlsStream<TcpStream>>>),
    Plain(TcpStream),
    Other(TokioIo<Upgraded>),
}

impl Socket {
    /// Whether the client has closed its end. Seen also while what it has sent is still unread; the client's protocols
    /// say inside of them that only one direction is over, so that a closed end means that nobody is there.
    pub fn is_gone(&self) -> bool {
        self.tcp().is_some_and(is_closed)
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tls(wire) => Some(wire.stream().get_ref().0),
            Self::Plain(stream) => Some(stream),
            Self::Other(_) => None,
        }
    }

    pub async fn close(mut self) {
        let _ = tokio::time::timeout(FAREWELL, self.shutdown()).await;
    }

    fn inner(&mut self) -> Pin<&mut dyn Io> {
        match self {
            Self::Tls(stream) => Pin::new(stream.as_mut()),
            Self::Plain(stream) => Pin::new(stream),
            Self::Other(stream) => Pin::new(stream),
        }
    }
}

/// Looks at a socket that somebody else reads and writes.
pub struct Watch(Option<OwnedFd>);

/// Why something could not be written to the runtime.
pub enum Unwritten {
    ClientGone,
    RuntimeGone,
}

impl Watch {
    pub fn of(socket: &Socket) -> Self {
        Self(socket.tcp().and_then(|tcp| tcp.as_fd().try_clone_to_owned().ok()))
    }

    /// While the runtime does not take it, the client is not read from: whether it is still there is looked at.
    pub async fn write(
        &self,
        runtime: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> Result<(), Unwritten> {
        let writing = runtime.write_all(bytes);
        tokio::pin!(writing);
        loop {
            match tokio::time::timeout(LOOK, &mut writing).await {
                Ok(written) => return written.map_err(|_| Unwritten::RuntimeGone),
                Err(_) if self.0.as_ref().is_some_and(is_closed) => return Err(Unwritten::ClientGone),
                Err(_) => {}
            }
        }
    }
}

fn is_closed(socket: &impl AsFd) -> bool {
    let mut watched = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut watched, Some(&now)), Ok(count) if count > 0)
}

trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }
}

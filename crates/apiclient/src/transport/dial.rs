//! TCP, TLS and the choice of the protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::lookup;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::connection::{Connection, http1, http2};
use super::socket::{Socket, Switch};
use crate::tls::{self, Tls};

/// As Go's dialler and transport have them.
const CONNECT: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For HTTP/1.1, which has no pings of its own.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 2;

/// How a dead peer is noticed on HTTP/2.
#[derive(Clone, Copy, Debug)]
pub struct Pings {
    pub interval: Duration,
    pub timeout: Duration,
}

impl Default for Pings {
    /// Upstream's defaults.
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub struct DialError {
    pub message: String,
    pub timed_out: bool,
}

pub struct Dialler {
    pub address: Address,
    /// None for plain HTTP.
    pub tls: Option<Tls>,
    pub pings: Pings,
}

impl Dialler {
    pub async fn dial(&self) -> Result<Connection, DialError> {
        let stream = self.connect().await?;
        let switch = Switch::new();
        let Some(tls) = &self.tls else { return self.plain(stream, switch).await };
        let config = tls.config().map_err(|message| DialError { message, timed_out: false })?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(tls.server_name(), stream);
        let stream = match time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(DialError { message: tls_words(&error), timed_out: false }),
            Err(_) => {
                return Err(DialError {
                    message: "net/http: TLS handshake timeout".to_owned(),
                    timed_out: true,
                });
            }
        };
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(Socket { stream, switch: Arc::clone(&switch) });
        let connection =
            if speaks_http2 { http2(io, switch, self.pings).await } else { http1(io, switch).await };
        connection.map_err(|error| DialError { message: error.to_string(), timed_out: false })
    }

    async fn plain<S>(&self, stream: S, switch: Arc<Switch>) -> Result<Connection, DialError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(Socket { stream, switch: Arc::clone(&switch) });
        http1(io, switch).await.map_err(|error| DialError { message: error.to_string(), timed_out: false })
    }

    /// To the first of the server's addresses that answers.
    async fn connect(&self) -> Result<TcpStream, DialError> {
        let addresses = self.addresses().await?;
        let share = CONNECT / u32::try_from(addresses.len()).unwrap_or(1).max(1);
        let mut failure = DialError {
            message: format!("dial tcp: lookup {}: no such host", self.address.host()),
            timed_out: false,
        };
        for address in addresses {
            match time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    prepare(&stream);
                    return Ok(stream);
                }
                Ok(Err(error)) => {
                    let message = format!("dial tcp {address}: connect: {}", io_words(&error));
                    failure = DialError { message, timed_out: false };
                }
                Err(_) => {
                    failure =
                        DialError { message: format!("dial tcp {address}: i/o timeout"), timed_out: true };
                }
            }
        }
        Err(failure)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        let (host, port) = (self.address.host(), self.address.port());
        match time::timeout(CONNECT, lookup::OF_NODE.addresses(host, port)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => {
                Err(DialError { message: format!("dial tcp: lookup {host}: {error}"), timed_out: false })
            }
            Err(_) => {
                Err(DialError { message: format!("dial tcp: lookup {host}: i/o timeout"), timed_out: true })
            }
        }
    }
}

/// Best effort: a connection without these works too.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES);
}

fn tls_words(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => tls::words(error),
        None => io_words(error),
    }
}

/// In Go's words where users know them.
pub fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
        _ => error.to_string(),
    }
}

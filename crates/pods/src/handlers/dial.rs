//! Connections to containers. What goes wrong is said in Go's words: people search for those.
//!
//! Unlike upstream's, these sockets do not linger: closing one that lingers may hold up its thread for a second.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crablet_host::lookup::{self, LookupError};
use tokio::net::TcpStream;

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// More than any that a resolver reads.
const RESOLV_CONF_BYTES: u64 = 64 * 1024;

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Connects to the first address that takes the connection. Has no deadline of its own.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    connect(&addresses(host, port).await?).await
}

/// Where a host can be reached. No host means this machine.
pub(super) async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    match lookup::OF_PODS.addresses(host, port).await {
        Ok(found) => Ok(found),
        Err(error) => {
            // A disk may be slow: not on a thread on which others wait for their turn.
            let settings = tokio::task::spawn_blocking(resolver_settings).await.unwrap_or_default();
            Err(not_found(host, &settings, &error))
        }
    }
}

/// To the first that takes the connection.
pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut error = "dial tcp: missing address".to_owned();
    for address in addresses {
        match TcpStream::connect(*address).await {
            Ok(stream) => return Ok(stream),
            Err(refused) => error = format!("dial tcp {address}: connect: {}", in_words(&refused)),
        }
    }
    Err(error)
}

/// Go names the server that did not know.
fn not_found(host: &str, settings: &str, error: &LookupError) -> String {
    let mut servers = settings.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim);
    let server = servers.find_map(|server| server.parse::<IpAddr>().ok());
    let server = SocketAddr::new(server.unwrap_or(Ipv4Addr::LOCALHOST.into()), 53);
    let why = if error.for_now { "server misbehaving" } else { "no such host" };
    format!("dial tcp: lookup {host} on {server}: {why}")
}

fn resolver_settings() -> String {
    let mut settings = String::new();
    // What cannot be read, or is no text, names nobody.
    let _ =
        File::open(RESOLV_CONF).and_then(|file| file.take(RESOLV_CONF_BYTES).read_to_string(&mut settings));
    settings
}

/// Both ends of a connection, for what is said when it breaks.
pub(super) struct Ends(String);

impl Ends {
    pub fn of(stream: &TcpStream) -> Self {
        Self(match (stream.local_addr(), stream.peer_addr()) {
            (Ok(here), Ok(there)) => format!("tcp {here}->{there}"),
            _ => "tcp".to_owned(),
        })
    }

    /// How Go tells of it.
    pub fn broke(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            ErrorKind::BrokenPipe => format!("write {}: write: broken pipe", self.0),
            _ if error.raw_os_error().is_none() => in_words(error),
            _ => format!("read {}: read: {}", self.0, in_words(error)),
        }
    }
}

/// `connection refused`, where Rust says `Connection refused (os error 111)`.
fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_address_is_told_with_the_server_that_was_asked() {
        let error = |for_now| LookupError { message: String::new(), for_now };
        let settings = "search a.test\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let told = not_found("x.test", settings, &error(false));
        assert_eq!(told, "dial tcp: lookup x.test on 10.0.0.2:53: no such host");
        let told = not_found("x.test", settings, &error(true));
        assert_eq!(told, "dial tcp: lookup x.test on 10.0.0.2:53: server misbehaving");
        assert_eq!(
            not_found("x.test", "", &error(false)),
            "dial tcp: lookup x.test on 127.0.0.1:53: no such host"
        );
    }
}

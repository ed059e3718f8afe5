//! Connections to containers. What goes wrong is said in Go's words: people search for those.
//!
//! Unlike upstream's, these sockets do not linger: closing one that lingers may hold up its thread for a second.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpStream, lookup_host};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// More than any that a resolver reads.
const RESOLV_CONF_BYTES: u64 = 64 * 1024;

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Connects to the first address that takes the connection. No host means this machine. Has no deadline of its own.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let Ok(addresses) = lookup_host((host, port)).await else { return Err(unknown(host).await) };
    let mut error = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(refused) => error = format!("dial tcp {address}: connect: {}", in_words(&refused)),
        }
    }
    Err(error)
}

/// Go names the server that did not know.
async fn unknown(host: &str) -> String {
    // A disk may be slow: not on a thread on which others wait for their turn.
    let settings = tokio::task::spawn_blocking(resolver_settings).await.unwrap_or_default();
    let mut servers = settings.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim);
    let server = servers.find_map(|server| server.parse::<IpAddr>().ok());
    let server = SocketAddr::new(server.unwrap_or(Ipv4Addr::LOCALHOST.into()), 53);
    format!("dial tcp: lookup {host} on {server}: no such host")
}

fn resolver_settings() -> String {
    let mut settings = String::new();
    // What cannot be read, or is no text, names nobody.
    let _ =
        File::open(RESOLV_CONF).and_then(|file| file.take(RESOLV_CONF_BYTES).read_to_string(&mut settings));
    settings
}

/// `connection refused`, where Rust says `Connection refused (os error 111)`.
pub(super) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

//! Connections to containers. What goes wrong is said in Go's words: people search for those.
//!
//! Unlike upstream's, these sockets do not linger: closing one that lingers may hold up its thread for a second.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpStream, lookup_host};

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Connects to the first address that takes the connection. No host means this machine. Has no deadline of its own.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let Ok(addresses) = lookup_host((host, port)).await else { return Err(unknown(host)) };
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
fn unknown(host: &str) -> String {
    let settings = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut servers = settings.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim);
    let server = servers.find_map(|server| server.parse::<IpAddr>().ok());
    let server = SocketAddr::new(server.unwrap_or(Ipv4Addr::LOCALHOST.into()), 53);
    format!("dial tcp: lookup {host} on {server}: no such host")
}

/// `connection refused`, where Rust says `Connection refused (os error 111)`.
pub(super) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

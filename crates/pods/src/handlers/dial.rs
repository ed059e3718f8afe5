//! Connections to containers. What goes wrong is said in Go's words: people search for those.
//!
//! Unlike upstream's, these sockets do not linger: closing one that lingers may hold up its thread for a second.

use std::io;

use tokio::net::{TcpStream, lookup_host};

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Connects to the first address that takes the connection. No host means this machine. Has no deadline of its own.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let addresses =
        lookup_host((host, port)).await.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
    let mut error = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(refused) => error = format!("dial tcp {address}: connect: {}", in_words(&refused)),
        }
    }
    Err(error)
}

/// `connection refused`, where Rust says `Connection refused (os error 111)`.
pub(super) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

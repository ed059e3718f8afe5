//! A runtime's streaming server: one connection at a time, and a test says what becomes of it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::kubelet::{read_head, soon};

pub const SPDY: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                        X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

pub struct Runtime {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Runtime {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self { listener, address }
    }

    pub fn url(&self, kind: &str) -> String {
        format!("http://{}/{kind}/token", self.address)
    }

    /// The next request's head, unanswered.
    pub async fn request(&self) -> (String, TcpStream) {
        let (mut stream, _) = soon(self.listener.accept()).await.expect("a connection");
        (read_head(&mut stream).await, stream)
    }

    /// The next connection, answered.
    pub async fn answer(&self, answer: &str) -> (String, TcpStream) {
        let (head, mut stream) = self.request().await;
        stream.write_all(answer.as_bytes()).await.expect("an answer");
        (head, stream)
    }
}

/// Reads so many bytes.
pub async fn take(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    soon(stream.read_exact(&mut bytes)).await.expect("bytes");
    bytes
}

/// Everything until the end, whichever it is.
pub async fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    while let Ok(count @ 1..) = soon(stream.read(&mut block)).await {
        bytes.extend_from_slice(&block[..count]);
    }
    bytes
}

//! A way to the server that can go dead: bytes go in and never come out, and nobody says so.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub struct Relay {
    pub address: SocketAddr,
    dead: Arc<AtomicBool>,
}

impl Relay {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let dead = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&dead);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.expect("the server");
                // Those that come after a death have a way of their own.
                let died_before = flag.load(Ordering::SeqCst);
                let flag = if died_before { Arc::default() } else { Arc::clone(&flag) };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pump(from_client, to_server, Arc::clone(&flag)));
                tokio::spawn(pump(from_server, to_client, flag));
            }
        });
        Self { address, dead }
    }

    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, dead: Arc<AtomicBool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !dead.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    if dead.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

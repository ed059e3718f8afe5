//! A runtime's streaming server, as far as tests of the way there need one.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use crablet_cri::Streams;
use crablet_server::{ContainerName, Containers, KnownPod, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A runtime whose streaming server notes what it is sent, and takes any upgrade.
pub struct Runtime {
    address: String,
}

impl Runtime {
    pub async fn start() -> (Arc<Self>, Arc<Mutex<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}/exec/abc", listener.local_addr().expect("an address"));
        let seen = Arc::<Mutex<String>>::default();
        let noted = seen.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head_from(&mut stream).await;
                *noted.lock().expect("a lock") = head;
                let answer =
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
                // Until the client goes.
                tokio::spawn(
                    async move { while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} },
                );
            }
        });
        (Arc::new(Self { address }), seen)
    }
}

#[async_trait]
impl Containers for Runtime {
    fn pod(&self, _: &str, _: &str) -> Option<KnownPod> {
        Some(KnownPod { uid: "u1".to_owned(), containers: vec!["app".to_owned()] })
    }

    async fn exec(&self, _: &ContainerName, _: &[String], _: Streams) -> Result<String, Refusal> {
        Ok(self.address.clone())
    }

    async fn attach(&self, _: &ContainerName, _: Streams) -> Result<String, Refusal> {
        Ok(self.address.clone())
    }

    async fn port_forward(&self, _: &str, _: &str, _: &[u16]) -> Result<String, Refusal> {
        Ok(self.address.clone())
    }

    async fn run(&self, _: &ContainerName, _: &[String]) -> Result<Bytes, Refusal> {
        Ok(Bytes::new())
    }

    async fn checkpoint(&self, _: &ContainerName, _: i64) -> Result<String, Refusal> {
        Err(Refusal::Failed("no".to_owned()))
    }

    async fn running_pods_json(&self) -> Result<Bytes, Refusal> {
        Ok(Bytes::from("{}"))
    }
}

/// All up to an empty line, or to the end.
pub async fn head_from(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or_default() == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

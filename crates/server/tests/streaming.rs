//! Exec through the whole main port: TLS, authorisation, and the runtime's streaming server behind it.

mod common;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use common::port::{Port, SOON, settings};
use crablet_cri::Streams;
use crablet_server::{ContainerName, Containers, KnownPod, KubeletServerPorts, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Everything is at one address.
struct At(String);

#[async_trait]
impl Containers for At {
    fn pod(&self, _: &str, _: &str) -> Option<KnownPod> {
        Some(KnownPod { uid: "u1".to_owned(), containers: vec!["app".to_owned()] })
    }

    async fn exec(&self, _: &ContainerName, _: &[String], _: Streams) -> Result<String, Refusal> {
        Ok(self.0.clone())
    }

    async fn attach(&self, _: &ContainerName, _: Streams) -> Result<String, Refusal> {
        Ok(self.0.clone())
    }

    async fn port_forward(&self, _: &str, _: &str, _: &[u16]) -> Result<String, Refusal> {
        Ok(self.0.clone())
    }

    async fn run(&self, _: &ContainerName, _: &[String]) -> Result<Bytes, Refusal> {
        Err(Refusal::Failed("not asked for here".to_owned()))
    }

    async fn checkpoint(&self, _: &ContainerName, _: i64) -> Result<String, Refusal> {
        Err(Refusal::Failed("not asked for here".to_owned()))
    }

    async fn running_pods_json(&self) -> Result<Bytes, Refusal> {
        Err(Refusal::Failed("not asked for here".to_owned()))
    }
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(SOON, stream.read_u8()).await.expect("a timely byte");
        head.push(byte.expect("a byte"));
    }
    String::from_utf8(head).expect("UTF-8")
}

#[tokio::test]
async fn bytes_go_through_tls_both_ways_and_end_together() {
    let runtime = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/exec/token", runtime.local_addr().expect("an address"));
    let port = Port::start_around(settings(), |ports| KubeletServerPorts {
        containers: Arc::new(At(address)),
        ..ports
    })
    .await;
    port.cluster.allow("kube-apiserver create proxy");
    port.cluster.allow("kube-apiserver get proxy");
    let pair = port.authority.client("kube-apiserver", &[]);

    let mut client = port.connect(Some(&pair), "http/1.1").await.expect("a connection");
    let request = "POST /exec/default/web/app?output=1 HTTP/1.1\r\nHost: node-1\r\nConnection: Upgrade\r\n\
                   Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
    client.write_all(request.as_bytes()).await.expect("a request");
    let accepting = tokio::time::timeout(SOON, runtime.accept());
    let (mut server, _) = accepting.await.expect("a timely connection").expect("a connection");
    let heard = head(&mut server).await.to_lowercase();
    assert!(heard.contains("x-forwarded-for: 127.0.0.1\r\n"), "{heard}");
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    server.write_all(answer.as_bytes()).await.expect("an answer");
    assert!(head(&mut client).await.starts_with("HTTP/1.1 101 "));

    client.write_all(b"there").await.expect("bytes");
    client.flush().await.expect("bytes");
    let mut there = [0; 5];
    tokio::time::timeout(SOON, server.read_exact(&mut there)).await.expect("timely bytes").expect("bytes");
    assert_eq!(&there, b"there");
    server.write_all(b"and back").await.expect("bytes");
    drop(server);
    let mut back = Vec::new();
    tokio::time::timeout(SOON, client.read_to_end(&mut back))
        .await
        .expect("a timely end")
        .expect("a clean end");
    assert_eq!(back, b"and back");

    // HTTP/2 has no upgrades.
    let answers = port.ask_h2(&pair, &["/exec/default/web/app?output=1"]).await;
    assert_eq!(answers, [(500, "Upgrade request required\n".to_owned())]);
}

//! The routes, served over plain HTTP/1.1, and clients of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use crablet_cri::Streams;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use crate::ports::{ContainerName, Containers, KnownPod, Refusal};
use crate::streaming::Service;
use crate::streaming::sessions::Sessions;

pub const SOON: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("something timely")
}

/// One pod, `default/web` with the UID `u1`, and one answer to everything.
pub struct Node {
    pub address: Result<String, Refusal>,
    pub asked: Mutex<Vec<String>>,
}

impl Node {
    fn answer(&self, asked: String) -> Result<String, Refusal> {
        self.asked.lock().expect("a lock").push(asked);
        self.address.clone()
    }
}

fn named(streams: Streams) -> String {
    let Streams { stdin, stdout, stderr, tty } = streams;
    let names = [(stdin, "stdin"), (stdout, "stdout"), (stderr, "stderr"), (tty, "tty")];
    names.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect::<Vec<_>>().join("+")
}

#[async_trait]
impl Containers for Node {
    fn pod(&self, namespace: &str, name: &str) -> Option<KnownPod> {
        let known = KnownPod { uid: "u1".to_owned(), containers: vec!["app".to_owned()] };
        ((namespace, name) == ("default", "web")).then_some(known)
    }

    async fn exec(
        &self,
        name: &ContainerName,
        command: &[String],
        streams: Streams,
    ) -> Result<String, Refusal> {
        self.answer(format!("exec {} {:?} {command:?} {}", name.container, name.uid, named(streams)))
    }

    async fn attach(&self, name: &ContainerName, streams: Streams) -> Result<String, Refusal> {
        self.answer(format!("attach {} {:?} {}", name.container, name.uid, named(streams)))
    }

    async fn port_forward(&self, namespace: &str, pod: &str, ports: &[u16]) -> Result<String, Refusal> {
        self.answer(format!("forward {namespace}/{pod} {ports:?}"))
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

/// Served until it is dropped.
pub struct Kubelet {
    pub address: SocketAddr,
    pub node: Arc<Node>,
    sessions: Arc<Sessions>,
    serving: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Kubelet {
    /// `address` is what the runtime answers.
    pub async fn start(address: impl Into<String>) -> Self {
        Self::with(Ok(address.into()), true).await
    }

    pub async fn with(address: Result<String, Refusal>, websockets: bool) -> Self {
        let node = Arc::new(Node { address, asked: Mutex::default() });
        let sessions = Arc::new(Sessions::new());
        let service = Service { containers: node.clone(), websockets, sessions: sessions.clone() };
        let router = service.routes();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                let router = router.clone().layer(axum::Extension(ConnectInfo(peer)));
                let service = TowerToHyperService::new(router);
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(serving.with_upgrades());
            }
        });
        Self { address, node, sessions, serving }
    }

    /// Sends a head, and returns the answer's head and what the connection is then.
    pub async fn ask(&self, head: &str) -> (String, TcpStream) {
        self.ask_with(head, b"").await
    }

    /// `early` follows the head without waiting for an answer.
    pub async fn ask_with(&self, head: &str, early: &[u8]) -> (String, TcpStream) {
        let mut stream = soon(TcpStream::connect(self.address)).await.expect("a connection");
        let head = head.trim().lines().map(str::trim).collect::<Vec<_>>().join("\r\n");
        let request = [head.as_bytes(), b"\r\nHost: node-1\r\n\r\n", early].concat();
        stream.write_all(&request).await.expect("a request");
        (read_head(&mut stream).await, stream)
    }

    /// The answer's head and body.
    pub async fn refusal(&self, head: &str) -> (String, String) {
        let (head, mut stream) = self.ask(&format!("{head}\nX-Test: 1")).await;
        let length = header(&head, "content-length").expect("a length").parse().expect("a number");
        let mut body = vec![0; length];
        soon(stream.read_exact(&mut body)).await.expect("a body");
        (head, String::from_utf8(body).expect("UTF-8"))
    }

    pub async fn websocket(&self, target: &str, protocol: &str) -> WebSocketStream<TcpStream> {
        let mut request = format!("ws://{}{target}", self.address).into_client_request().expect("a request");
        let protocol = HeaderValue::from_str(protocol).expect("a protocol");
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        let stream = soon(TcpStream::connect(self.address)).await.expect("a connection");
        let opening = tokio_tungstenite::client_async(request, stream);
        soon(opening).await.expect("a websocket").0
    }

    /// Until no session is left.
    pub async fn rests(&self) {
        soon(self.sessions.rest()).await;
    }

    pub fn asked(&self) -> Vec<String> {
        self.node.asked.lock().expect("a lock").clone()
    }
}

/// Byte by byte, so that nothing of what follows is taken.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = soon(stream.read_u8()).await;
        head.push(read.unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&head))));
    }
    String::from_utf8(head).expect("UTF-8")
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    headers.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

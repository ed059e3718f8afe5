//! Both ends: an API server whose requests the test answers by hand, and clients of both protocols.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crablet_proxy::{ApiOptions, ApiRecord, ApiServer, Identity, Recorder, Rules, Salt};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::pki::{Pki, der};

/// For what happens at once unless something is broken.
pub const SOON: Duration = Duration::from_secs(30);
pub const PROTOCOLS: [&str; 2] = ["http/1.1", "h2"];
pub const NODE: &str = "system:node:a";

type AnyBody = UnsyncBoxBody<Bytes, std::io::Error>;

pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it happens soon")
}

/// A proxy, an API server behind it, and everyone's certificates.
pub struct Bed {
    pub pki: Pki,
    pub node: Identity,
    pub front_proxy: Identity,
    pub upstream: Upstream,
    pub address: SocketAddr,
    pub rules: Rules,
    pub record: Recorder<ApiRecord>,
    pub folder: tempfile::TempDir,
    proxy: JoinHandle<()>,
}

impl Bed {
    pub async fn start() -> Bed {
        Bed::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut ApiOptions)) -> Bed {
        let pki = Pki::new();
        let front_proxy = pki.front_proxies.client("front-proxy", "proxies");
        let upstream = Upstream::start(&pki, &front_proxy, "127.0.0.1:0").await;
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(&pki, front_proxy.clone(), &upstream, folder.path());
        change(&mut options);
        let server = ApiServer::bind(&options).unwrap();
        let (address, rules, record) = (server.address(), server.rules(), server.record());
        let node = pki.cluster.client(NODE, "system:nodes");
        let proxy = tokio::spawn(server.run());
        Bed { pki, node, front_proxy, upstream, address, rules, record, folder, proxy }
    }

    /// A client with the node's certificate.
    pub async fn client(&self, protocol: &str) -> Client {
        self.connect(protocol, Some(&self.node)).await.unwrap()
    }

    pub async fn connect(&self, protocol: &str, identity: Option<&Identity>) -> std::io::Result<Client> {
        Client::connect(&self.pki, self.address, protocol, identity).await
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The line that ends the request that came last.
    pub async fn last_line(&self) -> Arc<ApiRecord> {
        let call = self.record.last_call();
        soon(self.record.next(|line| line.call == call && line.outcome.is_some())).await
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.proxy.abort();
    }
}

pub fn options(
    pki: &Pki,
    front_proxy: Identity,
    upstream: &Upstream,
    folder: &std::path::Path,
) -> ApiOptions {
    let ca = pki.cluster.pem.as_bytes();
    let mut options = ApiOptions::new(
        pki.cluster.server(),
        ca,
        upstream.address.to_string(),
        ca,
        front_proxy,
        folder.join("log"),
    );
    options.salt = Salt::new("test");
    options
}

/// A request as the API server got it.
pub struct Seen {
    pub head: request::Parts,
    pub body: Bytes,
    /// Whether it came with the front proxy's certificate. Nobody else has one here.
    pub from_front_proxy: bool,
    answer: oneshot::Sender<Response<AnyBody>>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.head.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    pub fn json(self, body: &Value) {
        self.answer(StatusCode::OK, "application/json", body.to_string());
    }

    pub fn answer(self, status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
        let response = Response::builder().status(status).header("content-type", content_type);
        let _ = self.answer.send(response.header("x-from", "upstream").body(body).unwrap());
    }

    /// Begins an answer that the test goes on with.
    pub fn stream(self, content_type: &'static str) -> Stream {
        let (pieces, receiver) = mpsc::channel(1);
        let body = Pieces(receiver).boxed_unsync();
        let response = Response::builder().header("content-type", content_type).body(body).unwrap();
        let _ = self.answer.send(response);
        Stream(pieces)
    }
}

pub struct Stream(mpsc::Sender<std::io::Result<Bytes>>);

impl Stream {
    pub async fn send(&self, piece: impl Into<Bytes>) {
        soon(self.0.send(Ok(piece.into()))).await.unwrap();
    }

    /// Nobody listens any more.
    pub async fn gone(&self) {
        soon(self.0.closed()).await;
    }
}

struct Pieces(mpsc::Receiver<std::io::Result<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

pub struct Upstream {
    pub address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Seen>,
    server: JoinHandle<()>,
}

impl Upstream {
    pub async fn start(pki: &Pki, front_proxy: &Identity, address: &str) -> Upstream {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(pki.upstream_config()));
        let front_proxy = der(front_proxy);
        let (tell, requests) = mpsc::unbounded_channel();
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (acceptor, front_proxy, tell) = (acceptor.clone(), front_proxy.clone(), tell.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let peer = stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone());
                    assert!(peer.is_none() || peer.as_ref() == Some(&front_proxy));
                    let service = service_fn(|request| serve(request, peer.is_some(), tell.clone()));
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        Upstream { address, requests, server }
    }

    pub async fn next(&mut self) -> Seen {
        soon(self.requests.recv()).await.unwrap()
    }

    pub fn nothing_came(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }

    pub async fn die(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }
}

async fn serve(
    mut request: Request<Incoming>,
    from_front_proxy: bool,
    tell: mpsc::UnboundedSender<Seen>,
) -> Result<Response<AnyBody>, hyper::Error> {
    if request.headers().contains_key("upgrade") {
        return Ok(upgrade(&mut request));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (answer, answered) = oneshot::channel();
    let _ = tell.send(Seen { head, body, from_front_proxy, answer });
    Ok(answered.await.unwrap_or_default())
}

/// Speaks another protocol: says everything back in upper case.
fn upgrade(request: &mut Request<Incoming>) -> Response<AnyBody> {
    let protocol = request.headers()["upgrade"].clone();
    let user = request.headers().get("x-remote-user").cloned();
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..length].to_ascii_uppercase()).await.unwrap();
        }
    });
    let mut response = Response::new(AnyBody::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert("upgrade", protocol);
    response.headers_mut().extend(user.map(|user| (http::HeaderName::from_static("x-seen-user"), user)));
    response
}

/// One connection to the proxy.
pub struct Client {
    sender: Sender,
    pub connection: JoinHandle<()>,
}

#[derive(Clone)]
enum Sender {
    One(Arc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub async fn connect(
        pki: &Pki,
        address: SocketAddr,
        protocol: &str,
        identity: Option<&Identity>,
    ) -> std::io::Result<Client> {
        let connector = TlsConnector::from(Arc::new(pki.client_config(protocol, identity)));
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let stream = TokioIo::new(stream);
        if protocol == "h2" {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            let connection = tokio::spawn(async move { drop(connection.await) });
            Ok(Client { sender: Sender::Two(sender), connection })
        } else {
            let (sender, connection) = http1::handshake(stream).await.unwrap();
            let connection = tokio::spawn(async move { drop(connection.with_upgrades().await) });
            Ok(Client { sender: Sender::One(Arc::new(tokio::sync::Mutex::new(sender))), connection })
        }
    }

    /// Sends it; the answer comes whenever it comes.
    pub fn send(&self, request: Request<Full<Bytes>>) -> JoinHandle<hyper::Result<Response<Incoming>>> {
        let mut sender = self.sender.clone();
        tokio::spawn(async move {
            match &mut sender {
                Sender::One(sender) => {
                    let mut sender = sender.lock().await;
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        })
    }

    pub fn get(&self, path: &str) -> JoinHandle<hyper::Result<Response<Incoming>>> {
        self.send(request("GET", path, &[], ""))
    }

    /// The connection was closed by the other side.
    pub async fn closed(self) {
        soon(self.connection).await.unwrap();
    }
}

pub fn request(
    method: &str,
    path: &str,
    headers: &[(&'static str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.header("host", "localhost").body(Full::new(body.into())).unwrap()
}

/// A whole answer.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub async fn reply(sent: JoinHandle<hyper::Result<Response<Incoming>>>) -> hyper::Result<Reply> {
    let (head, body) = soon(sent).await.unwrap()?.into_parts();
    let body = soon(body.collect()).await?.to_bytes();
    Ok(Reply { status: head.status, headers: head.headers, body })
}

/// The next piece of a body.
pub async fn piece(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    let frame = soon(body.frame()).await?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}

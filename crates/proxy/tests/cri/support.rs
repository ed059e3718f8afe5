//! Both ends: a runtime whose calls the test answers by hand, and a client that shows every byte.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use crablet_proxy::{CriOptions, CriRecord, CriServer, Recorder, Rules, Salt};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};

pub const VERSION: &str = "/runtime.v1.RuntimeService/Version";
pub const RUN: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
pub const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";
/// For what happens at once unless something is broken.
pub const SOON: Duration = Duration::from_secs(30);

/// A proxy, a runtime behind it, and a folder for both.
pub struct Bed {
    pub folder: tempfile::TempDir,
    pub runtime: FakeRuntime,
    pub rules: Rules,
    pub record: Recorder<CriRecord>,
    proxy: JoinHandle<()>,
}

impl Bed {
    pub fn start() -> Bed {
        Bed::start_with(|_| {})
    }

    pub fn start_with(change: impl FnOnce(&mut CriOptions)) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let runtime = FakeRuntime::start(folder.path());
        let mut options = CriOptions::new(
            folder.path().join("proxy.sock"),
            folder.path().join("runtime.sock"),
            folder.path().join("log"),
        );
        options.salt = Salt::new("test");
        change(&mut options);
        let server = CriServer::bind(&options).unwrap();
        let (rules, record) = (server.rules(), server.record());
        Bed { folder, runtime, rules, record, proxy: tokio::spawn(server.run()) }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("proxy.sock")
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.socket()).await
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub fn stop_proxy(&self) {
        self.proxy.abort();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.proxy.abort();
    }
}

/// Waits for what must happen; the deadline only ends a broken test.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it happens soon")
}

pub fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

pub fn headers<const N: usize>(pairs: [(&'static str, &'static str); N]) -> HeaderMap {
    pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

pub struct FakeRuntime {
    calls: mpsc::UnboundedReceiver<Seen>,
    server: JoinHandle<()>,
    closing: Arc<Notify>,
    path: PathBuf,
}

/// A call as the runtime got it.
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub respond: SendResponse<Bytes>,
}

impl FakeRuntime {
    pub fn start(folder: &Path) -> FakeRuntime {
        let path = folder.join("runtime.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (tell, calls) = mpsc::unbounded_channel();
        let closing = Arc::new(Notify::new());
        let server = tokio::spawn(accept(listener, tell, Arc::clone(&closing)));
        FakeRuntime { calls, server, closing, path }
    }

    pub async fn next(&mut self) -> Seen {
        soon(self.calls.recv()).await.unwrap()
    }

    /// Without a deadline, for a test whose clock jumps.
    pub async fn next_whenever(&mut self) -> Seen {
        self.calls.recv().await.unwrap()
    }

    pub fn nothing_came(&mut self) -> bool {
        self.calls.try_recv().is_err()
    }

    /// As after kill -9: connections break, the socket's file stays.
    pub async fn die(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }

    /// Ends as a well-behaved program does: what is under way ends first.
    pub async fn close(&mut self) {
        self.closing.notify_waiters();
        soon(&mut self.server).await.unwrap();
    }

    pub fn start_again(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
        *self = FakeRuntime::start(self.path.parent().unwrap());
    }
}

async fn accept(listener: UnixListener, tell: mpsc::UnboundedSender<Seen>, closing: Arc<Notify>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            () = closing.notified() => break,
        };
        connections.spawn(serve(stream, tell.clone(), Arc::clone(&closing)));
    }
    connections.join_all().await;
}

async fn serve(stream: UnixStream, tell: mpsc::UnboundedSender<Seen>, closing: Arc<Notify>) {
    let mut builder = h2::server::Builder::new();
    let windows = builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let Ok(mut connection) = windows.handshake::<_, Bytes>(stream).await else { return };
    let mut readers = JoinSet::new();
    let mut closing = std::pin::pin!(closing.notified());
    let mut open = true;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = &mut closing, if open => {
                open = false;
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let tell = tell.clone();
        readers.spawn(async move {
            let (parts, mut body) = request.into_parts();
            let Ok(body) = read_all(&mut body).await else { return };
            let path = parts.uri.path().to_owned();
            let _ = tell.send(Seen { path, headers: parts.headers, body, respond });
        });
    }
}

async fn read_all(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await.transpose()? {
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

fn ok() -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = headers([("content-type", "application/grpc"), ("x-from", "runtime")]);
    response
}

impl Seen {
    pub async fn answer(mut self, message: &[u8]) {
        let mut stream = self.begin();
        stream.send(message).await;
        stream.end();
    }

    pub fn begin(&mut self) -> Answering {
        Answering(self.respond.send_response(ok(), false).unwrap())
    }

    /// Only headers, which say what went wrong.
    pub fn fail(mut self, trailers: HeaderMap) {
        let mut response = ok();
        response.headers_mut().extend(trailers);
        self.respond.send_response(response, true).unwrap();
    }

    pub async fn cancelled(&mut self) -> Reason {
        soon(poll_fn(|cx| self.respond.poll_reset(cx))).await.unwrap()
    }
}

pub struct Answering(pub SendStream<Bytes>);

impl Answering {
    pub async fn send(&mut self, message: &[u8]) {
        send_all(&mut self.0, frame(message)).await;
    }

    pub async fn cancelled(&mut self) -> Reason {
        soon(poll_fn(|cx| self.0.poll_reset(cx))).await.unwrap()
    }

    pub fn end(mut self) {
        self.0.send_trailers(headers([("grpc-status", "0"), ("x-trailer", "kept")])).unwrap();
    }
}

async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let granted = soon(poll_fn(|cx| stream.poll_capacity(cx))).await.unwrap().unwrap();
        let part = bytes.split_to(granted.min(bytes.len()));
        stream.send_data(part, false).unwrap();
    }
}

/// One connection to the proxy.
#[derive(Clone)]
pub struct Client {
    requests: h2::client::SendRequest<Bytes>,
    connection: Arc<JoinHandle<()>>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl Reply {
    /// gRPC's code, wherever it is.
    pub fn code(&self) -> &str {
        self.trailers.get("grpc-status").or(self.headers.get("grpc-status")).unwrap().to_str().unwrap()
    }
}

/// A call that was sent.
pub struct Sent {
    response: Option<h2::client::ResponseFuture>,
    body: Option<RecvStream>,
    stream: SendStream<Bytes>,
}

impl Client {
    pub async fn connect(path: &Path) -> Client {
        let stream = UnixStream::connect(path).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let windows = builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
        let (requests, connection) = windows.handshake(stream).await.unwrap();
        let connection = Arc::new(tokio::spawn(async move { drop(connection.await) }));
        Client { requests, connection }
    }

    pub async fn send(&self, path: &str, message: &[u8]) -> Sent {
        self.send_with(path, frame(message), HeaderMap::new()).await
    }

    pub async fn send_with(&self, path: &str, body: Bytes, headers: HeaderMap) -> Sent {
        let mut request = Request::post(format!("http://localhost{path}")).body(()).unwrap();
        *request.headers_mut() = headers;
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        let mut requests = soon(self.requests.clone().ready()).await.unwrap();
        let (response, mut stream) = requests.send_request(request, false).unwrap();
        send_all(&mut stream, body).await;
        stream.send_data(Bytes::new(), true).unwrap();
        Sent { response: Some(response), body: None, stream }
    }

    pub async fn call(&self, path: &str, message: &[u8]) -> Reply {
        self.send(path, message).await.reply().await.unwrap()
    }

    /// The process dies: its connection is closed, whatever is under way.
    pub fn die(self) {
        self.connection.abort();
    }

    /// The connection was closed by the other side.
    pub async fn closed(&self) {
        soon(async {
            while !self.connection.is_finished() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

impl Sent {
    async fn body(&mut self) -> Result<&mut RecvStream, h2::Error> {
        if let Some(response) = self.response.take() {
            self.body = Some(soon(response).await?.into_body());
        }
        Ok(self.body.as_mut().unwrap())
    }

    /// The next piece of the answer. The tests' small messages come in one.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let body = self.body().await?;
        soon(body.data()).await.transpose()
    }

    pub async fn reply(mut self) -> Result<Reply, h2::Error> {
        let (head, mut body) = soon(self.response.take().unwrap()).await?.into_parts();
        let bytes = soon(read_all(&mut body)).await?;
        let trailers = soon(body.trailers()).await?.unwrap_or_default();
        Ok(Reply { headers: head.headers, body: bytes, trailers })
    }

    pub fn cancel(mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }
}

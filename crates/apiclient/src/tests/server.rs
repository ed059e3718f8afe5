//! An API server of which a test decides every answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::pki::Pki;

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    /// Counted from one.
    pub connection: usize,
    /// The client's certificate.
    pub certificate: Option<Vec<u8>>,
    pub http2: bool,
}

pub enum Answer {
    Body(u16, &'static [(&'static str, &'static str)], String),
    /// Lines, until the sender is dropped.
    Watch(mpsc::Receiver<String>),
}

impl Answer {
    pub fn ok(text: &str) -> Self {
        Self::Body(200, &[], text.to_owned())
    }
}

type Handler = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    open: watch::Receiver<usize>,
    accepted: Arc<AtomicUsize>,
    drop: Arc<Notify>,
}

#[derive(Clone)]
struct Context {
    handler: Handler,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// With TLS, and HTTP/2 with at most a hundred streams, as API servers have it.
    pub async fn http2(pki: &Pki, handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Some(TlsAcceptor::from(pki.server_config(&["h2", "http/1.1"]))), Arc::new(handler)).await
    }

    pub async fn http1(pki: &Pki, handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Some(TlsAcceptor::from(pki.server_config(&["http/1.1"]))), Arc::new(handler)).await
    }

    pub async fn plain(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(None, Arc::new(handler)).await
    }

    async fn start(tls: Option<TlsAcceptor>, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (count, open) = watch::channel(0);
        let accepted = Arc::new(AtomicUsize::new(0));
        let context = Context { handler, seen: Arc::clone(&seen) };
        let drop = Arc::new(Notify::new());
        let (counter, dropper) = (Arc::clone(&accepted), Arc::clone(&drop));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
                let (context, tls, count) = (context.clone(), tls.clone(), count.clone());
                let drop = Arc::clone(&dropper);
                tokio::spawn(async move {
                    count.send_modify(|open| *open += 1);
                    tokio::select! {
                        biased;
                        () = drop.notified() => {}
                        () = serve(context, tls, stream, number) => {}
                    }
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, seen, open, accepted, drop }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("seen").clone()
    }

    /// How many connections there ever were.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// As a server that is restarted.
    pub fn drop_connections(&self) {
        self.drop.notify_waiters();
    }

    pub async fn open_connections(&self, wanted: usize) {
        let mut open = self.open.clone();
        super::soon("connections", open.wait_for(|open| *open == wanted)).await.expect("a server");
    }
}

async fn serve(context: Context, tls: Option<TlsAcceptor>, stream: TcpStream, connection: usize) {
    let Some(tls) = tls else {
        return talk(context, TokioIo::new(stream), connection, None, false).await;
    };
    let Ok(stream) = tls.accept(stream).await else { return };
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().map(|chain| chain[0].to_vec());
    let speaks_http2 = session.alpn_protocol() == Some(b"h2");
    talk(context, TokioIo::new(stream), connection, certificate, speaks_http2).await;
}

async fn talk<T>(context: Context, io: T, connection: usize, certificate: Option<Vec<u8>>, speaks_http2: bool)
where
    T: Read + Write + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (context, certificate) = (context.clone(), certificate.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let seen = Seen {
                method: head.method,
                path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
                connection,
                certificate,
                http2: speaks_http2,
            };
            context.seen.lock().expect("seen").push(seen.clone());
            Ok::<_, Infallible>(respond((context.handler)(&seen)))
        }
    });
    // How it ended is the client's business.
    if speaks_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(100);
        let _ = builder.serve_connection(io, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}

fn respond(answer: Answer) -> Response<BoxBody<Bytes, Infallible>> {
    match answer {
        Answer::Body(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            response.body(BodyExt::boxed(Full::new(Bytes::from(body)))).expect("a response")
        }
        Answer::Watch(lines) => {
            let frames = stream::unfold(lines, |mut lines| async {
                let line = lines.recv().await?;
                Some((Ok(Frame::data(Bytes::from(line))), lines))
            });
            Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
    }
}

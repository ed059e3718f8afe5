//! Listens, and serves each connection in the protocol that the client chose.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::uri::Authority;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::entry::{ApiRecord, Book};
use super::forward::{self, Connection, Context, HttpClient};
use super::identity::Certified;
use super::{ApiOptions, Identity, tls};
use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::rules::Rules;

/// How long a client may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long an unused connection to the API server is kept; shorter than the server keeps it.
const IDLE: Duration = Duration::from_secs(30);
/// As the API server's own, so that clients open as many connections as they would there.
const MAX_CONCURRENT_STREAMS: u32 = 100;
/// As Go's servers allow.
const MAX_HEADERS: u32 = 1 << 20;
/// After a failure to accept: out of file descriptors, most likely, so others have to end first.
const PAUSE: Duration = Duration::from_millis(50);

/// The proxy for those who have a runtime: it listens from [`ApiServer::bind`] on, and works while [`ApiServer::run`] is
/// polled. Dropping it, or the future, closes every connection.
pub struct ApiServer {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    context: Arc<Context>,
}

impl ApiServer {
    /// Must be called within a tokio runtime.
    pub fn bind(options: &ApiOptions) -> Result<ApiServer> {
        let recorder = Recorder::open(&options.log, options.kept)?;
        let server_config = tls::server_config(options)?;
        let upstream: Authority =
            options.upstream.parse().map_err(|_| Error::Upstream(options.upstream.clone()))?;
        let context = Context {
            rules: Rules::default(),
            book: Arc::new(Book { recorder, salt: options.salt.clone(), body_limit: options.body_limit }),
            upstream,
            front_proxy: client(options, Some(&options.front_proxy))?,
            nobody: client(options, None)?,
            tunnels: Mutex::new(JoinSet::new()),
        };
        let failed = |source| Error::Listen { address: options.listen.to_string(), source };
        let listener = std::net::TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let acceptor = TlsAcceptor::from(Arc::new(server_config));
        Ok(ApiServer { listener, address, acceptor, context: Arc::new(context) })
    }

    pub fn rules(&self) -> Rules {
        self.context.rules.clone()
    }

    pub fn record(&self) -> Recorder<ApiRecord> {
        self.context.book.recorder.clone()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves for as long as it is polled.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            // Both can be dropped at any time.
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((client, _)) => {
                        let (context, acceptor) = (Arc::clone(&self.context), self.acceptor.clone());
                        connections.spawn(serve(context, acceptor, client));
                    }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
            }
        }
    }
}

/// One connection per request under way, to the API server.
fn client(options: &ApiOptions, identity: Option<&Identity>) -> Result<HttpClient> {
    let config = tls::client_config(&options.upstream_ca, identity)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .wrap_connector(connector);
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    Ok(builder.build(connector))
}

async fn serve(context: Arc<Context>, acceptor: TlsAcceptor, client: TcpStream) {
    let _ = client.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(client)).await else { return };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let certified = match certificate.map(|certificate| Certified::of(certificate)) {
        // A certificate that was verified and cannot be read: speaking for nobody would be wrong.
        Some(None) => return,
        certified => certified.flatten(),
    };
    let speaks_http2 = session.alpn_protocol() == Some(b"h2");
    let connection = Arc::new(Connection { certified, cut: Notify::new() });
    let service = {
        let connection = Arc::clone(&connection);
        service_fn(move |request| {
            Box::pin(forward::handle(Arc::clone(&context), Arc::clone(&connection), request))
        })
    };
    let stream = TokioIo::new(stream);
    let serving = async {
        // How a connection ended, its requests have recorded.
        if speaks_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_CONCURRENT_STREAMS);
            builder.max_header_list_size(MAX_HEADERS);
            let _ = builder.serve_connection(stream, service).await;
        } else {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new());
            let _ = builder.serve_connection(stream, service).with_upgrades().await;
        }
    };
    tokio::select! {
        biased;
        () = connection.cut.notified() => {}
        () = serving => {}
    }
}

//! A request to the runtime's streaming server, and its answer.

use std::time::Duration;

use axum::http::response::Parts;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const DIAL: Duration = Duration::from_secs(10);
/// From the request to the end of the answer, or of its head where the answer is a connection.
const ANSWER: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Of an answer that is no connection.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Where the runtime wants to be asked. Good for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    target: PathAndQuery,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, String> {
        // An address without a scheme is HTTP, as upstream has it.
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let bad = |why: &str| format!("the container runtime's streaming address is bad: {why}");
        let uri: Uri = whole.parse().map_err(|error| bad(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            scheme => {
                let scheme = scheme.unwrap_or_default();
                return Err(bad(&format!("unknown scheme: {scheme}: only `http` is supported")));
            }
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let target = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { host, port: uri.port_u16().unwrap_or(80), target })
    }

    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

pub enum Answer {
    /// The connection is ours. `early` came with the head.
    Switched {
        head: Parts,
        stream: TcpStream,
        early: Bytes,
    },
    Other {
        head: Parts,
        body: Bytes,
    },
}

/// Without a body. `headers` are sent as they are, with a `Host` if there is none.
pub async fn ask(address: &Address, method: Method, headers: HeaderMap) -> Result<Answer, String> {
    let stream = dial(address).await?;
    match tokio::time::timeout(ANSWER, exchange(stream, address, method, headers)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("the container runtime did not answer within {} s", ANSWER.as_secs())),
    }
}

async fn dial(address: &Address) -> Result<TcpStream, String> {
    let failed = |why: String| format!("error dialing backend: dial tcp {}: {why}", address.authority());
    let dialing = TcpStream::connect((address.host.as_str(), address.port));
    let stream = match tokio::time::timeout(DIAL, dialing).await {
        Ok(dialled) => dialled.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed("i/o timeout".to_owned())),
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn exchange(
    stream: TcpStream,
    address: &Address,
    method: Method,
    headers: HeaderMap,
) -> Result<Answer, String> {
    let failed = |error: hyper::Error| format!("error sending request: {error}");
    let handshake = http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    let request = request(address, method, headers)?;
    let asking = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            switched(response).await
        } else {
            other(response).await
        }
    };
    let driving = async {
        // What went wrong is what `asking` gets.
        let _ = connection.with_upgrades().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        answer = asking => answer,
        () = driving => Err("error sending request: the connection ended".to_owned()),
    }
}

fn request(address: &Address, method: Method, headers: HeaderMap) -> Result<Request<Empty<Bytes>>, String> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(address.target.clone());
    *request.headers_mut() = headers;
    if !request.headers().contains_key(header::HOST) {
        let host = HeaderValue::from_str(&address.authority());
        let host = host.map_err(|_| "the container runtime's streaming address is bad".to_owned())?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

async fn switched(response: hyper::Response<hyper::body::Incoming>) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let mut response = hyper::Response::from_parts(head, body);
    let upgraded = hyper::upgrade::on(&mut response).await;
    let upgraded = upgraded.map_err(|error| format!("error sending request: {error}"))?;
    let parts = upgraded.downcast::<TokioIo<TcpStream>>();
    let parts = parts.map_err(|_| "error sending request: no connection after the upgrade".to_owned())?;
    let (head, _) = response.into_parts();
    Ok(Answer::Switched { head, stream: parts.io.into_inner(), early: parts.read_buf })
}

async fn other(response: hyper::Response<hyper::body::Incoming>) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let body = body.map_err(|error| format!("unable to read error from server response: {error}"))?;
    Ok(Answer::Other { head, body: body.to_bytes() })
}

//! One request and its answer, on a connection of their own.

use std::future::poll_fn;
use std::pin::{Pin, pin};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Fuse;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, LOCATION};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::super::dial::{Ends, dial};
use super::target::Target;
use super::tls::{self, TlsError};
use super::{HttpAnswer, HttpError, MOST_OF_AN_ANSWER, Purpose};

/// What moves the bytes of a connection. Whoever waits for something of it moves it along; dropped, it closes.
type Driver = Fuse<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// The head of an answer. The body is still on its way.
pub(super) struct Reply {
    response: Response<Incoming>,
    driver: Driver,
    ends: Ends,
}

pub(super) async fn send(
    target: &Target,
    host: Option<&str>,
    headers: HeaderMap,
    purpose: Purpose,
) -> Result<Reply, HttpError> {
    let failed = |message: String| HttpError::before_answer(&target.url(), &message);
    let stream = dial(&target.host, target.port()).await.map_err(failed)?;
    let ends = Ends::of(&stream);
    let host = host.map_or_else(|| target.authority(), str::to_owned);
    if !target.tls {
        return over_http1(TokioIo::new(stream), ends, target, &host, headers).await.map_err(failed);
    }
    let stream = match tls::handshake(&target.host, stream, &ends, purpose).await {
        Ok(stream) => stream,
        Err(TlsError::PlainHttp) => {
            let error = failed("http: server gave HTTP response to HTTPS client".to_owned());
            return Err(HttpError { plain_http_answer: true, ..error });
        }
        Err(TlsError::Other(message)) => return Err(failed(message)),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
    let stream = TokioIo::new(stream);
    let reply = if is_http2 {
        over_http2(stream, ends, target, &host, headers).await
    } else {
        over_http1(stream, ends, target, &host, headers).await
    };
    reply.map_err(failed)
}

async fn over_http1(
    stream: impl Read + Write + Unpin + Send + 'static,
    ends: Ends,
    target: &Target,
    host: &str,
    mut headers: HeaderMap,
) -> Result<Reply, String> {
    let host = HeaderValue::try_from(host).map_err(|_| "http: invalid Host header".to_owned())?;
    headers.insert(HOST, host);
    let uri = Uri::try_from(target.sent()).map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .handshake(stream)
        .await
        .map_err(|error| in_go(&error, &ends))?;
    let mut driver = drive(connection.map(drop));
    let response = driven(&mut driver, sender.send_request(request(uri, headers))).await;
    Ok(Reply { response: response.map_err(|error| in_go(&error, &ends))?, driver, ends })
}

async fn over_http2(
    stream: impl Read + Write + Unpin + Send + 'static,
    ends: Ends,
    target: &Target,
    host: &str,
    mut headers: HeaderMap,
) -> Result<Reply, String> {
    headers.remove(CONNECTION);
    let uri = Uri::try_from(format!("https://{host}{}", target.sent())).map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| in_go(&error, &ends))?;
    let mut driver = drive(connection.map(drop));
    let response = driven(&mut driver, sender.send_request(request(uri, headers))).await;
    Ok(Reply { response: response.map_err(|error| in_go(&error, &ends))?, driver, ends })
}

fn request(uri: Uri, headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

fn drive(connection: impl Future<Output = ()> + Send + 'static) -> Driver {
    let boxed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(connection);
    boxed.fuse()
}

/// Waits for `work`, and moves the connection along meanwhile.
async fn driven<T>(driver: &mut Driver, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _ = driver.poll_unpin(context);
        work.as_mut().poll(context)
    })
    .await
}

impl Reply {
    /// Where the answer sends us.
    pub fn redirect(&self) -> Option<&str> {
        if !matches!(self.response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = str::from_utf8(self.response.headers().get(LOCATION)?.as_bytes()).ok();
        location.filter(|location| !location.is_empty())
    }

    /// The answer with as much of its body as anybody looks at.
    pub async fn read(self) -> Result<HttpAnswer, HttpError> {
        let Self { response, mut driver, ends } = self;
        let status = response.status().as_u16();
        let mut incoming = response.into_body();
        let mut body = Vec::new();
        while body.len() < MOST_OF_AN_ANSWER {
            let Some(frame) = driven(&mut driver, incoming.frame()).await else { break };
            let frame = frame.map_err(|error| HttpError::in_body(in_go(&error, &ends)))?;
            if let Some(data) = frame.data_ref() {
                let room = MOST_OF_AN_ANSWER - body.len();
                body.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        Ok(HttpAnswer { status, body })
    }

    /// Waits for the end of the body, whatever it is. As upstream, not for one that says that it is long.
    pub async fn discard(self) {
        if self.response.body().size_hint().lower() <= MOST_OF_AN_ANSWER as u64 {
            let _ = self.read().await;
        }
    }
}

/// What Go says when a connection does not give what it should.
fn in_go(error: &hyper::Error, ends: &Ends) -> String {
    use std::error::Error;
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    if let Some(io) = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        return ends.broke(io);
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}");
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

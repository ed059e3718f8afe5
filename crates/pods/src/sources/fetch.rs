//! [`Fetch`] over a real network.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::url::{Fetch, FetchError, Fetched};

/// As many as Go's client follows.
const MAX_REDIRECTS: usize = 10;
/// Where Debian keeps the bundle. `SSL_CERT_FILE` names another.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

type HttpsClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// Plain HTTP, and HTTPS against the system's trusted certificates.
#[derive(Default)]
pub struct HyperFetch {
    /// Each made when first needed: the certificates take memory.
    plain: OnceLock<HttpsClient>,
    tls: OnceLock<Result<HttpsClient, FetchError>>,
}

impl HyperFetch {
    fn client(&self, uri: &Uri) -> Result<&HttpsClient, FetchError> {
        if uri.scheme_str() == Some("https") {
            self.tls.get_or_init(|| Ok(client(system_roots()?))).as_ref().map_err(Clone::clone)
        } else {
            Ok(self.plain.get_or_init(|| client(RootCertStore::empty())))
        }
    }

    async fn follow(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Fetched, FetchError> {
        let mut uri = parse(url)?;
        let mut headers = header_map(headers)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&uri, &headers).await?;
            let Some(target) = redirect(&response) else { return read(response, limit).await };
            let next = resolve(&uri, target)?;
            if next.host() != uri.host() {
                // As Go's client does: secrets are for the host that they were meant for.
                headers.remove(AUTHORIZATION);
                headers.remove(COOKIE);
            }
            uri = next;
        }
        Err(FetchError::Redirects(MAX_REDIRECTS))
    }

    async fn send(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        self.client(uri)?.request(request).await.map_err(|error| FetchError::Connection(with_causes(&error)))
    }
}

#[async_trait]
impl Fetch for HyperFetch {
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
        timeout: Duration,
    ) -> Result<Fetched, FetchError> {
        match tokio::time::timeout(timeout, self.follow(url, headers, limit)).await {
            Ok(result) => result,
            Err(_) => Err(FetchError::Timeout(timeout)),
        }
    }
}

fn client(roots: RootCertStore) -> HttpsClient {
    let provider = rustls::crypto::ring::default_provider();
    let tls = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks the versions that rustls finds safe")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    // A request every twenty seconds is not worth a connection that may have died meanwhile.
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

fn system_roots() -> Result<RootCertStore, FetchError> {
    let path = std::env::var_os("SSL_CERT_FILE").unwrap_or_else(|| SYSTEM_ROOTS.into());
    let path = Path::new(&path);
    let fail = |why: String| FetchError::NoRoots(format!("`{}`: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    // One certificate that cannot be read does not spoil the others.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    if roots.is_empty() { Err(fail("holds no certificate".to_owned())) } else { Ok(roots) }
}

fn parse(url: &str) -> Result<Uri, FetchError> {
    let uri: Uri = url.parse().map_err(|error| FetchError::BadUrl(format!("{error}")))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        _ => Err(FetchError::BadUrl("it must begin with `http://` or `https://` and name a host".to_owned())),
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, FetchError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || FetchError::BadHeader(name.clone());
        map.append(
            HeaderName::try_from(name).map_err(|_| bad())?,
            HeaderValue::try_from(value).map_err(|_| bad())?,
        );
    }
    // The URL decides, as with Go's client.
    map.remove(HOST);
    map.entry(USER_AGENT).or_insert(HeaderValue::from_static("crablet"));
    Ok(map)
}

fn redirect<B>(response: &Response<B>) -> Option<&str> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    response.headers().get(LOCATION)?.to_str().ok().filter(|target| !target.is_empty())
}

/// A redirect's target: a URL, `//host/path`, `/path`, `?query`, or a path next to the current one.
fn resolve(base: &Uri, target: &str) -> Result<Uri, FetchError> {
    let target = target.split('#').next().unwrap_or_default();
    let scheme = base.scheme_str().unwrap_or("http");
    if let Some(rest) = target.strip_prefix("//") {
        return parse(&format!("{scheme}://{rest}"));
    }
    if target.split(['/', '?']).next().is_some_and(|first| first.contains(':')) {
        return parse(target);
    }
    let authority = base.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let path = base.path();
    let path = if target.starts_with('/') {
        target.to_owned()
    } else if target.is_empty() {
        base.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()
    } else if target.starts_with('?') {
        format!("{path}{target}")
    } else {
        format!("{}/{target}", path.rsplit_once('/').map_or("", |(folder, _)| folder))
    };
    parse(&format!("{scheme}://{authority}{path}"))
}

async fn read(response: Response<Incoming>, limit: usize) -> Result<Fetched, FetchError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            FetchError::TooLarge(limit)
        } else {
            FetchError::Connection(with_causes(&*error))
        }
    })?;
    let status_line = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let status_line = status_line.trim_end().to_owned();
    Ok(Fetched { status: status.as_u16(), status_line, body: body.to_bytes().to_vec() })
}

/// hyper says "client error (Connect)" and keeps what happened in the causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;

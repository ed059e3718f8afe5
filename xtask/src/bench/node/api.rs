//! The bench's own API client: HTTP/1.1 with TLS, as the administrator. Small, so that it takes little from the machine.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use crablet_testbed::cluster::Cluster;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

/// No request of the bench takes that long, however busy the machine is.
const DEADLINE: Duration = Duration::from_secs(60);

/// Cloning is cheap.
#[derive(Clone)]
pub struct Api {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    server: String,
}

impl Api {
    pub fn new(cluster: &Cluster) -> Result<Api> {
        let pki = cluster.pki();
        let identity = pki.cluster.client("bench", Some("system:masters"))?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pki.cluster.certificate().as_bytes()) {
            roots.add(certificate?)?;
        }
        let chain =
            CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Api { client: Client::builder(TokioExecutor::new()).build(connector), server: cluster.server() })
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(object)).await
    }

    /// What is gone already is fine.
    pub async fn delete(&self, path: &str, options: Option<&Value>) -> Result<()> {
        let (status, body) = self.whole(Method::DELETE, path, options).await?;
        if status.is_success() || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        bail!("`DELETE {path}`: {status}: {}", String::from_utf8_lossy(&body));
    }

    /// A body that goes on for as long as the API server likes.
    pub async fn stream(&self, path: &str) -> Result<Incoming> {
        let response = tokio::time::timeout(DEADLINE, self.send(Method::GET, path, None)).await??;
        if !response.status().is_success() {
            bail!("`GET {path}`: {}", response.status());
        }
        Ok(response.into_body())
    }

    async fn ask(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Value> {
        let (status, body) = self.whole(method.clone(), path, object).await?;
        if !status.is_success() {
            bail!("`{method} {path}`: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    async fn whole(&self, method: Method, path: &str, object: Option<&Value>) -> Result<(StatusCode, Bytes)> {
        let answer = async {
            let response = self.send(method, path, object).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(DEADLINE, answer).await.with_context(|| format!("`{path}`: no answer"))?
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        object: Option<&Value>,
    ) -> Result<hyper::Response<Incoming>> {
        let body = object.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        Ok(self.client.request(request).await?)
    }
}

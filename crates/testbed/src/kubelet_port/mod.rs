//! The kubelet's own port as a client with a certificate sees it, without an API server in between: plain requests, and
//! sessions (`exec`, `attach`) over each protocol that a kubelet speaks. Asynchronous, so that hundreds of sessions cost
//! a test or a bench little. Written for tests alone and with nothing of Crablet's in it: it is a judge.
//!
//! | module | what it holds |
//! |---|---|
//! | `wanted` | what a client asks for |
//! | [`session`] | one session, whatever it is spoken in |
//! | `spdy`, `websocket` | the two wires |

pub mod session;
mod spdy;
mod wanted;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use self::session::{Outcome, Session};
pub use self::wanted::{Protocol, Wanted};
use crate::cluster::{API_PORT, Cluster};

/// Where kubelets listen.
pub const PORT: u16 = 10250;
/// An answer's head comes within this time, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who talks to which kubelet. Cloning is cheap.
#[derive(Clone)]
pub struct KubeletPort {
    address: SocketAddr,
    connector: TlsConnector,
}

impl KubeletPort {
    /// The cluster's node, asked by someone who may do everything.
    pub fn of(cluster: &Cluster) -> Result<KubeletPort> {
        KubeletPort::asked_by(cluster, "friend", "system:masters")
    }

    /// The same, asked by anybody of that name and group.
    pub fn asked_by(cluster: &Cluster, user: &str, group: &str) -> Result<KubeletPort> {
        KubeletPort::dialling(cluster, PORT, user, group)
    }

    /// The API server instead, which asks the kubelet on its part.
    pub fn behind_api_server(cluster: &Cluster) -> Result<KubeletPort> {
        KubeletPort::dialling(cluster, API_PORT, "friend", "system:masters")
    }

    fn dialling(cluster: &Cluster, port: u16, user: &str, group: &str) -> Result<KubeletPort> {
        let pki = cluster.pki();
        let identity = pki.cluster.client(user, Some(group))?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.cluster.certificate().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
            )?;
        let address = (cluster.network().gateway(), port).into();
        Ok(KubeletPort { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The body of a successful `GET`, as it comes.
    pub async fn get(&self, path: &str) -> Result<Incoming> {
        let response = self.send(request(Method::GET, path, &[])?).await?;
        if !response.status().is_success() {
            return Err(refused(path, response).await);
        }
        Ok(response.into_body())
    }

    /// Begins a session; a refusal is an error that shows the answer.
    pub async fn session(&self, protocol: Protocol, path: &str, wanted: &Wanted) -> Result<Session> {
        let (method, headers) = protocol.upgrade();
        let response = self.send(request(method, &wanted.path(path), &headers)?).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused(path, response).await);
        }
        let chosen = response.headers().get(protocol.header()).and_then(|value| value.to_str().ok());
        if chosen != Some(protocol.name()) {
            bail!("asked for `{}`, the kubelet chose {chosen:?}", protocol.name());
        }
        let stream = TokioIo::new(hyper::upgrade::on(response).await?);
        Session::begin(protocol, stream, wanted).await
    }

    /// One request on a connection of its own.
    async fn send(&self, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>> {
        let answer = async {
            let socket = TcpStream::connect(self.address).await?;
            socket.set_nodelay(true)?;
            let name = ServerName::from(self.address.ip());
            let stream = self.connector.connect(name, socket).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // Ends with the connection, which ends when nobody reads the answer or talks in the session any more.
            tokio::spawn(connection.with_upgrades());
            anyhow::Ok(sender.send_request(request).await?)
        };
        tokio::time::timeout(PATIENCE, answer).await.context("no answer from the kubelet")?
    }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Request<Empty<Bytes>>> {
    let mut request = Request::builder().method(method).uri(path).header("host", "node");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Ok(request.body(Empty::new())?)
}

async fn refused(path: &str, response: Response<Incoming>) -> anyhow::Error {
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    anyhow::anyhow!("`{path}`: {status}: {}", String::from_utf8_lossy(&body).trim())
}

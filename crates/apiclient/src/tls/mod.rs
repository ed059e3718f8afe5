//! rustls with ring, as the kubeconfig wants it.
//!
//! | module | what it is |
//! |---|---|
//! | `identity` | the client certificate, which may change while the agent runs |
//! | `trust` | whom to believe to be the API server |

mod identity;
mod trust;

use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{CertificateError as Refusal, ClientConfig};

pub use identity::{CertificateError, ClientIdentity};
use trust::{AcceptAny, Trust};

use crate::kubeconfig::{Cluster, Kubeconfig, KubeconfigError};

/// All that a handshake needs.
pub struct Tls {
    /// None if whoever answers is believed.
    trust: Option<Trust>,
    server_name: ServerName<'static>,
    identity: Arc<ClientIdentity>,
}

impl Tls {
    /// `host` is the name in the server's address, which the certificate has to bear unless the kubeconfig says another.
    pub fn new(cluster: &Cluster, host: &str, identity: Arc<ClientIdentity>) -> Result<Self, String> {
        let (field, name) = match &cluster.tls_server_name {
            Some(name) => ("tls-server-name", name.as_str()),
            None => ("server", host),
        };
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("clusters: {field}: {name:?} is no name that a certificate can bear"))?;
        let trust = (!cluster.insecure).then(|| Trust::new(cluster.authority.clone())).transpose()?;
        Ok(Self { trust, server_name, identity })
    }

    pub fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    pub fn config(&self) -> Result<ClientConfig, String> {
        self.identity.reload();
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.trust {
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider))),
            Some(trust) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(trust.roots(), provider).build();
                builder.with_webpki_verifier(verifier.map_err(|error| error.to_string())?)
            }
        };
        let mut config = builder.with_client_cert_resolver(Arc::<ClientIdentity>::clone(&self.identity));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would go on under the certificate that it began with.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Whether what the kubeconfig says about certificates can be used.
pub fn check(kubeconfig: &Kubeconfig) -> Result<(), KubeconfigError> {
    if !kubeconfig.cluster.insecure && !kubeconfig.cluster.server.starts_with("http://") {
        trust::roots(kubeconfig.cluster.authority.as_ref()).map_err(|why| kubeconfig.error(why))?;
    }
    ClientIdentity::of(&kubeconfig.user).map(drop).map_err(|error| kubeconfig.error(error.to_string()))
}

/// A failed handshake in Go's words where they are known to users.
pub fn words(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(refusal) = error else { return format!("tls: {error}") };
    let why = match refusal {
        // Authorities of the same name, as those of two clusters usually are, differ in the signature only.
        Refusal::UnknownIssuer | Refusal::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        Refusal::Expired
        | Refusal::ExpiredContext { .. }
        | Refusal::NotValidYet
        | Refusal::NotValidYetContext { .. } => {
            format!("certificate has expired or is not yet valid: {refusal}")
        }
        Refusal::NotValidForName | Refusal::NotValidForNameContext { .. } => {
            format!("certificate is not valid for the name of the server: {refusal}")
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

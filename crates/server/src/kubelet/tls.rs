//! TLS as the configuration wants it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use tokio::sync::watch;
use tracing::warn;

use crate::auth::client_ca::ClientCa;

pub(super) const H2: &[u8] = b"h2";

#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// `tlsMinVersion`: `VersionTLS12` or `VersionTLS13`; empty for the former.
    pub min_version: String,
    /// `tlsCipherSuites`, in Go's names; empty for all that are safe.
    pub cipher_suites: Vec<String>,
}

/// What a handshake needs.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    certificate: Arc<dyn ResolvesServerCert>,
    client_ca: Option<ClientCa>,
    config: Arc<ServerConfig>,
}

impl Tls {
    pub fn new(
        settings: &TlsSettings,
        provider: Arc<CryptoProvider>,
        certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
        client_ca: Option<ClientCa>,
    ) -> Result<Self, String> {
        let versions = versions(&settings.min_version)?;
        let certificate = Arc::new(Newest { certificate, said: AtomicBool::new(false) });
        let config = config(&provider, &versions, certificate.clone(), client_ca.as_ref())?;
        Ok(Self { provider, versions, certificate, client_ca, config })
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Until clients should be told of other authorities. Cancel-safe.
    pub async fn client_ca_changed(&mut self) {
        match &mut self.client_ca {
            Some(ca) => ca.changed().await,
            None => std::future::pending().await,
        }
    }

    pub fn rebuild(&mut self) {
        match config(&self.provider, &self.versions, self.certificate.clone(), self.client_ca.as_ref()) {
            Ok(config) => self.config = config,
            Err(why) => warn!(err = %why, "Cannot tell clients of the new client CA bundle"),
        }
    }
}

fn config(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    certificate: Arc<dyn ResolvesServerCert>,
    client_ca: Option<&ClientCa>,
) -> Result<Arc<ServerConfig>, String> {
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| format!("tlsMinVersion, tlsCipherSuites: {error}"))?;
    let builder = match client_ca {
        Some(ca) => {
            let hints = ca.verifier().root_hint_subjects().to_vec();
            builder.with_client_cert_verifier(Arc::new(AnyClient { hints, provider: provider.clone() }))
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    // Sessions would be kept in memory for clients that may never return.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// ring, with the cipher suites of TLS 1.2 that were asked for. Those of 1.3 are not chosen, as in Go.
pub(super) fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, String> {
    let mut provider = rustls::crypto::ring::default_provider();
    if !settings.cipher_suites.is_empty() {
        let mut wanted = Vec::new();
        for name in &settings.cipher_suites {
            // Go's old names of these two suites end earlier.
            let full =
                if name.ends_with("_CHACHA20_POLY1305") { format!("{name}_SHA256") } else { name.clone() };
            match provider.cipher_suites.iter().find(|suite| go_name(suite) == full) {
                Some(suite) => wanted.push(suite.suite()),
                None if is_weak(name) => {
                    warn!(suite = %name, "The cipher suite of tlsCipherSuites is too weak to be served");
                }
                None => {
                    return Err(format!(
                        "tlsCipherSuites: Cipher suite {name} not supported or doesn't exist"
                    ));
                }
            }
        }
        let is_tls13 = |suite: &SupportedCipherSuite| matches!(suite, SupportedCipherSuite::Tls13(_));
        provider.cipher_suites.retain(|suite| is_tls13(suite) || wanted.contains(&suite.suite()));
    }
    Ok(Arc::new(provider))
}

/// rustls writes `TLS13_AES_…` where Go and the registry write `TLS_AES_…`.
fn go_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// Suites that Go knows and rustls will never offer.
fn is_weak(name: &str) -> bool {
    name.starts_with("TLS_RSA_WITH_")
        || name.starts_with("TLS_ECDHE_") && ["_CBC_", "_RC4_"].iter().any(|part| name.contains(part))
}

fn versions(min: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    use rustls::version::{TLS12, TLS13};
    match min {
        "" | "VersionTLS12" => Ok(vec![&TLS13, &TLS12]),
        "VersionTLS13" => Ok(vec![&TLS13]),
        "VersionTLS10" | "VersionTLS11" => {
            warn!(version = %min, "The version of tlsMinVersion is too weak to be served, the least is VersionTLS12");
            Ok(vec![&TLS13, &TLS12])
        }
        other => {
            Err(format!("tlsMinVersion: unknown tls version {other:?}, give VersionTLS12 or VersionTLS13"))
        }
    }
}

/// The certificate of the moment. Without one a handshake ends with an alert, which is how upstream says it too.
struct Newest {
    certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    said: AtomicBool,
}

impl fmt::Debug for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Newest")
    }
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificate = self.certificate.borrow().clone();
        if certificate.is_none() && !self.said.swap(true, Ordering::Relaxed) {
            warn!("no serving certificate available for the kubelet");
        }
        certificate
    }
}

/// Takes any client certificate whose key the client has. [`crate::auth`] judges it.
#[derive(Debug)]
struct AnyClient {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> Result<Vec<String>, String> {
        let cipher_suites = names.iter().map(|name| (*name).to_owned()).collect();
        let provider = provider(&TlsSettings { min_version: String::new(), cipher_suites })?;
        let tls12 = |name: &String| name.contains("_WITH_");
        Ok(provider.cipher_suites.iter().map(go_name).filter(tls12).collect())
    }

    #[test]
    fn cipher_suites_have_gos_names() {
        assert_eq!(suites(&[]).expect("all").len(), 6);
        assert_eq!(
            suites(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"]),
            Ok(vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()])
        );
        assert_eq!(
            suites(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]),
            Ok(vec!["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()])
        );
        assert_eq!(suites(&["TLS_RSA_WITH_AES_128_CBC_SHA"]), Ok(vec![]), "weak ones are left out");
        assert!(suites(&["TLS_MADE_UP"]).is_err_and(|why| why.contains("TLS_MADE_UP")));
        assert_eq!(versions("VersionTLS13").map(|versions| versions.len()), Ok(1));
        assert!(versions("1.2").is_err());
    }
}

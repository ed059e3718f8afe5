//! Whom to believe to be the API server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::kubeconfig::Material;

/// Where Debian keeps the bundle.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Certificate authorities. Those in a file of the kubeconfig are read for each handshake, so that new ones are seen.
pub struct Trust {
    authority: Option<Material>,
    known: Mutex<Arc<RootCertStore>>,
}

impl Trust {
    pub fn new(authority: Option<Material>) -> Result<Self, String> {
        let known = Mutex::new(Arc::new(roots(authority.as_ref())?));
        Ok(Self { authority, known })
    }

    /// What was read last stays if the file cannot be read.
    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Material::File(_)) = &self.authority {
            match roots(self.authority.as_ref()) {
                Ok(roots) => *known = Arc::new(roots),
                Err(error) => {
                    tracing::warn!(
                        error,
                        "Failed to read the certificate authority again, going on with the one before"
                    );
                }
            }
        }
        Arc::clone(&known)
    }
}

/// The kubeconfig's authority, or the system's.
pub fn roots(authority: Option<&Material>) -> Result<RootCertStore, String> {
    let system = Material::File(PathBuf::from(SYSTEM_ROOTS));
    let (what, material) = match authority {
        Some(material) => ("certificate-authority", material),
        None => ("the system's certificate authorities", &system),
    };
    let place = material.place();
    let pem = material.read().map_err(|error| format!("unable to read {what} {place}: {error}"))?;
    let mut roots = RootCertStore::empty();
    // One certificate that cannot be read does not spoil the others.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    if roots.is_empty() {
        return Err(format!("{what} {place}: there is no certificate in it"));
    }
    Ok(roots)
}

/// For `insecure-skip-tls-verify`: whoever answers is believed, as long as it holds the key of the certificate it shows.
#[derive(Debug)]
pub struct AcceptAny(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

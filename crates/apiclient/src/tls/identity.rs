//! The client certificate.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::provider;
use crate::kubeconfig::{ClientCertificate, User};

/// Why a client certificate cannot be used. Never shows the key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("unable to read {what} {place}: {source}")]
    Read { what: &'static str, place: String, source: std::io::Error },
    #[error("the client certificate: there is no certificate in it")]
    NoCertificate,
    #[error("the client certificate: there is no private key with it")]
    NoKey,
    #[error("the client certificate: {0}")]
    Unusable(rustls::Error),
}

/// Shown in handshakes. Whoever replaces it closes the connections that were made with the former.
pub struct ClientIdentity {
    state: Mutex<State>,
}

struct State {
    current: Option<Arc<CertifiedKey>>,
    /// Where it comes from, until somebody gives another.
    source: Option<ClientCertificate>,
}

impl ClientIdentity {
    pub fn of(user: &User) -> Result<Self, CertificateError> {
        let current = user.certificate.as_ref().map(load).transpose()?;
        Ok(Self { state: Mutex::new(State { current, source: user.certificate.clone() }) })
    }

    /// Whether it is another than before.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<bool, CertificateError> {
        let new = certified(certificate, key)?;
        let mut state = self.state();
        let same = state.current.as_ref().is_some_and(|current| current.cert == new.cert);
        *state = State { current: Some(new), source: None };
        Ok(!same)
    }

    /// Reads the files again. What was read last stays if they cannot be.
    pub fn reload(&self) {
        let mut state = self.state();
        let Some(source) = &state.source else { return };
        match load(source) {
            Ok(current) => state.current = Some(current),
            Err(error) => {
                tracing::warn!(%error, "Failed to read the client certificate again, going on with the one before");
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(pair: &ClientCertificate) -> Result<Arc<CertifiedKey>, CertificateError> {
    let read = |what, material: &crate::kubeconfig::Material| {
        material.read().map_err(|source| CertificateError::Read { what, place: material.place(), source })
    };
    certified(&read("client-certificate", &pair.certificate)?, &read("client-key", &pair.key)?)
}

fn certified(certificate: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(CertificateError::NoCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
    let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(CertificateError::Unusable)?;
    Ok(Arc::new(certified))
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.state().current.clone()
    }

    fn has_certs(&self) -> bool {
        self.state().current.is_some()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity")
    }
}

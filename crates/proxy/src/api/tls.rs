//! TLS on both sides: rustls with ring.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::ApiOptions;
use crate::error::{Error, Result};

/// A certificate (with what stands between it and its authority) and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Asks clients for a certificate, and lets those in that have none.
pub fn server_config(options: &ApiOptions) -> Result<ServerConfig> {
    let roots = Arc::new(roots("the certificate authority for clients", &options.client_ca)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated();
    let verifier = verifier.build().map_err(Error::ClientAuthority)?;
    let failed = |source| Error::Tls { side: "clients'", source };
    let (certificates, key) = parts("the serving certificate", &options.serving)?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_single_cert(certificates, key).map_err(failed)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// To the API server, as the front proxy or as nobody.
pub fn client_config(authority: &[u8], identity: Option<&Identity>) -> Result<ClientConfig> {
    let failed = |source| Error::Tls { side: "API server's", source };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    let builder = builder.with_root_certificates(roots("the API server's certificate authority", authority)?);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (certificates, key) = parts("the front proxy's certificate", identity)?;
            builder.with_client_auth_cert(certificates, key).map_err(failed)
        }
    }
}

fn roots(what: &'static str, pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots.add(certificate).map_err(|error| Error::Pem { what, why: error.to_string() })?;
    }
    Ok(roots)
}

fn parts(
    what: &'static str,
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificates = certificates(what, &identity.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key);
    Ok((certificates, key.map_err(|error| Error::Pem { what, why: format!("its key: {error}") })?))
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(Error::Pem { what, why: "there is no certificate in it".to_owned() })
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Error::Pem { what, why: error.to_string() }),
    }
}

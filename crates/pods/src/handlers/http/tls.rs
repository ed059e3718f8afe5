//! TLS to containers: nobody has told us whom to believe, so whoever answers is believed.

use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, InvalidMessage, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::dial::Ends;
use super::Purpose;

pub(super) const HTTP2: &[u8] = b"h2";

pub(super) enum TlsError {
    /// It speaks HTTP, and no TLS.
    PlainHttp,
    Other(String),
}

pub(super) async fn handshake(
    host: &str,
    stream: TcpStream,
    ends: &Ends,
    purpose: Purpose,
) -> Result<TlsStream<TcpStream>, TlsError> {
    let mut config = config().map_err(TlsError::Other)?;
    if purpose == Purpose::Lifecycle {
        // As upstream's, which speaks HTTP/1.1 without saying so.
        Arc::make_mut(&mut config).alpn_protocols.clear();
    }
    // What is no name is not sent; an address never is.
    let nobody = ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
    let name = ServerName::try_from(host.to_owned()).unwrap_or(nobody);
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        let tls = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => TlsError::PlainHttp,
            Some(error) => TlsError::Other(format!("tls: {error}")),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => TlsError::Other("EOF".to_owned()),
            None => TlsError::Other(ends.broke(&error)),
        }
    })
}

/// Made when the first container is asked over TLS.
fn config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(BelieveAnybody))
                .with_no_client_auth();
            config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
            Ok(Arc::new(config))
        })
        .clone()
}

/// Signatures are not looked at either, so that certificates of any kind will do.
#[derive(Debug)]
struct BelieveAnybody;

impl ServerCertVerifier for BelieveAnybody {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme as S;
        vec![
            S::ECDSA_NISTP256_SHA256,
            S::ECDSA_NISTP384_SHA384,
            S::ECDSA_NISTP521_SHA512,
            S::ED25519,
            S::RSA_PSS_SHA256,
            S::RSA_PSS_SHA384,
            S::RSA_PSS_SHA512,
            S::RSA_PKCS1_SHA256,
            S::RSA_PKCS1_SHA384,
            S::RSA_PKCS1_SHA512,
        ]
    }
}

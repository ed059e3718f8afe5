//! A certificate chain with the key of its first certificate.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Longer than any chain that a signer gives; what is longer is not a certificate file.
pub(crate) const LONGEST_FILE: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error("no certificate in it")]
    NoCertificate,
    #[error("no private key in it")]
    NoKey,
    #[error("a certificate in it is not an X.509 certificate: {0}")]
    Certificate(String),
    #[error("the private key is of no supported kind: {0}")]
    Key(String),
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// What the first certificate of a chain says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub common_name: String,
    pub organizations: BTreeSet<String>,
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

/// Has no `Debug`: it holds a private key.
#[derive(Clone)]
pub(crate) struct Pair {
    /// Chain first, then the key, each as PEM: what the store keeps in one file.
    pub pem: Vec<u8>,
    pub certified: Arc<CertifiedKey>,
    pub leaf: Leaf,
    /// When the first certificate of the chain ends, whichever it is.
    pub chain_ends: Timestamp,
}

impl Pair {
    /// Of a PEM text with the chain and one with the key, which may be the same.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let mut chain = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(certificates) {
            chain.push(certificate.map_err(|error| PairError::Certificate(error.to_string()))?);
        }
        let first = chain.first().ok_or(PairError::NoCertificate)?;
        let leaf = leaf(first)?;
        let mut chain_ends = leaf.not_after;
        for certificate in &chain {
            chain_ends = chain_ends.min(parse(certificate)?.1);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PairError::NoKey)?;
        let signing = any_supported_type(&key).map_err(|error| PairError::Key(error.to_string()))?;

        let mut pem = String::new();
        for certificate in &chain {
            pem.push_str(&encode("CERTIFICATE", certificate));
        }
        let label = match &key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        pem.push_str(&encode(label, key.secret_der()));

        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Ok(()) => {}
            Err(rustls::Error::InconsistentKeys(_)) => return Err(PairError::Mismatch),
            Err(error) => return Err(PairError::Certificate(error.to_string())),
        }
        Ok(Self { pem: pem.into_bytes(), certified: Arc::new(certified), leaf, chain_ends })
    }

    pub fn expired(&self, now: Timestamp) -> bool {
        now > self.leaf.not_after
    }
}

fn parse(der: &[u8]) -> Result<(Timestamp, Timestamp), PairError> {
    let certificate = certificate(der)?;
    let time = |seconds: i64| {
        Timestamp::from_second(seconds).map_err(|error| PairError::Certificate(error.to_string()))
    };
    let validity = certificate.validity();
    Ok((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

fn certificate(der: &[u8]) -> Result<X509Certificate<'_>, PairError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| PairError::Certificate(error.to_string()))?;
    Ok(certificate)
}

fn leaf(der: &[u8]) -> Result<Leaf, PairError> {
    let (not_before, not_after) = parse(der)?;
    let certificate = certificate(der)?;
    let subject = certificate.subject();
    let mut leaf = Leaf {
        not_before,
        not_after,
        common_name: String::new(),
        organizations: BTreeSet::new(),
        dns: BTreeSet::new(),
        addresses: BTreeSet::new(),
    };
    if let Some(name) = subject.iter_common_name().next() {
        leaf.common_name = name.as_str().unwrap_or_default().to_owned();
    }
    leaf.organizations =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
    let alternatives =
        certificate.subject_alternative_name().map_err(|error| PairError::Certificate(error.to_string()))?;
    for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => drop(leaf.dns.insert((*name).to_owned())),
            GeneralName::IPAddress(bytes) => leaf.addresses.extend(address(bytes)),
            _ => {}
        }
    }
    Ok(leaf)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::from(octets).to_canonical()))
        .ok()
}

/// PEM with lines of 64, as every tool reads it.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// A key to sign requests with: ECDSA on P-256, in the form that Crablet writes or in the one that upstream writes.
pub(crate) fn signing_key(pem: &[u8]) -> Option<KeyPair> {
    let pkcs8 = match PrivateKeyDer::from_pem_slice(pem).ok()? {
        PrivateKeyDer::Pkcs8(key) => key.secret_pkcs8_der().to_vec(),
        PrivateKeyDer::Sec1(key) => p256_envelope(key.secret_sec1_der())?,
        _ => return None,
    };
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &rcgen::PKCS_ECDSA_P256_SHA256)
        .ok()
}

/// A SEC1 key as PKCS #8: `SEQUENCE { 0, { ecPublicKey, prime256v1 }, OCTET STRING { key } }`. One of P-256 has about
/// 120 bytes; anything that does not fit into lengths of a byte is not one.
fn p256_envelope(sec1: &[u8]) -> Option<Vec<u8>> {
    const VERSION_AND_ALGORITHM: [u8; 24] = [
        0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
        0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    let content = |tag: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).ok()?;
        Some([&[tag, 0x81, length], bytes].concat())
    };
    // A length below 128 has one byte in DER; a key of P-256 lies on either side of that with and without its curve.
    let octets = if sec1.len() < 0x80 {
        [&[0x04, u8::try_from(sec1.len()).ok()?], sec1].concat()
    } else {
        content(0x04, sec1)?
    };
    content(0x30, &[&VERSION_AND_ALGORITHM[..], &octets].concat())
}

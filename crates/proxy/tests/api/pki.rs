//! A cluster's certificates: an authority for servers and clients, another for front proxies, and a stranger's.

use std::sync::Arc;

use crablet_proxy::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    pub fn server(&self) -> Identity {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, user: &str, group: &str) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, user);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Identity {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

pub fn der(identity: &Identity) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&identity.certificate).unwrap()
}

fn key(identity: &Identity) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(&identity.key).unwrap()
}

pub struct Pki {
    pub cluster: Authority,
    pub front_proxies: Authority,
    pub stranger: Authority,
}

impl Pki {
    pub fn new() -> Pki {
        let authority = |name: &str| Authority::new(name);
        Pki {
            cluster: authority("cluster"),
            front_proxies: authority("front proxies"),
            stranger: authority("stranger"),
        }
    }

    pub fn client_config(&self, alpn: &str, identity: Option<&Identity>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(self.cluster.roots());
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(vec![der(identity)], key(identity)).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config
    }

    /// As an API server's: believes front proxies, and lets others in without a certificate.
    pub fn upstream_config(&self) -> ServerConfig {
        let provider = Arc::new(default_provider());
        let roots = Arc::new(self.front_proxies.roots());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let identity = self.cluster.server();
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_client_cert_verifier(verifier);
        builder.with_single_cert(vec![der(&identity)], key(&identity)).unwrap()
    }
}

//! An API server, a disk and a clock in memory, and a controller that signs.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_apiserver::fake::{Effect, FakeApiServer, Where};
use crablet_apiserver::{ApiServer, Lane, WatchCall};
use crablet_certificates::store::{self, Store};
use crablet_certificates::{Bootstrap, Cluster};
use crablet_host::fake::{FakeFiles, SimClock};
use crablet_host::{Clock, Files};
use futures_util::StreamExt;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, PublicKeyData,
    SanType, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer;

pub const PKI: &str = "/var/lib/kubelet/pki";
pub const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
pub const NODE: &str = "worker-1";
const CSRS: &str = "certificatesigningrequests";

/// What the controller does with a request.
#[derive(Clone, Copy)]
pub enum Verdict {
    Sign {
        valid_for: Duration,
    },
    Deny,
    Fail,
    /// Nobody looks at it.
    Ignore,
}

pub struct World {
    pub api: Arc<FakeApiServer>,
    pub files: FakeFiles,
    pub clock: SimClock,
    pub tasks: JoinSet<()>,
    verdict: Arc<Mutex<Verdict>>,
}

impl World {
    /// Must be made inside a paused runtime.
    pub fn new(verdict: Verdict) -> Self {
        let clock = SimClock::starting_at("2026-05-04T03:02:01Z".parse().unwrap());
        let api = api(&clock);
        let verdict = Arc::new(Mutex::new(verdict));
        let mut tasks = JoinSet::new();
        tasks.spawn(control(Arc::clone(&api), clock.clone(), Arc::clone(&verdict)));
        Self { api, files: FakeFiles::new(fastrand::Rng::with_seed(1)), clock, tasks, verdict }
    }

    pub fn judge(&self, verdict: Verdict) {
        *self.verdict.lock().unwrap() = verdict;
    }

    pub fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.files.clone())
    }

    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    pub fn store(&self, prefix: &'static str) -> Store {
        Store::new(self.files(), self.clock(), PKI, prefix)
    }

    pub fn bootstrap(&self) -> Bootstrap {
        Bootstrap {
            api: Arc::clone(&self.api) as Arc<dyn ApiServer>,
            files: self.files(),
            clock: self.clock(),
            rng: fastrand::Rng::with_seed(2),
            node_name: NODE.to_owned(),
            folder: PKI.into(),
            kubeconfig: KUBECONFIG.into(),
            cluster: Cluster {
                server: "https://10.0.0.1:6443".to_owned(),
                certificate_authority: Some("/etc/kubernetes/pki/ca.crt".into()),
                ..Cluster::default()
            },
        }
    }

    /// A client pair in the store, as a bootstrap leaves it.
    pub async fn with_client_certificate(&self) {
        crablet_certificates::bootstrap::run(self.bootstrap()).await.expect("a bootstrap");
        assert_eq!(self.requests().len(), 1);
    }

    pub fn requests(&self) -> Vec<Value> {
        self.api.list(CSRS)
    }

    /// Waits, in virtual time, until there are so many requests.
    pub async fn until_requests(&self, count: usize) {
        until(|| self.requests().len() >= count).await;
    }

    pub fn delete_request(&self, name: &str) {
        assert!(self.api.delete(CSRS, "", name));
    }

    pub fn current_target(&self) -> String {
        let link = format!("{PKI}/{}-current.pem -> ", store::CLIENT);
        let paths = self.files.paths_below(PKI);
        paths.iter().find_map(|path| path.strip_prefix(&link)).expect("a current link").to_owned()
    }
}

/// Waits in virtual time for something that must come within a day.
pub async fn until(mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(24 * 60 * 60), waiting).await.expect("it comes within a day");
}

pub fn api(clock: &SimClock) -> Arc<FakeApiServer> {
    let clock = clock.clone();
    let api = FakeApiServer::new(Arc::new(move || clock.now()));
    api.fault(Where::path("/healthz"), Effect::Answer("ok".into()));
    api
}

/// What a request asks for, read as a signer reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub organizations: Vec<String>,
    pub common_names: Vec<String>,
    pub dns: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub key: Vec<u8>,
}

pub fn asked(csr: &Value) -> Asked {
    let pem = BASE64_STANDARD.decode(csr["spec"]["request"].as_str().expect("a request")).expect("base64");
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).expect("PEM");
    let (_, request) = X509CertificationRequest::from_der(&der).expect("DER");
    let info = &request.certification_request_info;
    assert_eq!(info.subject_pki.algorithm.algorithm, OID_KEY_TYPE_EC_PUBLIC_KEY);
    let curve = info.subject_pki.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
    assert_eq!(curve, Some(OID_EC_P256));
    let mut asked = Asked {
        organizations: info
            .subject
            .iter_organization()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect(),
        common_names: info.subject.iter_common_name().map(|name| name.as_str().unwrap().to_owned()).collect(),
        dns: Vec::new(),
        addresses: Vec::new(),
        key: info.subject_pki.subject_public_key.data.to_vec(),
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            panic!("unexpected extension {extension:?}")
        };
        collect(&names.general_names, &mut asked.dns, &mut asked.addresses);
    }
    asked
}

/// Common name, DNS names and addresses of a certificate.
pub fn shown(der: &[u8]) -> (String, Vec<String>, Vec<IpAddr>) {
    let (_, certificate) = X509Certificate::from_der(der).expect("DER");
    let name = certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned();
    let (mut dns, mut addresses) = (Vec::new(), Vec::new());
    if let Some(names) = certificate.subject_alternative_name().expect("an extension") {
        collect(&names.value.general_names, &mut dns, &mut addresses);
    }
    (name, dns, addresses)
}

fn collect(names: &[GeneralName<'_>], dns: &mut Vec<String>, addresses: &mut Vec<IpAddr>) {
    for name in names {
        match name {
            GeneralName::DNSName(name) => dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => addresses.push(match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).unwrap().into(),
                _ => <[u8; 16]>::try_from(*bytes).unwrap().into(),
            }),
            other => panic!("unexpected name {other:?}"),
        }
    }
}

/// The controller: looks at each request a second after it was made.
async fn control(api: Arc<FakeApiServer>, clock: SimClock, verdict: Arc<Mutex<Verdict>>) {
    let authority = authority();
    let path = format!("/apis/certificates.k8s.io/v1/{CSRS}");
    loop {
        let Ok(mut events) = api.watch(WatchCall { path: path.clone(), lane: Lane::Main }).await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        while let Some(Ok(event)) = events.next().await {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let csr: Value = serde_json::from_slice(&event.object).expect("JSON");
            let name = csr["metadata"]["name"].as_str().expect("a name");
            let Some(mut csr) = api.get(CSRS, "", name).filter(|csr| csr["status"].is_null()) else {
                continue;
            };
            let condition =
                |kind: &str| json!([{"type": kind, "reason": "Because", "message": "of the test"}]);
            csr["status"] = match *verdict.lock().unwrap() {
                Verdict::Ignore => continue,
                Verdict::Deny => json!({ "conditions": condition("Denied") }),
                Verdict::Fail => json!({ "conditions": condition("Failed") }),
                Verdict::Sign { valid_for } => {
                    let certificate = sign(&authority, &asked(&csr), clock.now(), valid_for);
                    json!({ "conditions": condition("Approved"), "certificate": BASE64_STANDARD.encode(certificate) })
                }
            };
            api.put(CSRS, csr);
        }
    }
}

pub fn authority() -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::new(params, KeyPair::generate().expect("a key"))
}

struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// A certificate for what was asked, as PEM.
pub fn sign(authority: &Issuer<'_, KeyPair>, asked: &Asked, now: Timestamp, valid_for: Duration) -> String {
    let mut subject = DistinguishedName::new();
    for organization in &asked.organizations {
        subject.push(DnType::OrganizationName, organization.as_str());
    }
    for name in &asked.common_names {
        subject.push(DnType::CommonName, name.as_str());
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_second() as u64);
    params.not_after = params.not_before + valid_for;
    let dns = asked.dns.iter().map(|name| SanType::DnsName(name.as_str().try_into().unwrap()));
    params.subject_alt_names = dns.chain(asked.addresses.iter().copied().map(SanType::IpAddress)).collect();
    params.signed_by(&PublicKey(asked.key.clone()), authority).expect("a certificate").pem()
}

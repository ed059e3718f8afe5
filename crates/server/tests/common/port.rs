//! The main port served for real, with authorities, clients and a cluster that answers reviews.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_cri::Streams;
use crablet_host::{LinuxFiles, SystemClock};
use crablet_server::{
    AccessAttributes, AuthorizationMode, ContainerName, Containers, Decision, KnownPod, KubeletServer,
    KubeletServerPorts, KubeletServerSettings, LogFile, LogRefusal, Logs, Refusal, Reviews, SettingsError,
    TlsSettings, UserInfo, Verbosity,
};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::World;

pub const SOON: Duration = Duration::from_secs(20);

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

#[derive(Clone)]
pub struct Pair {
    pub certificate: CertificateDer<'static>,
    pub key: Arc<PrivateKeyDer<'static>>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn client(&self, user: &str, groups: &[&str]) -> Pair {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        // The library keeps one value per kind: the same kind under another name.
        let organization = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (kind, group) in organization.into_iter().zip(groups) {
            params.distinguished_name.push(kind, *group);
        }
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        params.distinguished_name.push(uid, format!("uid-of-{user}"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    pub fn server(&self, name: &str) -> Arc<CertifiedKey> {
        let pair = self.sign(&CertificateParams::new([name.to_owned()]).expect("parameters"));
        let key = rustls::crypto::ring::sign::any_supported_type(&pair.key).expect("a key");
        Arc::new(CertifiedKey::new(vec![pair.certificate], key))
    }

    pub fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        Pair { certificate, key: Arc::new(PrivateKeyDer::try_from(key.serialize_der()).expect("a key")) }
    }
}

/// The cluster. Tokens are names of users; whom it allows what is in `allowed`, as `user verb subresource`.
#[derive(Default)]
pub struct Cluster {
    pub allowed: Mutex<Vec<String>>,
    pub tokens_seen: Mutex<Vec<String>>,
    pub access_seen: Mutex<Vec<AccessAttributes>>,
}

impl Cluster {
    pub fn allow(&self, what: &str) {
        self.allowed.lock().expect("a lock").push(what.to_owned());
    }
}

#[async_trait]
impl Reviews for Cluster {
    async fn token_review(&self, token: &str) -> Result<Option<UserInfo>, String> {
        self.tokens_seen.lock().expect("a lock").push(token.to_owned());
        match token {
            "outage" => Err("the cluster is away".to_owned()),
            _ if token.starts_with("bad") => Ok(None),
            _ => Ok(Some(UserInfo { name: token.to_owned(), ..UserInfo::default() })),
        }
    }

    async fn access_review(&self, wanted: &AccessAttributes) -> Result<Decision, String> {
        self.access_seen.lock().expect("a lock").push(wanted.clone());
        let asked = format!("{} {} {}", wanted.user.name, wanted.verb, wanted.subresource);
        match wanted.user.name.as_str() {
            "unlucky" => Err("the cluster is away".to_owned()),
            _ if self.allowed.lock().expect("a lock").contains(&asked) => Ok(Decision::Allowed),
            _ => Ok(Decision::Denied),
        }
    }
}

/// Logs by container, all of the pod `default/web`.
#[derive(Default)]
pub struct Shelf(pub Mutex<BTreeMap<String, LogFile>>);

#[async_trait]
impl Logs for Shelf {
    async fn find(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<LogFile, LogRefusal> {
        let (container, pod) = (container.to_owned(), pod.to_owned());
        if (namespace, pod.as_str()) != ("default", "web") {
            return Err(LogRefusal::NoPod { pod });
        }
        match container.as_str() {
            "early" => {
                let reason = "ContainerCreating".to_owned();
                return Err(LogRefusal::Waiting { container, pod, reason });
            }
            "lost" => return Err(LogRefusal::Unretrievable { id: "containerd://abc".to_owned() }),
            _ if previous => return Err(LogRefusal::NoPrevious { container, pod }),
            _ => {}
        }
        let found = self.0.lock().expect("a lock").get(&container).cloned();
        found.ok_or(LogRefusal::NoContainer { container, pod })
    }
}

/// A served port.
pub struct Port {
    pub address: SocketAddr,
    pub authority: Authority,
    pub cluster: Arc<Cluster>,
    pub shelf: Arc<Shelf>,
    pub certificate: watch::Sender<Option<Arc<CertifiedKey>>>,
    pub ca_file: PathBuf,
    pub folder: tempfile::TempDir,
    serving: JoinHandle<()>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub fn settings() -> KubeletServerSettings {
    KubeletServerSettings {
        node: "node-1".into(),
        tls: TlsSettings::default(),
        client_ca_file: None,
        token_webhook: Some(Duration::from_secs(120)),
        anonymous: false,
        authorization: AuthorizationMode::Webhook {
            allowed_for: Duration::from_secs(300),
            denied_for: Duration::from_secs(30),
        },
        debugging_handlers: true,
        split_log_streams: false,
        websockets: true,
        checkpoint: true,
        flagz: true,
        statusz: true,
        system_logs: true,
        system_log_query: true,
        profiling_handler: true,
        debug_flags_handler: true,
    }
}

impl Port {
    pub async fn start(settings: KubeletServerSettings) -> Self {
        Self::start_around(settings, |ports| ports).await
    }

    /// With a world of which the test changes what it wants.
    pub async fn start_around(
        mut settings: KubeletServerSettings,
        change: impl FnOnce(KubeletServerPorts) -> KubeletServerPorts,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ca_file = folder.path().join("ca.crt");
        let authority = Authority::new("cluster");
        std::fs::write(&ca_file, &authority.pem).expect("a file");
        settings.client_ca_file = Some(ca_file.clone());
        let (certificate, receiver) = watch::channel(Some(authority.server("first")));
        let (cluster, shelf) = (Arc::<Cluster>::default(), Arc::<Shelf>::default());
        let (reviews, logs) = (cluster.clone(), shelf.clone());
        let server = build_around(settings, |ports| {
            change(KubeletServerPorts { certificate: receiver, logs, reviews: Some(reviews), ..ports })
        });
        let server = server.await.expect("a server");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(server.serve(listener, std::future::pending()));
        Self { address, authority, cluster, shelf, certificate, ca_file, folder, serving }
    }

    pub async fn connect(
        &self,
        pair: Option<&Pair>,
        protocol: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
        let mut config = match pair {
            Some(Pair { certificate, key }) => {
                builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).expect("a pair")
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("node-1").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        tokio::time::timeout(SOON, connecting).await.expect("a timely handshake")
    }

    /// One request over HTTP/1.1, whose answer may take its time.
    pub async fn open(
        &self,
        pair: Option<&Pair>,
        token: Option<&str>,
        method: &str,
        target: &str,
    ) -> hyper::Response<Incoming> {
        let stream = self.connect(pair, "http/1.1").await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a client");
        tokio::spawn(connection);
        let sending = sender.send_request(request(token, method, target));
        tokio::time::timeout(SOON, sending).await.expect("a timely answer").expect("an answer")
    }

    pub async fn ask(
        &self,
        pair: Option<&Pair>,
        token: Option<&str>,
        method: &str,
        target: &str,
    ) -> (u16, String) {
        text(self.open(pair, token, method, target).await).await
    }

    pub async fn ask_h2(&self, pair: &Pair, targets: &[&str]) -> Vec<(u16, String)> {
        let stream = self.connect(Some(pair), "h2").await.expect("a connection");
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a client");
        tokio::spawn(connection);
        let mut answers = Vec::new();
        for target in targets {
            let request = request(None, "GET", &format!("https://node-1{target}"));
            answers.push(text(sender.send_request(request).await.expect("an answer")).await);
        }
        answers
    }
}

pub async fn build(
    settings: KubeletServerSettings,
    certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    cluster: Arc<Cluster>,
    logs: Arc<Shelf>,
) -> Result<KubeletServer, SettingsError> {
    build_around(settings, |ports| KubeletServerPorts { certificate, logs, reviews: Some(cluster), ..ports })
        .await
}

/// A server of a small world, of which the test changes what it wants.
pub async fn build_around(
    settings: KubeletServerSettings,
    change: impl FnOnce(KubeletServerPorts) -> KubeletServerPorts,
) -> Result<KubeletServer, SettingsError> {
    let ports = KubeletServerPorts {
        certificate: watch::channel(None).1,
        pods: Arc::new(World::default()),
        logs: Arc::new(Shelf::default()),
        reviews: Some(Arc::new(Cluster::default())),
        containers: Arc::new(Runtime::default()),
        manifests: Arc::new(super::Shelf::default()),
        verbosity: Arc::new(Loudness::default()),
        configz: Bytes::from(r#"{"kubeletconfig":{}}"#),
        flags: BTreeMap::from(
            [("a", "1"), ("b", "x<y")].map(|(name, value)| (name.to_owned(), value.to_owned())),
        ),
        version: "v1.36.4".to_owned(),
        started: "2024-01-02T03:04:05Z".parse().expect("a time"),
        system_log_folder: "/nonexistent".into(),
        journalctl: "/nonexistent/journalctl".into(),
        files: Arc::new(LinuxFiles),
        clock: Arc::new(SystemClock),
    };
    KubeletServer::new(settings, change(ports)).await
}

/// A runtime with the pod `default/web`, whose container is `app`.
#[derive(Default)]
pub struct Runtime {
    /// Nothing runs.
    pub idle: bool,
}

#[async_trait]
impl Containers for Runtime {
    fn pod(&self, namespace: &str, name: &str) -> Option<KnownPod> {
        let known = (namespace, name) == ("default", "web");
        known.then(|| KnownPod { uid: "u1".to_owned(), containers: vec!["app".to_owned()] })
    }

    async fn exec(&self, _: &ContainerName, _: &[String], _: Streams) -> Result<String, Refusal> {
        Err(Refusal::Failed("no exec".to_owned()))
    }

    async fn attach(&self, _: &ContainerName, _: Streams) -> Result<String, Refusal> {
        Err(Refusal::Failed("no attach".to_owned()))
    }

    async fn port_forward(&self, _: &str, _: &str, _: &[u16]) -> Result<String, Refusal> {
        Err(Refusal::Failed("no forward".to_owned()))
    }

    async fn run(&self, name: &ContainerName, command: &[String]) -> Result<Bytes, Refusal> {
        if name.container != "app" {
            return Err(Refusal::Failed(format!("container not found ({:?})", name.container)));
        }
        let said = command.first().is_some_and(|program| program != "silent");
        let uid = name.uid.as_deref().unwrap_or_default();
        Ok(if said { Bytes::from(format!("{uid} {command:?}")) } else { Bytes::new() })
    }

    async fn checkpoint(&self, _: &ContainerName, timeout_seconds: i64) -> Result<String, Refusal> {
        match timeout_seconds {
            7 => Err(Refusal::Failed("boom".to_owned())),
            seconds => Ok(format!("/x/checkpoint-{seconds}.tar")),
        }
    }

    async fn running_pods_json(&self) -> Result<Bytes, Refusal> {
        match self.idle {
            true => Err(Refusal::Failed("the runtime is gone".to_owned())),
            false => Ok(Bytes::from("{}\n")),
        }
    }
}

/// What the log's verbosity was set to.
#[derive(Default)]
pub struct Loudness(pub Mutex<Vec<u32>>);

impl Verbosity for Loudness {
    fn set(&self, verbosity: u32) {
        self.0.lock().expect("a lock").push(verbosity);
    }
}

fn request(token: Option<&str>, method: &str, target: &str) -> Request<Empty<Bytes>> {
    let mut request = Request::builder().method(method).uri(target);
    if !target.starts_with("https:") {
        request = request.header("host", "node-1");
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).expect("a request")
}

async fn text(response: hyper::Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = tokio::time::timeout(SOON, response.into_body().collect()).await.expect("a timely body");
    (status, String::from_utf8(body.expect("a body").to_bytes().to_vec()).expect("UTF-8"))
}

#[derive(Debug)]
pub struct AnyServer(pub Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::ApiServer;
use crablet_certificates::{Serving, Source, store};
use k8s_openapi::api::core::v1::NodeAddress;
use rustls::sign::CertifiedKey;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::world::{NODE, PKI, Verdict, World, asked, shown};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const SIGN: Verdict = Verdict::Sign { valid_for: YEAR };

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

async fn start(world: &mut World, source: Source) -> Serving {
    let (files, clock) = (world.files(), world.clock());
    Serving::start(source, files, clock, &mut world.tasks).await.expect("something to serve with")
}

fn self_signed() -> Source {
    Source::SelfSigned {
        folder: PKI.into(),
        host: "worker-1".to_owned(),
        addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
    }
}

fn first(serving: &Serving) -> Arc<CertifiedKey> {
    serving.certificate.borrow().clone().expect("a certificate")
}

async fn next(serving: &mut Serving) -> Arc<CertifiedKey> {
    timeout(HOUR, serving.certificate.changed()).await.expect("a certificate in time").expect("a sender");
    first(serving)
}

#[tokio::test(start_paused = true)]
async fn a_serving_certificate_follows_the_nodes_addresses() {
    let mut world = World::new(SIGN);
    let (addresses, receiver) = watch::channel(Vec::new());
    let source = |world: &World| Source::Requested {
        store: world.store(store::SERVER),
        node_name: NODE.to_owned(),
        api: Arc::clone(&world.api) as Arc<dyn ApiServer>,
        addresses: receiver.clone(),
        dns_only: false,
        rng: fastrand::Rng::with_seed(4),
    };
    let requested = source(&world);
    let mut serving = start(&mut world, requested).await;
    addresses.send_replace(vec![address("Hostname", "worker-1")]);
    tokio::time::sleep(HOUR).await;
    assert!(serving.certificate.borrow().is_none());
    assert_eq!(world.requests().len(), 0, "a name alone is not asked for");

    let hostname = address("Hostname", "worker-1");
    addresses.send_replace(vec![
        address("InternalIP", "10.0.0.7"),
        hostname.clone(),
        address("InternalDNS", "w.local"),
    ]);
    let shown_first = next(&mut serving).await;
    let csr = world.requests().remove(0);
    assert_eq!(csr["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(csr["spec"]["usages"], json!(["digital signature", "server auth"]));
    let wanted = asked(&csr);
    assert_eq!(wanted.organizations, ["system:nodes"]);
    assert_eq!(wanted.common_names, ["system:node:worker-1"]);
    assert_eq!(wanted.dns, ["w.local", "worker-1"]);
    assert_eq!(wanted.addresses, ["10.0.0.7".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(shown(shown_first.end_entity_cert().unwrap()).2, wanted.addresses);

    // Fewer names are still served by what there is; other ones need another certificate, and a request that nobody
    // has looked at yet does not delay the next.
    addresses.send_replace(vec![address("InternalIP", "10.0.0.7")]);
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.requests().len(), 1);
    world.judge(Verdict::Ignore);
    addresses.send_replace(vec![address("InternalIP", "10.0.0.8"), hostname.clone()]);
    world.until_requests(2).await;
    world.judge(SIGN);
    addresses.send_replace(vec![
        address("InternalIP", "10.0.0.9"),
        address("ExternalIP", "2001:db8::9"),
        hostname,
    ]);
    let shown_second = next(&mut serving).await;
    let (name, dns, ips) = shown(shown_second.end_entity_cert().unwrap());
    assert_eq!((name.as_str(), dns), ("system:node:worker-1", vec!["worker-1".to_owned()]));
    assert_eq!(ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.9", "2001:db8::9"]);
    assert_eq!(world.requests().len(), 3);

    // The next life of the agent serves with it at once.
    let requested = source(&world);
    let again = start(&mut world, requested).await;
    assert_eq!(first(&again).cert, shown_second.cert);
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pair_of_our_own_is_made_once() {
    let mut world = World::new(SIGN);
    let serving = start(&mut world, self_signed()).await;
    let made = first(&serving);
    assert_eq!(made.cert.len(), 2, "the certificate and its authority");
    let (name, dns, ips) = shown(&made.cert[0]);
    assert_eq!(name, "worker-1@1777863721");
    assert_eq!((dns.as_slice(), ips.len()), (["worker-1".to_owned()].as_slice(), 2));
    assert_eq!(shown(&made.cert[1]).0, "worker-1-ca@1777863721");
    assert_eq!(world.files.mode(format!("{PKI}/kubelet.crt")), Some(0o644));
    assert_eq!(world.files.mode(format!("{PKI}/kubelet.key")), Some(0o600));

    let again = start(&mut world, self_signed()).await;
    assert_eq!(first(&again).cert, made.cert);

    // Death between the two files.
    world.files.remove(format!("{PKI}/kubelet.crt"));
    let key = world.files.content(format!("{PKI}/kubelet.key"));
    start(&mut world, self_signed()).await;
    assert_eq!(world.files.content(format!("{PKI}/kubelet.key")), key);
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_is_none_is_refused_with_the_reason() {
    let mut world = World::new(SIGN);
    start(&mut world, self_signed()).await;
    let refused = async |files: &crablet_host::fake::FakeFiles, world: &World| {
        let started =
            Serving::start(self_signed(), Arc::new(files.clone()), world.clock(), &mut JoinSet::new()).await;
        started.err().expect("an error").to_string()
    };
    let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    world.files.put(format!("{PKI}/kubelet.key"), other);
    assert_eq!(
        refused(&world.files, &world).await,
        "`/var/lib/kubelet/pki/kubelet.crt` with `/var/lib/kubelet/pki/kubelet.key`: the private key does not belong to the certificate"
    );
    world.files.put(format!("{PKI}/kubelet.key"), "nothing");
    assert!(refused(&world.files, &world).await.ends_with("no private key in it"));
    world.files.remove(format!("{PKI}/kubelet.key"));
    assert_eq!(
        refused(&world.files, &world).await,
        "error reading /var/lib/kubelet/pki/kubelet.key, certificate and key must be supplied as a pair"
    );
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change() {
    let mut world = World::new(SIGN);
    let (certificate, key) = (format!("{PKI}/kubelet.crt"), format!("{PKI}/kubelet.key"));
    let old = first(&start(&mut world, self_signed()).await);
    let mut pairs = Vec::new();
    for _ in 0..2 {
        pairs.push((world.files.content(&certificate).unwrap(), world.files.content(&key).unwrap()));
        world.files.remove(&certificate);
        world.files.remove(&key);
        start(&mut world, self_signed()).await;
    }
    let (a, b) = ("/etc/tls/cert.pem", "/etc/keys/key.pem");
    world.files.put(a, &pairs[0].0);
    world.files.put(b, &pairs[0].1);
    let source = Source::Files { certificate: a.into(), key: b.into() };
    let mut serving = start(&mut world, source).await;
    assert_eq!(first(&serving).cert, old.cert);

    // Only half of the new pair is there: the old one goes on.
    world.files.put(a, &pairs[1].0);
    tokio::time::sleep(HOUR).await;
    assert_eq!(first(&serving).cert, old.cert);
    world.files.put(b, &pairs[1].1);
    assert_ne!(next(&mut serving).await.cert, old.cert);

    // Without watches too.
    world.files.break_watches();
    world.files.set_watch_faults(crablet_host::fake::WatchFaults { refuse: true, ..Default::default() });
    world.files.put(b, &pairs[0].1);
    world.files.put(a, &pairs[0].0);
    assert_eq!(next(&mut serving).await.cert, old.cert);
}

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::fake::{Effect, Where};
use crablet_apiserver::{ApiServer, Verb};
use crablet_certificates::{ClientRotation, ClientSetup, store};
use crablet_host::Clock;
use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::world::{Asked, NODE, PKI, Verdict, World, api, asked, authority, sign, until};

const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const POST: Verb = Verb::Post;
const PATH: &str = "certificatesigningrequests";

fn setup(world: &World) -> (ClientSetup, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let setup = ClientSetup {
        store: world.store(store::CLIENT),
        node_name: NODE.to_owned(),
        api: Arc::clone(&world.api) as Arc<dyn ApiServer>,
        bootstrap: None,
        initial: None,
        clock: world.clock(),
        rng: fastrand::Rng::with_seed(3),
        on_new: Arc::new(move |pem| drop(sender.send(pem))),
    };
    (setup, receiver)
}

async fn next(receiver: &mut mpsc::UnboundedReceiver<Vec<u8>>) -> Vec<u8> {
    timeout(MONTH * 2, receiver.recv()).await.expect("a certificate in time").expect("a rotation that runs")
}

#[tokio::test(start_paused = true)]
async fn a_client_certificate_is_renewed_before_it_ends() {
    let mut world = World::new(Verdict::Sign { valid_for: MONTH });
    world.with_client_certificate().await;
    let made = world.clock.now();
    let old = world.current_target();
    let (setup, mut pairs) = setup(&world);
    let rotation = ClientRotation::start(setup, &mut world.tasks).await.expect("a rotation");
    assert_eq!(pairs.try_recv().ok(), world.files.content(&old), "the one in use is told at once");

    world.api.fault_times(Where::call(POST, PATH), Effect::Fail(500), 3);
    let pem = next(&mut pairs).await;
    let age = world.clock.now().duration_since(made).as_secs_f64() / MONTH.as_secs_f64();
    assert!((0.69..0.91).contains(&age), "renewed after {age} of its life");
    assert_eq!(rotation.state.borrow().renew_errors, 3);

    let new = world.current_target();
    assert_ne!(new, old);
    assert_eq!(world.files.content(&new), Some(pem));
    assert_eq!(world.files.mode(&new), Some(0o600));
    assert!(world.files.content(&old).is_some(), "old pairs are kept");
    let csrs = world.requests();
    let names: Vec<_> = csrs.iter().map(|csr| csr["metadata"]["generateName"].as_str()).collect();
    assert!(names.contains(&Some("csr-")), "{names:?}");
    assert_ne!(asked(&csrs[0]).key, asked(&csrs[1]).key, "each certificate has a key of its own");

    next(&mut pairs).await;
    assert_eq!(*rotation.fatal.borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn the_agent_gives_up_only_when_the_server_is_there_and_refuses() {
    let mut world = World::new(Verdict::Sign { valid_for: HOUR });
    world.with_client_certificate().await;
    let (setup, _pairs) = setup(&world);
    let mut rotation = ClientRotation::start(setup, &mut world.tasks).await.expect("a rotation");
    world.api.outage();
    tokio::time::sleep(HOUR * 24).await;
    assert_eq!(*rotation.fatal.borrow(), None, "an outage is waited out, however long");

    world.api.clear_faults();
    world.api.fault(Where::call(POST, PATH), Effect::Fail(401));
    let fatal =
        timeout(HOUR, rotation.fatal.wait_for(Option::is_some)).await.expect("an end").expect("a guard");
    let reason = fatal.as_deref().unwrap_or_default();
    assert!(
        reason.contains("has expired") && reason.contains("the server is responsive, exiting"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_past_the_end_is_survived_with_the_token() {
    let mut world = World::new(Verdict::Sign { valid_for: MONTH });
    world.with_client_certificate().await;
    world.clock.jump(SignedDuration::try_from(MONTH * 2).unwrap());
    let bootstrap = Arc::clone(&world.api);
    let refusing = api(&world.clock);
    let (mut setup, mut pairs) = setup(&world);
    setup.api = Arc::clone(&refusing) as Arc<dyn ApiServer>;
    setup.bootstrap = Some(bootstrap);
    let rotation = ClientRotation::start(setup, &mut world.tasks).await.expect("a rotation");
    next(&mut pairs).await;
    assert!(rotation.state.borrow().not_after.is_some_and(|end| end > world.clock.now()));
    assert_eq!(refusing.calls().len(), 0, "nobody was asked with a certificate that is over");
}

#[tokio::test(start_paused = true)]
async fn an_installers_certificate_is_replaced_at_once() {
    let mut world = World::new(Verdict::Sign { valid_for: MONTH });
    let key = KeyPair::generate().expect("a key");
    let given = Asked {
        organizations: vec!["system:masters".to_owned()],
        common_names: vec!["admin".to_owned()],
        dns: Vec::new(),
        addresses: Vec::new(),
        key: key.public_key_raw().to_vec(),
    };
    let certificate = sign(&authority(), &given, world.clock.now(), MONTH);
    let (mut setup, mut pairs) = setup(&world);
    setup.initial = Some((certificate.into_bytes(), key.serialize_pem().into_bytes()));
    let _rotation = ClientRotation::start(setup, &mut world.tasks).await.expect("a rotation");
    let first = next(&mut pairs).await;
    let second = next(&mut pairs).await;
    assert_ne!(first, second);
    assert_eq!(
        world.clock.now().duration_since("2026-05-04T03:02:01Z".parse::<Timestamp>().unwrap()).as_hours(),
        0
    );
    assert_eq!(asked(&world.requests()[0]).organizations, ["system:nodes"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_upstream_left_half_replaced_is_found() {
    let mut world = World::new(Verdict::Sign { valid_for: MONTH });
    world.with_client_certificate().await;
    let target = world.current_target();
    world.files.remove(format!("{PKI}/kubelet-client-current.pem"));
    world.files.put_link(format!("{PKI}/kubelet-client-updated.pem"), &target);
    let (setup, mut pairs) = setup(&world);
    ClientRotation::start(setup, &mut world.tasks).await.expect("a rotation");
    assert_eq!(pairs.try_recv().ok(), world.files.content(&target));
    assert_eq!(world.current_target(), target);
    until(|| world.files.paths_below(PKI).len() == 2).await;
}

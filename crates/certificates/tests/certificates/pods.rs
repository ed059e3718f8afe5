//! Certificates for pods: asked for, issued, refused, renewed, forgotten.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_apiserver::Verb;
use crablet_apiserver::fake::{Effect, FakeApiServer, Where};
use crablet_certificates::pods::{Bundle, PodCertificates, PodCertificatesSetup, Wanted};
use crablet_host::Clock;
use crablet_host::fake::SimClock;
use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";

struct World {
    api: Arc<FakeApiServer>,
    clock: SimClock,
    certificates: Arc<PodCertificates>,
    changes: broadcast::Receiver<PodUid>,
    events: Arc<Mutex<Vec<Event>>>,
    _tasks: JoinSet<()>,
}

impl World {
    fn start() -> Self {
        let clock = SimClock::starting_at("2026-01-31T12:00:00Z".parse().unwrap());
        let now = clock.clone();
        let api = FakeApiServer::new(Arc::new(move || now.now()));
        api.put("nodes", json!({ "metadata": { "name": "n", "uid": "node-uid" } }));
        api.put(
            "serviceaccounts",
            json!({ "metadata": { "name": "robot", "namespace": "ns", "uid": "robot-uid" } }),
        );
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let told = events.clone();
        let mut tasks = JoinSet::new();
        let setup = PodCertificatesSetup {
            api: api.clone(),
            node_name: "n".to_owned(),
            clock: Arc::new(clock.clone()),
            events: Box::new(move |event| told.lock().unwrap().push(event)),
            seed: 3,
        };
        let certificates = PodCertificates::start(setup, &mut tasks);
        let changes = certificates.changes();
        Self { api, clock, certificates, changes, events, _tasks: tasks }
    }

    fn bundle(&self) -> Result<Bundle, String> {
        self.certificates.bundle(wanted("ED25519")).map_err(|lacking| lacking.to_string())
    }

    /// Waits on the paused clock.
    async fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        for _ in 0..100_000 {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain");
    }

    /// The request that nobody has answered yet.
    async fn request(&self) -> Value {
        let open = |request: &Value| request["status"]["conditions"].is_null();
        self.until(|| self.api.list("podcertificaterequests").into_iter().find(open)).await
    }

    /// Answers it as a signer does, for an hour.
    async fn answer(&mut self, condition: &str) -> Value {
        let mut request = self.request().await;
        let now = self.clock.now();
        let later = |minutes| (now + SignedDuration::from_mins(minutes)).to_string();
        request["status"] = json!({ "conditions": [
            { "type": condition, "status": "True", "reason": "Because", "message": "of \"this\"" },
        ]});
        if condition == "Issued" {
            request["status"]["certificateChain"] = json!(format!("a remark\n{CHAIN}"));
            request["status"]["notBefore"] = json!(later(0));
            request["status"]["beginRefreshAt"] = json!(later(30));
            request["status"]["notAfter"] = json!(later(60));
        }
        self.api.put("podcertificaterequests", request.clone());
        assert_eq!(self.changes.recv().await.unwrap().as_str(), "uid");
        request
    }

    fn events(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events.iter().map(|event| format!("{} {}: {}", event.kind, event.reason, event.message)).collect()
    }
}

fn wanted(key_type: &str) -> Wanted {
    Wanted {
        pod: PodRef::new("p", "ns", "uid"),
        service_account: "robot".to_owned(),
        volume: "v".to_owned(),
        source: 1,
        signer: "test.example/signer".to_owned(),
        key_type: key_type.to_owned(),
        max_expiration_seconds: Some(3600),
        annotations: [("test.example/who".to_owned(), "me".to_owned())].into(),
    }
}

fn state(world: &World) -> &'static str {
    world.certificates.states().into_keys().next().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn a_request_names_all_who_are_concerned_and_is_answered() {
    let mut world = World::start();
    assert_eq!(world.bundle().unwrap_err(), "credential bundle is not issued yet");
    let request = world.request().await;
    let mut spec = request["spec"].clone();
    let stub = spec["stubPKCS10Request"].take();
    assert!(stub.as_str().unwrap().len() > 100);
    let expected = json!({
        "signerName": "test.example/signer", "podName": "p", "podUID": "uid", "nodeName": "n",
        "serviceAccountName": "robot", "serviceAccountUID": "robot-uid", "nodeUID": "node-uid",
        "maxExpirationSeconds": 3600, "stubPKCS10Request": null,
        "unverifiedUserAnnotations": { "test.example/who": "me" },
    });
    assert_eq!(spec, expected);
    let owners = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid" }]);
    assert_eq!(request["metadata"]["ownerReferences"], owners);
    assert!(request["metadata"]["name"].as_str().unwrap().starts_with("req-"));
    assert_eq!(state(&world), "not_yet_issued");

    world.answer("Issued").await;
    let bundle = world.bundle().unwrap();
    assert!(bundle.key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert_eq!(&*bundle.chain, CHAIN);
    assert_eq!(state(&world), "fresh");
    assert_eq!(format!("{bundle:?}"), "Bundle", "keys are not printed");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_watched_before_somebody_wants_a_certificate() {
    let world = World::start();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.api.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_replaced_with_its_key_before_it_is_old() {
    let mut world = World::start();
    let _ = world.bundle();
    let first_request = world.answer("Issued").await;
    let first = world.bundle().unwrap();
    let second_request = world.request().await;
    assert_ne!(first_request["metadata"]["name"], second_request["metadata"]["name"]);
    let begin: Timestamp = first_request["status"]["beginRefreshAt"].as_str().unwrap().parse().unwrap();
    let late = world.clock.now().duration_since(begin);
    assert!(late >= SignedDuration::ZERO && late <= SignedDuration::from_mins(5), "{late:?}");
    assert_eq!(world.bundle().unwrap(), first, "the old pair serves until there is a new one");
    world.answer("Issued").await;
    assert_ne!(world.bundle().unwrap().key, first.key);
    assert!(world.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_is_late_is_told_of_once() {
    let mut world = World::start();
    let _ = world.bundle();
    world.answer("Issued").await;
    tokio::time::sleep(Duration::from_secs(50 * 60)).await;
    assert_eq!(state(&world), "overdue_for_refresh");
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    let expected = [
        "Warning CertificateOverdueForRefresh: PodCertificate refresh overdue",
        "Warning CertificateExpired: PodCertificate expired",
    ];
    assert_eq!(world.events(), expected);
    assert_eq!(state(&world), "expired");
    assert!(world.bundle().is_ok(), "an old pair is better than none");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_for_good() {
    for (condition, word, said) in [("Denied", "denied", "was denied"), ("Failed", "failed", "failed")] {
        let mut world = World::start();
        let _ = world.bundle();
        let request = world.answer(condition).await;
        let expected = format!(
            "PodCertificateRequest was permanently {word}: reason=\"Because\" message=\"of \\\"this\\\"\""
        );
        assert_eq!(world.bundle().unwrap_err(), expected);
        let lacking = world.certificates.bundle(wanted("ED25519")).unwrap_err();
        assert!(lacking.for_good);
        let name = request["metadata"]["name"].as_str().unwrap();
        let expected = format!(
            "Warning {condition}: PodCertificateRequest ns/{name} {said}, reason=\"Because\", \
             message=\"of \\\"this\\\"\""
        );
        assert_eq!(world.events(), [expected]);
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(world.api.list("podcertificaterequests").len(), 1, "nobody is asked again");
        assert_eq!(state(&world), word);
    }
}

#[tokio::test(start_paused = true)]
async fn what_hinders_a_request_is_told_and_it_is_tried_again() {
    let mut world = World::start();
    world.api.fault_times(Where::call(Verb::Post, "podcertificaterequests"), Effect::Fail(403), 3);
    let _ = world.bundle();
    assert_eq!(world.changes.recv().await.unwrap().as_str(), "uid");
    let expected = "credential bundle is not issued yet: while creating initial PodCertificateRequest: while \
                    creating on API: the fake was told to answer 403";
    assert_eq!(world.bundle().unwrap_err(), expected);
    world.request().await;
    while world.changes.try_recv().is_ok() {}
    world.answer("Issued").await;
    assert!(world.bundle().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_somebody_deletes_is_made_again() {
    let mut world = World::start();
    let _ = world.bundle();
    let first = world.request().await;
    let name = first["metadata"]["name"].as_str().unwrap().to_owned();
    // Once the watch has shown it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.api.delete("podcertificaterequests", "ns", &name));
    let second = world.request().await;
    assert_ne!(second["metadata"]["name"], first["metadata"]["name"]);
    world.answer("Issued").await;
    assert!(world.bundle().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_went_unseen_is_given_up_after_a_while() {
    let mut world = World::start();
    let _ = world.bundle();
    // Made and deleted while no watch tells.
    let first = world.request().await;
    world.api.fault(Where::watch("podcertificaterequests"), Effect::Fail(503));
    world.api.break_watches();
    world.api.delete("podcertificaterequests", "ns", first["metadata"]["name"].as_str().unwrap());
    world.api.expire_versions();
    world.api.clear_faults();
    world.answer("Issued").await;
    assert!(world.bundle().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_api_server_is_lived_through() {
    let mut world = World::start();
    world.api.outage();
    let _ = world.bundle();
    assert_eq!(world.changes.recv().await.unwrap().as_str(), "uid");
    let error = world.bundle().unwrap_err();
    assert!(error.contains("while fetching service account: "), "{error}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.api.clear_faults();
    world.request().await;
    while world.changes.try_recv().is_ok() {}
    world.answer("Issued").await;
    assert!(world.bundle().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_forgotten() {
    let mut world = World::start();
    let _ = world.bundle();
    world.answer("Issued").await;
    world.certificates.forget(&PodUid::new("uid"));
    assert!(world.certificates.states().is_empty());
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(world.api.list("podcertificaterequests").len(), 1, "nothing is renewed for it");
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_key_that_nobody_knows_is_named() {
    let mut world = World::start();
    let _ = world.certificates.bundle(wanted("DSA"));
    assert_eq!(world.changes.recv().await.unwrap().as_str(), "uid");
    let error = world.certificates.bundle(wanted("DSA")).unwrap_err().to_string();
    assert_eq!(
        error,
        "credential bundle is not issued yet: while generating keypair: unknown key type \"DSA\""
    );
}

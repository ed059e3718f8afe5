//! Volumes that show pods' certificates: files of both kinds, changes, waiting, the end.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Agent, UID, pod, pod_with};
use crablet_model::{PodRef, PodUid};
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::{CertificateWanted, Credentials, NoCertificate, PodCertificates};
use serde_json::{Value, json};
use tokio::sync::broadcast;

const ROOT: &str = "/r";

/// A room that gets certificates, as a test wants them.
struct Issuer {
    /// By the source's index.
    issued: Mutex<BTreeMap<usize, Result<&'static str, NoCertificate>>>,
    forgotten: Mutex<Vec<String>>,
    changes: broadcast::Sender<PodUid>,
}

impl Issuer {
    fn set(&self, source: usize, outcome: Result<&'static str, NoCertificate>) {
        self.issued.lock().unwrap().insert(source, outcome);
        let _ = self.changes.send(PodUid::new(UID));
    }
}

impl PodCertificates for Issuer {
    fn credentials(&self, wanted: &CertificateWanted<'_>) -> Result<Credentials, NoCertificate> {
        assert_eq!((wanted.pod.uid.as_str(), wanted.volume, wanted.service_account), (UID, "v", "robot"));
        let pending = NoCertificate { text: "credential bundle is not issued yet".into(), for_good: false };
        let outcome = self.issued.lock().unwrap().get(&wanted.source).cloned().unwrap_or(Err(pending));
        outcome.map(|which| Credentials {
            key: format!("key {which}\n").into(),
            chain: format!("chain {which}\n").into(),
        })
    }

    fn forget(&self, pod: &PodUid) {
        self.forgotten.lock().unwrap().push(pod.as_str().to_owned());
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.changes.subscribe()
    }
}

fn start() -> (Agent, FakeVolumeHost, Arc<Issuer>) {
    let host = FakeVolumeHost::default();
    let changes = broadcast::channel(4).0;
    let issuer = Arc::new(Issuer { issued: Mutex::default(), forgotten: Mutex::default(), changes });
    let agent = Agent::start_certified(Path::new(ROOT), Arc::new(host.clone()), issuer.clone());
    (agent, host, issuer)
}

fn volume() -> Value {
    let source = |paths: Value| {
        let mut source = json!({ "keyType": "ED25519", "signerName": "s.io/s" });
        source.as_object_mut().unwrap().extend(paths.as_object().unwrap().clone());
        json!({ "podCertificate": source })
    };
    json!({ "name": "v", "projected": { "defaultMode": 0o444, "sources": [
        { "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
        source(json!({ "credentialBundlePath": "bundle.pem" })),
        source(json!({ "keyPath": "key.pem", "certificateChainPath": "chain.pem" })),
    ]}})
}

fn folder() -> String {
    format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~projected/v")
}

fn shown(host: &FakeVolumeHost, file: &str) -> Option<String> {
    host.content(format!("{}/{file}", folder())).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_certificates_and_sees_new_pairs() {
    let (agent, host, issuer) = start();
    let pod = pod(json!([volume()]));
    let issued = async {
        let told =
            "FailedMount MountVolume.SetUp failed for volume \"v\" : credential bundle is not issued yet";
        while agent.events.texts() != [told] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        issuer.set(1, Ok("one"));
        issuer.set(2, Ok("two"));
    };
    tokio::join!(agent.volumes.set_up(&pod), issued).0.unwrap();
    assert_eq!(shown(&host, "bundle.pem").as_deref(), Some("key one\nchain one\n"));
    assert_eq!(shown(&host, "key.pem").as_deref(), Some("key two\n"));
    assert_eq!(shown(&host, "chain.pem").as_deref(), Some("chain two\n"));
    assert_eq!(shown(&host, "name").as_deref(), Some("p"));

    issuer.set(2, Ok("three"));
    while shown(&host, "key.pem").as_deref() != Some("key three\n") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shown(&host, "chain.pem").as_deref(), Some("chain three\n"), "they change together");

    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert_eq!(*issuer.forgotten.lock().unwrap(), [UID]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_not_waited_for() {
    let (agent, _, issuer) = start();
    let denied =
        NoCertificate { text: "PodCertificateRequest was permanently denied".into(), for_good: true };
    issuer.set(1, Err(denied));
    issuer.set(2, Ok("two"));
    let error = agent.volumes.set_up(&pod(json!([volume()]))).await.unwrap_err();
    let expected = "MountVolume.SetUp failed for volume \"v\" : PodCertificateRequest was permanently denied";
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn keys_are_for_the_pods_user_alone() {
    let (agent, host, issuer) = start();
    issuer.set(1, Ok("one"));
    issuer.set(2, Ok("two"));
    let pod = pod_with(json!([volume()]), json!({ "securityContext": { "runAsUser": 1000 } }));
    agent.volumes.set_up(&pod).await.unwrap();
    let access = host.access(format!("{}/key.pem", folder()));
    assert_eq!(access, Some((0o600, Some(1000), None)));
}

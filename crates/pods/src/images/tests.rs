//! Images against a fake runtime whose registry wants passwords, and a fake disk.

mod programs;
mod pulls;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_apiserver::{ObjectError, ObjectKey, Objects, ServiceView, Token, TokenWanted};
use crablet_cri::RegistryAuth;
use crablet_cri::fake::{FakeImage, FakeRuntime, Pull, RuntimeSettings};
use crablet_host::fake::{FakeFiles, SimClock};
use crablet_model::PodUid;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::*;

const ROOT: &str = "/var/lib/kubelet";
const PASSWORD: &str = "very-secret";

/// A node with a registry that gives `r.io/app:1` to `u` only.
struct World {
    runtime: FakeRuntime,
    disk: FakeFiles,
    clock: Arc<SimClock>,
    events: Arc<Heard>,
    secrets: Arc<Secrets>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventSink for Heard {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(format!("{} {} {}", event.kind, event.reason, event.message));
    }
}

#[derive(Default)]
struct Secrets {
    known: Mutex<BTreeMap<String, Arc<api::Secret>>>,
    hangs: AtomicBool,
    given_up: AtomicUsize,
}

/// Somebody waits for an answer that does not come, until it is given up.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Secrets {
    /// From now on nobody gets an answer.
    fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }
}

impl World {
    fn new() -> Self {
        Self::pulling_in(Duration::from_secs(1))
    }

    fn pulling_in(after: Duration) -> Self {
        let now = || "2026-01-01T00:00:00Z".parse().unwrap();
        let rng = fastrand::Rng::with_seed(7);
        let runtime = FakeRuntime::new(RuntimeSettings::default(), rng, Arc::new(now));
        let auth = RegistryAuth { username: "u".to_owned(), password: PASSWORD.to_owned() };
        let pull = Pull::Works { after };
        runtime.put_image("r.io/app:1", FakeImage { needs: Some(auth), ..FakeImage::pulled(pull.clone()) });
        runtime.put_image("r.io/open:1", FakeImage::pulled(pull));
        runtime.put_image("r.io/loaded:1", FakeImage::present());
        Self {
            runtime,
            disk: FakeFiles::new(fastrand::Rng::with_seed(7)),
            clock: Arc::new(SimClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())),
            events: Arc::default(),
            secrets: Arc::default(),
        }
    }

    /// An agent's view of images: another one for each of its lives.
    fn images(&self, verification: Verification, providers: Vec<Provider>) -> Images {
        let ports = ImagePorts {
            runtime: Arc::new(self.runtime.clone()),
            events: self.events.clone(),
            files: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            objects: self.secrets.clone(),
            accounts: None,
        };
        let docker =
            DockerFolders { config_json: vec![PathBuf::from("/root/.docker")], dockercfg: vec!["/".into()] };
        let pulls = ImagePulls { parallel: 2, qps: 0.0, burst: 1 };
        Images::new(ports, ImageSettings { pulls, verification, root: ROOT.into(), docker, providers })
    }

    /// A secret of this name, with credentials for `place`.
    fn put_secret(&self, name: &str, place: &str, password: &str) {
        let config = json!({"auths": {place: {"username": "u", "password": password}}}).to_string();
        self.put_raw_secret(name, &config);
    }

    fn put_raw_secret(&self, name: &str, config: &str) {
        let secret = api::Secret {
            metadata: serde_json::from_value(
                json!({"name": name, "namespace": "ns", "uid": format!("uid-of-{name}")}),
            )
            .unwrap(),
            type_: Some("kubernetes.io/dockerconfigjson".to_owned()),
            data: Some(
                [(".dockerconfigjson".to_owned(), k8s_openapi::ByteString(config.as_bytes().to_vec()))]
                    .into(),
            ),
            ..api::Secret::default()
        };
        self.secrets.known.lock().unwrap().insert(name.to_owned(), Arc::new(secret));
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.0.lock().unwrap())
    }

    /// What is said of missing secrets, once everybody who looks for them has given up.
    async fn missing(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut told = self.events();
        told.retain(|event| event.contains("FailedToRetrieveImagePullSecret"));
        told
    }

    fn pulls(&self) -> usize {
        let pulled = |entry: &crablet_cri::fake::TraceEntry| format!("{entry:?}").contains("ImagePulled");
        self.runtime.trace().iter().filter(|entry| pulled(entry)).count()
    }

    fn records(&self, folder: &str) -> Vec<Value> {
        let below = self.disk.paths_below(format!("{ROOT}/image_manager/{folder}"));
        let content = below.iter().filter_map(|path| self.disk.content(path));
        content.map(|bytes| serde_json::from_slice(&bytes).unwrap()).collect()
    }
}

/// `ready`, or reason and message.
async fn ensure(images: &Images, image: &str, policy: PullPolicy, secrets: &[&str]) -> String {
    ensure_or_look(images, image, policy, secrets, true).await
}

/// Without a pull: `ready`, `missing`, or reason and message.
async fn look(images: &Images, image: &str) -> String {
    ensure_or_look(images, image, PullPolicy::IfNotPresent, &[], false).await
}

async fn ensure_or_look(
    images: &Images,
    image: &str,
    policy: PullPolicy,
    secrets: &[&str],
    may_pull: bool,
) -> String {
    let names: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
    let pod: api::Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1"},
        "spec": {"containers": [{"name": "c", "image": image}], "imagePullSecrets": names},
    }))
    .unwrap();
    let (id, spec) = (PodRef::of(&pod), Some(&pod));
    let wanted = Wanted {
        pod: &id,
        spec,
        container: "c",
        role: Role::Regular,
        of_volume: false,
        image,
        policy,
        may_pull,
        sandbox: None,
    };
    match images.ensure(wanted).await {
        Outcome::ImageReady { .. } => "ready".to_owned(),
        Outcome::ImageMissing { .. } => "missing".to_owned(),
        Outcome::ImageFailed { reason, message, pulled, .. } => format!("{reason}: {message} ({pulled})"),
        other => format!("{other:?}"),
    }
}

#[async_trait]
impl Objects for Secrets {
    fn register(&self, _: &api::Pod) {}

    fn forget(&self, _: &PodUid) {}

    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<api::ConfigMap>, ObjectError> {
        Err(ObjectError::NotFound("none".to_owned()))
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Arc<api::Secret>, ObjectError> {
        if self.hangs.load(Ordering::Relaxed) {
            let _waits = Waits(&self.given_up);
            std::future::pending::<()>().await;
        }
        let found = self.known.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| ObjectError::NotFound(format!("secrets {name:?} not found")))
    }

    async fn token(&self, _: &TokenWanted) -> Result<Token, ObjectError> {
        Err(ObjectError::Unavailable("none".to_owned()))
    }

    async fn services(&self, _: &str) -> Result<Vec<ServiceView>, ObjectError> {
        Ok(Vec::new())
    }

    async fn runtime_handler(&self, _: &str) -> Result<String, ObjectError> {
        Ok(String::new())
    }

    fn changes(&self) -> broadcast::Receiver<ObjectKey> {
        broadcast::channel(1).1
    }
}

use super::*;
use crate::fake::{Asked, Effect, FakeApiServer, Where};
use crate::port::Verb;
use crablet_model::PodRef;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

struct World {
    api: Arc<FakeApiServer>,
    objects: Arc<ClusterObjects>,
    _tasks: JoinSet<()>,
}

impl World {
    fn new(strategy: Strategy) -> Self {
        let begun = Instant::now();
        let now: Now = Arc::new(move || {
            Timestamp::from_second(1_700_000_000).unwrap()
                + SignedDuration::try_from(begun.elapsed()).unwrap()
        });
        let api = FakeApiServer::new(now.clone());
        let mut tasks = JoinSet::new();
        let settings = ObjectSettings { strategy, sync_frequency: Duration::from_secs(60) };
        let objects = ClusterObjects::start(api.clone(), now, settings, 5, &mut tasks);
        Self { api, objects, _tasks: tasks }
    }

    fn secret(&self, name: &str, value: &str) {
        let data = json!({"key": value});
        self.api.put("secrets", json!({"metadata": {"name": name, "namespace": "ns"}, "data": data}));
    }

    async fn read(&self, name: &str) -> Result<String, String> {
        let secret = self.objects.secret("ns", name).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(secret.data.as_ref().unwrap()["key"].0.clone()).unwrap())
    }

    /// How many requests there were for a secret, watches and others.
    fn asked_for(&self, name: &str) -> usize {
        let calls = self.api.calls();
        calls.iter().filter(|call| call.path.contains("/secrets") && call.path.contains(name)).count()
    }
}

fn pod(uid: &str, secrets: &[&str]) -> api::Pod {
    let volumes: Vec<Value> =
        secrets.iter().map(|name| json!({"name": name, "secret": {"secretName": name}})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"containers": [], "volumes": volumes},
    }))
    .unwrap()
}

// Base64 of "one" and "two".
const ONE: &str = "b25l";
const TWO: &str = "dHdv";

#[tokio::test(start_paused = true)]
async fn an_object_is_watched_once_while_pods_refer_to_it() {
    let world = World::new(Strategy::Watch);
    world.secret("s", ONE);
    assert_eq!(world.read("s").await.unwrap_err(), "object \"ns\"/\"s\" not registered");
    world.objects.register(&pod("a", &["s"]));
    world.objects.register(&pod("b", &["s"]));
    assert_eq!(world.read("s").await.unwrap(), "one");
    let mut changes = world.objects.changes();
    world.secret("s", TWO);
    let key = timeout(Duration::from_secs(5), changes.recv()).await.unwrap().unwrap();
    assert_eq!((key.kind, &*key.namespace, &*key.name), (ObjectKind::Secret, "ns", "s"));
    assert_eq!(world.read("s").await.unwrap(), "two");
    world.objects.forget(&PodUid::new("a"));
    assert_eq!(world.read("s").await.unwrap(), "two");
    world.objects.register(&pod("b", &["other"]));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.read("s").await.unwrap_err(), "object \"ns\"/\"s\" not registered");
    assert_eq!(world.asked_for("metadata.name%3Ds&"), 1);
    assert_eq!(world.api.watches("secrets"), 1, "only the other one");
    world.objects.forget(&PodUid::new("b"));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.api.watches("secrets"), 0);
}

#[tokio::test(start_paused = true)]
async fn absence_is_known_and_its_end_is_told() {
    let world = World::new(Strategy::Watch);
    world.objects.register(&pod("a", &["s"]));
    assert_eq!(
        world.objects.secret("ns", "s").await.unwrap_err(),
        ObjectError::NotFound("secret \"s\" not found".to_owned())
    );
    let mut changes = world.objects.changes();
    world.secret("s", ONE);
    timeout(Duration::from_secs(5), changes.recv()).await.unwrap().unwrap();
    assert_eq!(world.read("s").await.unwrap(), "one");
    world.api.delete("secrets", "ns", "s");
    timeout(Duration::from_secs(5), changes.recv()).await.unwrap().unwrap();
    assert_eq!(world.read("s").await.unwrap_err(), "secret \"s\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_a_second_and_what_it_missed_is_told() {
    let world = World::new(Strategy::Watch);
    world.secret("s", ONE);
    world.api.fault(Where::path("/secrets"), Effect::Fail(403));
    world.objects.register(&pod("a", &["s"]));
    let mut changes = world.objects.changes();
    let error = "failed to sync secret cache: timed out waiting for the condition";
    assert_eq!(world.read("s").await.unwrap_err(), error);
    world.api.clear_faults();
    timeout(Duration::from_secs(60), changes.recv()).await.unwrap().unwrap();
    assert_eq!(world.read("s").await.unwrap(), "one");
    // A refusal that ends within the second is never noticed: the authorizer learns of pods a moment later than we.
    world.secret("t", TWO);
    world.api.fault_times(Where::path("metadata.name%3Dt"), Effect::Fail(403), 3);
    world.objects.register(&pod("b", &["t"]));
    assert_eq!(world.read("t").await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn objects_survive_an_outage_and_immutable_ones_need_no_watch() {
    let world = World::new(Strategy::Watch);
    world.secret("s", ONE);
    let fixed =
        json!({"metadata": {"name": "fixed", "namespace": "ns"}, "immutable": true, "data": {"key": TWO}});
    world.api.put("secrets", fixed);
    world.objects.register(&pod("a", &["s", "fixed"]));
    assert_eq!(world.read("s").await.unwrap(), "one");
    assert_eq!(world.read("fixed").await.unwrap(), "two");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.api.watches("secrets"), 1);
    world.api.outage();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.read("s").await.unwrap(), "one");
    assert_eq!(world.read("fixed").await.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn the_cache_asks_once_a_minute_and_serves_what_it_has() {
    let world = World::new(Strategy::Cache);
    world.secret("s", ONE);
    world.objects.register(&pod("a", &["s"]));
    let mut changes = world.objects.changes();
    for _ in 0..5 {
        assert_eq!(world.read("s").await.unwrap(), "one");
    }
    assert_eq!(world.asked_for("s"), 1);
    world.secret("s", TWO);
    // Everything is to be looked at again.
    timeout(Duration::from_secs(61), changes.recv()).await.unwrap().unwrap();
    assert_eq!(world.read("s").await.unwrap(), "two");
    world.api.outage();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.read("s").await.unwrap(), "two");
    world.api.clear_faults();
    world.api.delete("secrets", "ns", "s");
    assert_eq!(world.read("s").await.unwrap_err(), "secrets \"s\" not found");
}

#[tokio::test(start_paused = true)]
async fn every_read_asks_under_get() {
    let world = World::new(Strategy::Get);
    world.secret("s", ONE);
    assert_eq!(world.read("s").await.unwrap(), "one");
    world.secret("s", TWO);
    assert_eq!(world.read("s").await.unwrap(), "two");
    assert_eq!(world.api.watches("secrets"), 0);
}

#[tokio::test(start_paused = true)]
async fn services_are_those_of_the_namespace_and_the_api_server() {
    let world = World::new(Strategy::Watch);
    let service = |namespace: &str, name: &str, ip: &str| {
        let ports = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
        world.api.put(
            "services",
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "ports": ports}}),
        );
    };
    service("default", "kubernetes", "10.0.0.1");
    service("default", "other", "10.0.0.2");
    service("ns", "web", "10.0.0.3");
    service("ns", "headless", "None");
    service("ns", "external", "");
    service("ns2", "kubernetes", "10.0.0.4");
    let told = async |namespace: &str| {
        let services = world.objects.services(namespace).await.unwrap();
        services
            .iter()
            .map(|s| format!("{}/{}={}:{}", s.namespace, s.name, s.cluster_ip, s.ports[0].port))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("ns").await, ["default/kubernetes=10.0.0.1:80", "ns/web=10.0.0.3:80"]);
    let both = ["default/kubernetes=10.0.0.1:80", "ns2/kubernetes=10.0.0.4:80"];
    assert_eq!(told("ns2").await, both, "who wants no links still has to find the API server");
    assert_eq!(told("default").await, ["default/kubernetes=10.0.0.1:80", "default/other=10.0.0.2:80"]);
    world.api.delete("services", "ns", "web");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(told("ns").await, ["default/kubernetes=10.0.0.1:80"]);
}

#[tokio::test(start_paused = true)]
async fn services_that_were_never_read_are_an_error() {
    let world = World::new(Strategy::Watch);
    world.api.outage();
    let error = world.objects.services("ns").await.unwrap_err().to_string();
    assert_eq!(error, "services have not yet been read at least once, cannot construct envvars");
}

#[tokio::test(start_paused = true)]
async fn runtime_classes_are_read_when_somebody_asks() {
    let world = World::new(Strategy::Watch);
    world.api.put("runtimeclasses", json!({"metadata": {"name": "kata"}, "handler": "kata-qemu"}));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.api.watches("runtimeclasses"), 0);
    assert_eq!(world.objects.runtime_handler("kata").await.unwrap(), "kata-qemu");
    let missing = ObjectError::NotFound("runtimeclass.node.k8s.io \"none\" not found".to_owned());
    assert_eq!(world.objects.runtime_handler("none").await.unwrap_err(), missing);
}

fn wanted(uid: &Value) -> TokenWanted {
    TokenWanted {
        pod: PodRef::new("p", "ns", uid.as_str().unwrap()),
        service_account: "default".to_owned(),
        audiences: Vec::new(),
        expiration_seconds: 3600,
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_kept_refreshed_and_served_old_while_they_are_good() {
    let world = World::new(Strategy::Watch);
    let uid = world.api.put("pods", json!({"metadata": {"name": "p", "namespace": "ns"}}))["metadata"]["uid"]
        .clone();
    let wanted = wanted(&uid);
    let requests = || world.api.calls().iter().filter(|call| call.path.ends_with("/token")).count();
    world.api.fault_times(Where::path("/token"), Effect::Slow(Duration::from_secs(1)), 1);
    let (first, same) = tokio::join!(world.objects.token(&wanted), world.objects.token(&wanted));
    let first = first.unwrap();
    assert_eq!(first, same.unwrap());
    assert_eq!(requests(), 1, "one request for both");
    let calls = world.api.calls();
    let call = calls.iter().find(|call| call.asked == Asked::Call(Verb::Post)).unwrap();
    assert_eq!(call.path, "/api/v1/namespaces/ns/serviceaccounts/default/token");
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid});
    assert_eq!(call.json()["spec"]["boundObjectRef"], bound);
    assert_eq!(call.json()["spec"]["expirationSeconds"], 3600);

    sleep(Duration::from_secs(2800)).await;
    assert_eq!(world.objects.token(&wanted).await.unwrap(), first);
    world.api.outage();
    sleep(Duration::from_secs(100)).await;
    let old = world.objects.token(&wanted).await.unwrap();
    assert_eq!(old.text, first.text);
    assert!(old.refresh_at > first.refresh_at, "not asked for again at once");
    sleep(Duration::from_secs(800)).await;
    let error = world.objects.token(&wanted).await.unwrap_err().to_string();
    let start = format!(
        "token \"default\"/\"ns\"/[]string(nil)/3600/v1.BoundObjectReference{{Kind:\"Pod\", APIVersion:\"v1\", Name:\"p\", UID:{uid}}}/\"\" expired and refresh failed: "
    );
    assert!(error.starts_with(&start), "{error}");
    world.api.clear_faults();
    let new = world.objects.token(&wanted).await.unwrap();
    assert_ne!(new.text, first.text);
    world.objects.forget(&wanted.pod.uid);
    world.api.outage();
    let error = world.objects.token(&wanted).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to fetch token: "), "{error}");
    assert!(!format!("{new:?}").contains(&new.text));
}

#[tokio::test(start_paused = true)]
async fn long_lived_tokens_are_asked_for_again_after_a_day() {
    let world = World::new(Strategy::Watch);
    let uid = world.api.put("pods", json!({"metadata": {"name": "p", "namespace": "ns"}}))["metadata"]["uid"]
        .clone();
    let wanted = TokenWanted { expiration_seconds: 365 * 24 * 3600, ..wanted(&uid) };
    let first = world.objects.token(&wanted).await.unwrap();
    sleep(Duration::from_secs(24 * 3600 - 11)).await;
    assert_eq!(world.objects.token(&wanted).await.unwrap(), first);
    sleep(Duration::from_secs(12)).await;
    assert_ne!(world.objects.token(&wanted).await.unwrap(), first);
}

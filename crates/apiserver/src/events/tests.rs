use super::*;
use crate::fake::{Asked, Effect, FakeApiServer, Where};
use crablet_model::PodRef;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::Instant;

struct World {
    api: Arc<FakeApiServer>,
    recorder: Recorder,
    _tasks: JoinSet<()>,
}

impl World {
    fn new() -> Self {
        let begun = Instant::now();
        let now: Now = Arc::new(move || {
            Timestamp::from_second(1_700_000_000).unwrap()
                + SignedDuration::try_from(begun.elapsed()).unwrap()
        });
        let api = FakeApiServer::new(now.clone());
        let mut tasks = JoinSet::new();
        let recorder = Recorder::start(api.clone(), now, "node", 3, &mut tasks);
        Self { api, recorder, _tasks: tasks }
    }

    fn tell(&self, pod: &str, reason: &'static str, message: impl Into<String>) {
        self.recorder.pod(Event::warning(&PodRef::new(pod, "ns", "uid"), reason, message).on_container("c"));
    }

    /// Lets the recorder work, and gives `count message` of all events there are.
    async fn events(&self) -> Vec<String> {
        sleep(Duration::from_millis(1)).await;
        let mut events = self.api.list("events");
        events.sort_by_key(|event| event["metadata"]["creationTimestamp"].to_string());
        events
            .iter()
            .map(|event| format!("{} {}", event["count"], event["message"].as_str().unwrap()))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_upstream_says() {
    let world = World::new();
    world.tell("p", "BackOff", "Back-off restarting");
    world.recorder.node(NodeEvent::normal("Starting", "Starting kubelet."));
    world.events().await;
    let calls = world.api.calls();
    assert_eq!(calls[0].path, "/api/v1/namespaces/ns/events");
    assert_eq!(calls[0].lane, Lane::Events);
    let expected = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("p.{:x}", 1_700_000_000_000_000_000i64), "namespace": "ns"},
        "involvedObject": {
            "kind": "Pod", "namespace": "ns", "name": "p", "uid": "uid", "apiVersion": "v1",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "BackOff", "message": "Back-off restarting", "type": "Warning", "count": 1,
        "source": {"component": "kubelet", "host": "node"},
        "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:20Z", "eventTime": null,
        "reportingComponent": "kubelet", "reportingInstance": "node",
    });
    assert_eq!(calls[0].json(), expected);
    assert_eq!(calls[1].path, "/api/v1/namespaces/default/events");
    assert_eq!(
        calls[1].json()["involvedObject"],
        json!({"kind": "Node", "name": "node", "apiVersion": "v1"})
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_counted_also_after_the_server_forgot_it() {
    let world = World::new();
    world.tell("p", "BackOff", "again");
    sleep(Duration::from_secs(5)).await;
    world.tell("p", "BackOff", "again");
    assert_eq!(world.events().await, ["2 again"]);
    let patch = world.api.calls().pop().unwrap();
    assert_eq!(patch.asked, Asked::Call(Verb::StrategicPatch));
    assert_eq!(
        patch.json(),
        json!({"count": 2, "lastTimestamp": "2023-11-14T22:13:25Z", "message": "again"})
    );
    let event = world.api.list("events").remove(0);
    assert_eq!(event["firstTimestamp"], "2023-11-14T22:13:20Z");
    world.api.delete("events", "ns", event["metadata"]["name"].as_str().unwrap());
    world.tell("p", "BackOff", "again");
    assert_eq!(world.events().await, ["3 again"]);
}

#[tokio::test(start_paused = true)]
async fn many_messages_of_one_reason_become_one_event() {
    let world = World::new();
    for n in 1..=12 {
        world.tell("p", "Failed", format!("message {n}"));
        sleep(Duration::from_secs(1)).await;
    }
    let mut expected: Vec<String> = (1..=9).map(|n| format!("1 message {n}")).collect();
    expected.push("3 (combined from similar events): message 12".to_owned());
    assert_eq!(world.events().await, expected);
    // Ten quiet minutes later they are counted anew.
    sleep(Duration::from_secs(601)).await;
    world.tell("p", "Failed", "message 13");
    assert_eq!(world.events().await.last().unwrap(), "1 message 13");
}

#[tokio::test(start_paused = true)]
async fn one_object_is_heard_25_times_and_then_every_five_minutes() {
    let world = World::new();
    let sent = || world.api.calls().len();
    for _ in 0..100 {
        world.tell("p", "BackOff", "again");
    }
    world.tell("other", "BackOff", "again");
    assert_eq!(world.events().await, ["1 again", "25 again"]);
    assert_eq!(sent(), 26);
    sleep(Duration::from_secs(310)).await;
    for _ in 0..5 {
        world.tell("p", "BackOff", "again");
    }
    world.events().await;
    assert_eq!(sent(), 27);
    assert!(world.events().await.contains(&"101 again".to_owned()), "what was not sent was counted");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_for_two_minutes_and_a_refusal_is_not() {
    let world = World::new();
    world.api.fault_times(Where::path("/events"), Effect::Unreachable, 11);
    world.tell("p", "A", "late");
    sleep(Duration::from_secs(112)).await;
    assert_eq!(world.events().await, ["1 late"]);
    assert_eq!(world.api.take_calls().len(), 12);
    world.api.fault_times(Where::path("/events"), Effect::Unreachable, 12);
    world.tell("p", "A", "lost");
    world.tell("p", "A", "kept");
    sleep(Duration::from_secs(150)).await;
    assert_eq!(world.events().await, ["1 late", "1 kept"]);
    let message = "unable to create new content in namespace ns because it is being terminated".to_owned();
    let refused = Effect::Refuse { code: 403, reason: "Forbidden".to_owned(), message };
    world.api.fault_times(Where::path("/events"), refused, 1);
    world.tell("p", "A", "refused");
    world.tell("p", "A", "next");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.events().await, ["1 late", "1 kept", "1 next"]);
}

#[tokio::test(start_paused = true)]
async fn telling_never_waits_and_more_than_the_queue_is_dropped() {
    let world = World::new();
    world.api.outage();
    for n in 0..1500 {
        world.recorder.pod(Event::normal(&PodRef::new(&format!("p{n}"), "ns", &format!("u{n}")), "A", "x"));
    }
    world.api.clear_faults();
    sleep(Duration::from_secs(60)).await;
    let events = world.events().await.len();
    assert_eq!(events, QUEUE);
    world.tell("p", "A", "after");
    assert_eq!(world.events().await.len(), QUEUE + 1);
}

#[test]
fn names_that_would_be_too_long_are_uuids() {
    let long = wire::name(&"p".repeat(253), 1, &mut fastrand::Rng::with_seed(1));
    assert_eq!(long.len(), 36);
    assert_eq!(&long[14..15], "4");
}

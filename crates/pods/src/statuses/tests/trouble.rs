//! An API server that is slow, away, busy or of another opinion.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use crablet_apiserver::{WatchCall, WatchStream};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_until_it_is_told() {
    for effect in [Effect::Fail(500), Effect::Fail(429), Effect::Fail(403), Effect::Unreachable] {
        let rig = Rig::new();
        let web = rig.pod("web");
        rig.api.fault_times(Where::anywhere(), effect.clone(), 3);
        rig.publish(&web, json!({"phase": "Running"}));
        settle().await;
        assert_eq!(rig.said().len(), 1, "{effect:?}: no hurry");
        seconds(60).await;
        assert_eq!(rig.said().len(), 3, "{effect:?}");
        assert_eq!(rig.status("web"), json!({"phase": "Running"}), "{effect:?}");
    }
}

/// Says once when it wants to be asked again.
struct Busy {
    api: Arc<FakeApiServer>,
    is_busy: AtomicBool,
}

#[async_trait]
impl ApiServer for Busy {
    async fn call(&self, call: Call) -> Result<Bytes, ApiError> {
        if self.is_busy.swap(false, Ordering::Relaxed) {
            let status = json!({"reason": "TooManyRequests", "details": {"retryAfterSeconds": 20}});
            return Err(ApiError::of_status(429, status.to_string().as_bytes()));
        }
        self.api.call(call).await
    }

    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError> {
        self.api.watch(watch).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_says_when_to_come_back() {
    let api = FakeApiServer::new(Arc::new(|| Timestamp::UNIX_EPOCH));
    let busy = Arc::new(Busy { api: api.clone(), is_busy: AtomicBool::new(true) });
    let rig = Rig::over(api, busy);
    let web = rig.pod("web");
    rig.publish(&web, json!({"phase": "Pending", "message": "1"}));
    seconds(10).await;
    rig.publish(&web, json!({"phase": "Pending", "message": "2"}));
    seconds(9).await;
    assert!(rig.said().is_empty());
    seconds(2).await;
    assert_eq!(rig.said(), ["patch web"]);
    assert_eq!(rig.status("web"), json!({"phase": "Pending", "message": "2"}));
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_each_pod_is_caught_up_with_in_one_patch() {
    let rig = Rig::new();
    let pods: Vec<PodRef> = (0..30).map(|n| rig.pod(&format!("p{n:02}"))).collect();
    rig.api.outage();
    for minute in 0..10 {
        for id in &pods {
            rig.publish(id, json!({"phase": "Running", "message": minute.to_string()}));
        }
        seconds(60).await;
    }
    let tries = rig.said().len();
    assert!(tries <= 30 * 65, "{tries} tries in ten minutes");
    // The server is back and slow: more pods wait than calls may be under way.
    rig.api.clear_faults();
    rig.api.fault(Where::anywhere(), Effect::Slow(Duration::from_secs(2)));
    seconds(30).await;
    assert_eq!(rig.said().len(), 30);
    for id in &pods {
        assert_eq!(rig.status(&id.name), json!({"phase": "Running", "message": "9"}));
    }
    seconds(600).await;
    assert!(rig.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_is_not_repeated() {
    let rig = Rig::new();
    let web = rig.pod("web");
    let refuse = |code| Effect::Refuse { code, reason: "Invalid".into(), message: "status.podIP".into() };
    rig.api.fault_times(Where::anywhere(), refuse(422), 1);
    rig.publish(&web, json!({"phase": "Running", "podIP": "x"}));
    seconds(3600).await;
    rig.show("web");
    rig.publish(&web, json!({"phase": "Running", "podIP": "x"}));
    seconds(3600).await;
    assert_eq!(rig.said(), ["patch web"]);
    rig.publish(&web, json!({"phase": "Running", "podIP": "10.0.0.7"}));
    settle().await;
    assert_eq!(rig.said(), ["patch web"]);
    assert_eq!(rig.status("web"), json!({"phase": "Running", "podIP": "10.0.0.7"}));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_harms_nothing() {
    let rig = Rig::new();
    let (web, db) = (rig.pod("web"), rig.pod("db"));
    rig.api.fault_times(Where::anywhere(), Effect::LostAnswer, 2);
    rig.publish(&web, json!({"phase": "Running"}));
    rig.publish(&db, json!({"phase": "Running"}));
    settle().await;
    // The watch says of one of them that the patch was done.
    rig.show("web");
    let version =
        |name| rig.api.get("pods", "shop", name).expect("the pod")["metadata"]["resourceVersion"].clone();
    let before = version("db");
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web", "patch db", "patch db"]);
    assert_eq!(version("db"), before, "saying it again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_is_not_asked_for_again() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.api.fault_times(Where::anywhere(), Effect::Answer(Bytes::from_static(b"<html>")), 1);
    rig.publish(&web, json!({"phase": "Running"}));
    seconds(600).await;
    assert_eq!(rig.said(), ["patch web"]);
    // The watch knows better.
    rig.api.put("pods", {
        let mut meddled = pod("web");
        meddled["metadata"]["labels"] = json!({"a": "b"});
        meddled
    });
    rig.show("web");
    settle().await;
    assert_eq!(rig.said(), ["patch web"]);
    assert_eq!(rig.status("web"), json!({"phase": "Running"}));
}

/// Knows nothing of a field.
struct Older(Arc<FakeApiServer>);

#[async_trait]
impl ApiServer for Older {
    async fn call(&self, mut call: Call) -> Result<Bytes, ApiError> {
        let mut body: Value = serde_json::from_slice(&call.body).expect("JSON");
        if let Some(status) = body["status"].as_object_mut() {
            status.remove("observedGeneration");
        }
        call.body = body.to_string().into();
        self.0.call(call).await
    }

    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError> {
        self.0.watch(watch).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_leaves_out_what_it_does_not_know_is_told_once() {
    let api = FakeApiServer::new(Arc::new(|| Timestamp::UNIX_EPOCH));
    let rig = Rig::over(api.clone(), Arc::new(Older(api)));
    let web = rig.pod("web");
    let ours = json!({"phase": "Running", "observedGeneration": 1});
    rig.publish(&web, ours.clone());
    seconds(60).await;
    rig.show("web");
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web"]);
    // What somebody changes is put right all the same.
    let mut meddled = pod("web");
    meddled["status"] = json!({"phase": "Unknown"});
    rig.api.put("pods", meddled);
    rig.show("web");
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web"]);
    assert_eq!(rig.status("web"), json!({"phase": "Running"}));
    // And the pod can go.
    rig.api.delete_pod("shop", "web", None).expect("a deletion");
    rig.show("web");
    rig.say(&web, false, json!({"phase": "Failed", "observedGeneration": 2}), true);
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web", "delete web"]);
}

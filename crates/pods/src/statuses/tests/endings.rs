//! How a pod that has ended leaves the API.

use super::*;

const ENDED: &str = "Succeeded";

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_when_it_was_asked_to_go_and_holds_nothing_any_more() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.publish(&web, json!({"phase": "Running"}));
    settle().await;
    rig.api.delete_pod("shop", "web", None).expect("a deletion");
    rig.show("web");
    settle().await;
    rig.publish(&web, json!({"phase": ENDED}));
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web", "patch web"], "its volumes are still mounted");
    rig.say(&web, false, json!({"phase": ENDED}), true);
    settle().await;
    let calls = rig.api.take_calls();
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), ["delete web"]);
    let body = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": web.uid},
    });
    assert_eq!(calls[0].json(), body);
    assert!(rig.api.pods().is_empty());
    // Whatever the watch still has to say of it.
    rig.statuses.gone(&web);
    rig.statuses.forget(&web.uid);
    seconds(600).await;
    assert!(rig.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_asked_to_go_stays() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.say(&web, false, json!({"phase": ENDED}), true);
    seconds(600).await;
    assert_eq!(rig.said(), ["patch web"]);
    // Somebody asks for it much later: with finalizers, so that the API server does not do it alone.
    let mut held = rig.api.get("pods", "shop", "web").expect("the pod");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    rig.api.put("pods", held);
    rig.api.delete_pod("shop", "web", None).expect("a deletion");
    rig.show("web");
    settle().await;
    assert_eq!(rig.said(), ["delete web"]);
    rig.show("web");
    seconds(600).await;
    assert!(rig.said().is_empty(), "who holds it has been told enough");
}

#[tokio::test(start_paused = true)]
async fn the_last_status_is_written_before_the_pod_goes() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.api.delete_pod("shop", "web", None).expect("a deletion");
    rig.show("web");
    rig.api.fault_times(Where::path("/status"), Effect::Fail(503), 2);
    rig.say(&web, false, json!({"phase": ENDED, "message": "last words"}), true);
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web", "patch web", "patch web", "delete web"]);
    assert!(rig.api.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_does_not_keep_the_pod_for_ever() {
    let rig = Rig::new();
    let web = rig.pod("web");
    rig.api.delete_pod("shop", "web", None).expect("a deletion");
    rig.show("web");
    rig.api.fault(Where::path("/status"), Effect::Fail(422));
    rig.say(&web, false, json!({"phase": ENDED}), true);
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web", "delete web"]);
    assert!(rig.api.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_tried_again_and_never_strikes_a_successor() {
    for effect in [Effect::LostAnswer, Effect::Fail(500)] {
        let rig = Rig::new();
        let web = rig.pod("web");
        rig.api.delete_pod("shop", "web", None).expect("a deletion");
        rig.show("web");
        rig.api.fault_times(Where::call(Verb::Delete, ""), effect.clone(), 1);
        rig.say(&web, false, json!({"phase": ENDED}), true);
        settle().await;
        rig.api.delete("pods", "shop", "web");
        let successor = rig.api.put("pods", pod("web"));
        seconds(600).await;
        assert_eq!(rig.said(), ["patch web", "delete web", "delete web"], "{effect:?}");
        assert_eq!(rig.api.get("pods", "shop", "web"), Some(successor), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn mirrors_are_not_deleted_here() {
    let rig = Rig::new();
    let mut mirror = pod("web-n1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h1"});
    rig.api.put("pods", mirror);
    rig.api.delete_pod("shop", "web-n1", None).expect("a deletion");
    rig.show("web-n1");
    rig.say(&PodRef::new("web-n1", "shop", "5tat1c"), true, json!({"phase": ENDED}), true);
    seconds(60).await;
    assert_eq!(rig.said(), ["patch web-n1"]);
}

//! Scenarios: static pods come, change and go, and so do their mirrors.

use crablet_apiserver::fake::{Effect, Where};

use super::*;
use crate::cluster::testing::{Life, NODE_UID, seconds, settle, static_pod};

fn gone_options(uid: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
}

#[tokio::test(start_paused = true)]
async fn a_mirror_is_made_once_the_node_is_known() {
    let mut life = Life::new();
    life.want("h1");
    life.follow();
    seconds(60).await;
    assert!(life.said().is_empty(), "nobody could own it");
    life.cluster.mirrors.set_node(Some(NODE_UID.to_owned()));
    settle().await;
    let posts: Vec<_> = life.api.take_calls();
    assert_eq!(posts.len(), 1);
    assert_eq!(posts[0].path, "/api/v1/namespaces/kube-system/pods");
    let (_, pod) = static_pod("h1");
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "etcd-n1", "namespace": "kube-system", "labels": {"tier": "control-plane"},
            "annotations": {
                "kubernetes.io/config.hash": "h1", "kubernetes.io/config.source": "file",
                "kubernetes.io/config.seen": "1970-01-01T00:00:00.000000000Z", "kubernetes.io/config.mirror": "h1",
            },
            "ownerReferences":
                [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": NODE_UID, "controller": true}],
        },
        "spec": pod["spec"],
    });
    assert_eq!(posts[0].json(), expected);
    // The same pod stated again, and whatever the watch says, makes no second one.
    life.want("h1");
    seconds(3600).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_owns_new_mirrors() {
    let life = Life::complete().await;
    life.cluster.mirrors.set_node(None);
    life.want("h1");
    seconds(60).await;
    assert!(life.said().is_empty(), "a Node that is being deleted owns nothing new");
    life.cluster.mirrors.set_node(Some("another".to_owned()));
    settle().await;
    assert_eq!(life.said(), ["create"]);
    assert_eq!(life.mirror().expect("a mirror")["metadata"]["ownerReferences"][0]["uid"], "another");
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_has_a_new_mirror_once_its_old_form_has_ended() {
    let life = Life::complete().await;
    let old = life.want("h1");
    settle().await;
    let first = life.mirror_uid();
    life.said();
    life.cluster.mirrors.unwanted(&old);
    life.want("h2");
    // A form that never had its turn changes nothing.
    let skipped = life.want("h3");
    life.cluster.mirrors.unwanted(&skipped);
    life.cluster.mirrors.ended(&skipped);
    let new = life.want("h4");
    seconds(60).await;
    assert!(life.said().is_empty(), "as long as the old form runs, the cluster sees that");
    life.cluster.mirrors.ended(&old);
    settle().await;
    let calls = life.api.calls();
    assert_eq!(life.said(), ["delete", "create"]);
    assert_eq!(calls[0].json(), gone_options(&first));
    let mirror = life.mirror().expect("a mirror");
    assert_ne!(mirror["metadata"]["uid"], json!(first));
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"], new.uid.as_str());
    assert_eq!(mirror["spec"]["containers"][0]["image"], "h4");
    seconds(3600).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_deleted_by_hand_is_made_again() {
    let life = Life::complete().await;
    life.want("h1");
    settle().await;
    life.said();
    // By force.
    life.api.delete("pods", "kube-system", "etcd-n1");
    settle().await;
    assert_eq!(life.said(), ["create"]);
    // With grace: the last word is the agent's.
    let doomed = life.mirror_uid();
    life.api.delete_pod("kube-system", "etcd-n1", None).expect("a deletion");
    settle().await;
    let calls = life.api.calls();
    assert_eq!(life.said(), ["delete", "create"]);
    assert_eq!(calls[0].json(), gone_options(&doomed));
    assert_ne!(life.mirror_uid(), doomed);
    seconds(3600).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_mirror_stays_until_its_pod_has_ended() {
    let life = Life::complete().await;
    let id = life.want("h1");
    settle().await;
    let uid = life.mirror_uid();
    life.said();
    life.cluster.mirrors.unwanted(&id);
    seconds(600).await;
    assert!(life.said().is_empty());
    // Back before it has ended, and gone again.
    life.want("h1");
    life.cluster.mirrors.unwanted(&id);
    settle().await;
    life.cluster.mirrors.ended(&id);
    settle().await;
    let calls = life.api.calls();
    assert_eq!(life.said(), ["delete"]);
    assert_eq!(
        (calls[0].path.as_str(), calls[0].json()),
        ("/api/v1/namespaces/kube-system/pods/etcd-n1", gone_options(&uid))
    );
    assert!(life.mirror().is_none());
    seconds(600).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_mirror_without_a_pod_goes_only_when_everybody_has_spoken() {
    let before = Life::complete().await;
    before.want("h1");
    settle().await;
    let api = before.api.clone();
    drop(before);
    api.take_calls();
    for sources_first in [true, false] {
        let mut life = Life::of(api.clone());
        life.cluster.mirrors.set_node(Some(NODE_UID.to_owned()));
        if sources_first {
            life.cluster.mirrors.sources_ready();
        } else {
            life.follow();
        }
        seconds(60).await;
        assert!(life.said().is_empty(), "{sources_first}");
        if !sources_first {
            life.cluster.mirrors.sources_ready();
            settle().await;
            assert_eq!(life.said(), ["delete"]);
        }
    }
    assert!(api.pods().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_leaves_good_mirrors_alone() {
    let before = Life::complete().await;
    before.want("h1");
    settle().await;
    let api = before.api.clone();
    drop(before);
    api.take_calls();
    for list_first in [true, false] {
        let mut life = Life::of(api.clone());
        life.cluster.mirrors.set_node(Some(NODE_UID.to_owned()));
        if list_first {
            life.follow();
            settle().await;
            life.want("h1");
        } else {
            life.want("h1");
            settle().await;
            life.follow();
        }
        life.cluster.mirrors.sources_ready();
        seconds(3600).await;
        assert!(life.said().is_empty(), "{list_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_is_tried_again_without_a_storm() {
    let missing = |code, reason: &str, message: &str| Effect::Refuse {
        code,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    for effect in [
        missing(404, "NotFound", "namespaces \"kube-system\" not found"),
        missing(403, "Forbidden", "namespace kube-system is being terminated"),
        Effect::Fail(500),
        Effect::Unreachable,
    ] {
        let life = Life::complete().await;
        life.api.fault(Where::call(Verb::Post, ""), effect.clone());
        life.want("h1");
        seconds(600).await;
        let tries = life.said().len();
        assert!((5..=70).contains(&tries), "{effect:?}: {tries} tries in ten minutes");
        life.api.clear_faults();
        seconds(15).await;
        assert_eq!(life.said(), ["create"], "{effect:?}");
        assert!(life.mirror().is_some(), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_mirror() {
    let life = Life::complete().await;
    life.api.fault_times(Where::call(Verb::Post, ""), Effect::LostAnswer, 1);
    let id = life.want("h1");
    seconds(600).await;
    assert_eq!(life.said(), ["create"], "the watch shows that it was made");
    life.api.fault_times(Where::call(Verb::Delete, ""), Effect::LostAnswer, 1);
    life.cluster.mirrors.unwanted(&id);
    life.cluster.mirrors.ended(&id);
    seconds(600).await;
    assert_eq!(life.said(), ["delete"], "the watch shows that it is gone");
    assert!(life.mirror().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_somebody_else_keeps_its_name() {
    let life = Life::complete().await;
    let foreign = json!({
        "metadata": {"name": "etcd-n1", "namespace": "kube-system"}, "spec": {"nodeName": "n2", "containers": []},
    });
    let foreign = life.api.put("pods", foreign);
    life.want("h1");
    seconds(600).await;
    let tries = life.said();
    assert!(tries.len() <= 70 && tries.iter().all(|said| said == "create"), "{tries:?}");
    assert_eq!(life.mirror(), Some(foreign));
    life.api.delete("pods", "kube-system", "etcd-n1");
    seconds(15).await;
    assert_eq!(life.said(), ["create"]);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_replaced_meanwhile_is_left_alone() {
    let life = Life::complete().await;
    let old = life.want("h1");
    settle().await;
    life.said();
    life.api.fault_times(Where::call(Verb::Delete, ""), Effect::Slow(Duration::from_secs(5)), 1);
    life.cluster.mirrors.unwanted(&old);
    life.want("h2");
    life.cluster.mirrors.ended(&old);
    settle().await;
    // While the deletion is on its way, somebody does the same by hand.
    let mut good = static_pod("h2").1;
    good["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("h2");
    life.api.delete("pods", "kube-system", "etcd-n1");
    life.api.put("pods", good);
    seconds(600).await;
    assert_eq!(life.said(), ["delete"]);
    assert_eq!(life.mirror_uid(), "h2");
}

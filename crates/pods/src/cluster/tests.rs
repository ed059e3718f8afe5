//! Static pods' mirrors and their statuses, over one watch.

use serde_json::json;

use super::testing::{Life, seconds, settle};

#[tokio::test(start_paused = true)]
async fn each_mirror_of_a_static_pod_gets_its_status() {
    let life = Life::complete().await;
    let id = life.want("h1");
    life.publish(&id, json!({"phase": "Running", "podIP": "192.0.2.1"}));
    settle().await;
    assert_eq!(life.said(), ["create", "patch"]);
    let status = json!({"phase": "Running", "podIP": "192.0.2.1"});
    assert_eq!(life.mirror().expect("a mirror")["status"], status);
    let first = life.mirror_uid();
    life.api.delete_pod("kube-system", "etcd-n1", None).expect("a deletion");
    settle().await;
    assert_eq!(life.said(), ["delete", "create", "patch"]);
    assert_ne!(life.mirror_uid(), first);
    assert_eq!(life.mirror().expect("a mirror")["status"], status);
    seconds(3600).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_happened_during_an_outage_is_made_good() {
    let life = Life::complete().await;
    let id = life.want("h1");
    life.publish(&id, json!({"phase": "Pending"}));
    settle().await;
    let first = life.mirror_uid();
    // The mirror goes and the status changes while nothing answers; the history is lost too.
    life.api.outage();
    life.api.delete("pods", "kube-system", "etcd-n1");
    life.publish(&id, json!({"phase": "Running"}));
    seconds(600).await;
    life.said();
    life.api.expire_versions();
    life.api.clear_faults();
    seconds(120).await;
    // A patch for the old mirror may come before the news that it is gone.
    let said = life.said();
    assert_eq!(said.iter().filter(|said| *said == "create").count(), 1, "{said:?}");
    assert!(said.len() <= 3, "{said:?}");
    assert_ne!(life.mirror_uid(), first);
    assert_eq!(life.mirror().expect("a mirror")["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn a_new_watch_of_the_same_pods_says_nothing_new() {
    let mut life = Life::complete().await;
    let id = life.want("h1");
    life.publish(&id, json!({"phase": "Running"}));
    settle().await;
    life.said();
    for _ in 0..3 {
        life.api.break_watches();
        life.api.expire_versions();
        seconds(120).await;
    }
    life.follow();
    seconds(120).await;
    assert!(life.said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_another_agent_told_of_a_static_pod_stands_in_its_mirror() {
    let life = Life::complete().await;
    let id = life.want("h1");
    assert_eq!(life.cluster.status_of_mirror(&id, "h1"), None);
    life.publish(&id, json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}));
    settle().await;
    let mut next = Life::of(life.api.clone());
    assert!(!next.cluster.mirrors.is_listed());
    next.follow();
    settle().await;
    assert!(next.cluster.mirrors.is_listed());
    let told = next.cluster.status_of_mirror(&id, "h1").expect("a status");
    assert_eq!(told.phase.as_deref(), Some("Running"));
    assert_eq!(next.cluster.status_of_mirror(&id, "h2"), None, "that is another form of the pod");
}

use std::time::Duration;

use crablet_apiserver::fake::{Effect, Where};
use crablet_apiserver::{Lane, Verb};
use serde_json::json;

use crate::world::World;

fn renewed(world: &World) -> String {
    world.lease().map(|lease| lease["spec"]["renewTime"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_created_and_renewed() {
    let mut world = World::new();
    world.start_ready().await;
    let lease = world.lease().unwrap();
    let mut spec = lease["spec"].clone();
    let time = spec.as_object_mut().unwrap().remove("renewTime").unwrap();
    assert_eq!(time.as_str().unwrap().len(), "2026-11-15T10:00:00.000000Z".len());
    assert_eq!(spec, json!({"holderIdentity": "n1", "leaseDurationSeconds": 40}));
    let uid = world.node().unwrap()["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]);
    assert_eq!(lease["metadata"]["ownerReferences"], owner);

    world.pass(Duration::from_secs(120)).await;
    let renewals = world.calls(Verb::Put, "leases");
    assert!((11..=12).contains(&renewals.len()), "{} renewals in two minutes", renewals.len());
    assert!(renewals.iter().all(|call| call.lane == Lane::Heartbeat));
    assert_eq!(world.calls(Verb::Get, "leases").len(), 0, "the last answer is enough");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_others_making_is_taken_over() {
    let mut world = World::new();
    let lease = json!({
        "metadata": {"name": "n1", "namespace": "kube-node-lease", "annotations": {"kept": "1"}},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 10, "strategy": "kept"},
    });
    world.api.put("leases", lease);
    world.start_ready().await;
    world.pass(Duration::from_secs(11)).await;
    let lease = world.lease().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["kept"], "1");
    assert_eq!(
        (lease["spec"]["strategy"].as_str(), lease["spec"]["leaseDurationSeconds"].as_i64()),
        (Some("kept"), Some(40))
    );
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], world.node().unwrap()["metadata"]["uid"]);

    // Somebody writes in between: the conflict is settled within the same tick.
    let mut touched = world.lease().unwrap();
    touched["metadata"]["annotations"]["kept"] = json!("2");
    world.api.put("leases", touched);
    let before = renewed(&world);
    world.pass(Duration::from_secs(11)).await;
    assert_ne!(renewed(&world), before);
    assert_eq!(world.lease().unwrap()["metadata"]["annotations"]["kept"], "2");

    world.api.delete("leases", "kube-node-lease", "n1");
    world.pass(Duration::from_secs(11)).await;
    assert!(world.lease().is_some(), "made again");
}

#[tokio::test(start_paused = true)]
async fn the_lease_waits_for_nothing() {
    let mut world = World::new();
    world.start_ready().await;
    let hanging = Effect::Slow(Duration::from_secs(3600));
    world.api.fault(Where::path("/api/v1/nodes"), hanging.clone());
    world.api.fault(Where::path("csinodes"), hanging);
    world.health.send_modify(|health| health.errors.push("container runtime is down".to_owned()));
    for _ in 0..10 {
        let before = renewed(&world);
        world.pass(Duration::from_millis(10_500)).await;
        assert_ne!(renewed(&world), before);
    }
    assert_eq!(world.ready(), "True", "the status hangs");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_soon_after_an_outage() {
    let mut world = World::new();
    world.start_ready().await;
    world.api.outage();
    world.pass(Duration::from_secs(600)).await;
    let before = renewed(&world);
    world.api.clear_faults();
    world.pass(Duration::from_secs(8)).await;
    assert_ne!(renewed(&world), before);
}

use std::time::Duration;

use crablet_apiserver::Verb;
use crablet_apiserver::fake::{Effect, Where};
use crablet_node::RuntimeState;
use serde_json::json;

use crate::world::{World, healthy};

#[tokio::test(start_paused = true)]
async fn a_node_registers_and_is_ready_at_once() {
    let mut world = World::new();
    world.start();
    world.pass(Duration::from_millis(50)).await;
    let node = world.node().expect("registered");
    assert_eq!(node["metadata"]["labels"]["team"], "crabs");
    assert_eq!(world.ready(), "True", "{node:#}");
    assert_eq!(
        world.events(),
        ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]
    );
    let csi_node = world.api.get("csinodes", "", "n1").expect("a CSINode");
    assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let migrated =
        csi_node["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"].as_str();
    assert_eq!(migrated.map(|plugins| plugins.split(',').count()), Some(7));
    let view = world.view();
    assert_eq!(view.uid.as_deref(), node["metadata"]["uid"].as_str());
    assert_eq!(view.host_ips, ["10.0.0.5".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(json!(view.addresses), node["status"]["addresses"]);
    assert_eq!(view.allocatable["pods"].value(), 110);
    assert!(view.synced);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_ready_as_soon_as_its_runtime_is() {
    let mut world = World::new();
    world.health.send_replace(RuntimeState::default());
    world.start();
    world.until("it is registered", |w| w.ready() == "False").await;
    assert_eq!(
        world.condition("Ready")["message"],
        "[container runtime status check may not have completed yet, network state unknown]"
    );
    world.pass(Duration::from_secs(3)).await;
    world.health.send_replace(healthy());
    world.pass(Duration::from_millis(150)).await;
    assert_eq!(world.ready(), "True");
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_node_ready_and_reconciles_it() {
    let mut world = World::new();
    world.start_ready().await;
    let before = world.condition("Ready")["lastTransitionTime"].clone();
    world.stop();
    let mut node = world.node().unwrap();
    node["metadata"]["labels"]["kubernetes.io/hostname"] = json!("wrong");
    node["metadata"]["labels"]["team"] = json!("lobsters");
    node["status"]["capacity"]["example.com/dongle"] = json!("2");
    node["status"]["allocatable"]["example.com/dongle"] = json!("2");
    world.api.put("nodes", node);
    world.host.0.lock().unwrap().machine.boot_id = "fake-boot-2".to_owned();
    // The runtime answers a moment after the start.
    world.health.send_replace(RuntimeState::default());
    world.start();
    world.pass(Duration::from_millis(500)).await;
    world.health.send_replace(healthy());
    world
        .until("the reboot is seen", |w| w.node().unwrap()["status"]["nodeInfo"]["bootID"] == "fake-boot-2")
        .await;
    let node = world.node().unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(node["metadata"]["labels"]["team"], "lobsters", "the cluster's label is the cluster's");
    assert_eq!(node["status"]["capacity"]["example.com/dongle"], "0");
    assert_eq!(world.condition("Ready")["lastTransitionTime"], before);
    let events = world.events();
    assert!(events.contains(&"Rebooted") && !events.contains(&"NodeNotReady"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn one_who_may_not_create_uses_the_node_that_is_there() {
    let mut world = World::new();
    world.api.put("nodes", json!({"metadata": {"name": "n1"}}));
    world.api.fault(Where::call(Verb::Post, "/api/v1/nodes"), Effect::Fail(403));
    world.start();
    world.until("it is ready", |w| w.ready() == "True").await;
    assert_eq!(world.node().unwrap()["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert!(world.node().unwrap()["metadata"]["labels"].get("team").is_none());
}

#[tokio::test(start_paused = true)]
async fn registration_goes_on_until_the_api_server_is_there() {
    let mut world = World::new();
    world.api.outage();
    world.start();
    world.pass(Duration::from_secs(600)).await;
    let tries = world.calls(Verb::Post, "/api/v1/nodes").len();
    assert!((80..110).contains(&tries), "{tries} tries in ten minutes");
    assert!(!world.view().synced);
    assert_eq!(world.view().host_ips.len(), 1, "static pods need to know");
    assert!(world.view().addresses.is_empty(), "there is no Node that says any");
    world.api.clear_faults();
    world.until("it is ready", |w| w.ready() == "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_csi_node_of_an_older_node_is_replaced_and_failures_are_said() {
    let mut world = World::new();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "older"}]);
    world.api.put(
        "csinodes",
        json!({"metadata": {"name": "n1", "ownerReferences": owner}, "spec": {"drivers": []}}),
    );
    world.api.fault(Where::call(Verb::Delete, "csinodes"), Effect::Fail(500));
    world.start();
    world
        .until("it is said", |w| {
            w.condition("Ready")["message"]
                .as_str()
                .is_some_and(|m| m.starts_with("failed to initialize CSINode: "))
        })
        .await;
    world.api.clear_faults();
    world.until("it is ready", |w| w.ready() == "True").await;
    let csi_node = world.api.get("csinodes", "", "n1").unwrap();
    assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], world.node().unwrap()["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn standalone_the_machine_is_all_there_is() {
    let mut world = World::new();
    world.start_with(None);
    world.until("it is known", |w| w.view().synced).await;
    let view = world.view();
    assert_eq!((view.uid.clone(), view.host_ips.len(), view.allocatable["cpu"].value()), (None, 1, 4));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!((world.api.calls().len(), world.events().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn standalone_an_address_that_comes_late_is_found() {
    let mut world = World::new();
    let interfaces = std::mem::take(&mut world.host.0.lock().unwrap().interfaces);
    world.start_with(None);
    world.until("the machine was looked at", |w| w.view().synced).await;
    assert!(world.view().host_ips.is_empty());
    world.host.0.lock().unwrap().interfaces = interfaces;
    world.until("it has an address", |w| w.view().host_ips.len() == 1).await;
}

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::fake::{Effect, Where};
use crablet_apiserver::{Lane, Verb};
use crablet_model::api;
use crablet_node::fake::FakeAnswers;
use jiff::SignedDuration;
use serde_json::json;

use crate::world::World;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn what_changes_is_told_at_once_and_nothing_else_is() {
    let mut world = World::new();
    world.start_ready().await;
    world.pass(MINUTE).await;
    assert_eq!(world.patches(), 0, "nothing has changed");

    world.health.send_modify(|health| health.network_error = Some("no network".to_owned()));
    world.pass(Duration::from_millis(150)).await;
    assert_eq!((world.patches(), world.ready().as_str()), (1, "False"));
    assert_eq!(world.condition("Ready")["message"], "no network");
    assert_eq!(world.events(), ["NodeNotReady"]);
    let patch = world.calls(Verb::StrategicPatch, "status").remove(0);
    assert_eq!(patch.lane, Lane::Heartbeat);
    assert_eq!(patch.json()["status"].as_object().unwrap().len(), 1, "{:#}", patch.json());

    world.health.send_modify(|health| health.network_error = None);
    let image = api::ContainerImage { names: Some(vec!["a:1".to_owned()]), size_bytes: Some(5) };
    world.images.send_replace(Arc::new(vec![image]));
    world.pass(Duration::from_millis(250)).await;
    assert_eq!((world.patches(), world.events()), (2, vec!["NodeReady"]));
    assert_eq!(world.node().unwrap()["status"]["images"], json!([{"names": ["a:1"], "sizeBytes": 5}]));

    // Nobody tells of an address; it is looked at.
    world.host.0.lock().unwrap().interfaces[1].addresses = vec!["10.0.0.6".parse().unwrap()];
    world.pass(Duration::from_secs(11)).await;
    let addresses =
        json!([{"type": "InternalIP", "address": "10.0.0.6"}, {"type": "Hostname", "address": "n1"}]);
    assert_eq!(world.node().unwrap()["status"]["addresses"], addresses);
    assert_eq!(world.patches(), 3);
    assert_eq!(world.view().host_ips, ["10.0.0.6".parse::<std::net::IpAddr>().unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_too_busy_to_answer_keeps_its_addresses() {
    let mut world = World::new();
    world.host.0.lock().unwrap().network = FakeAnswers::After(Duration::from_secs(20));
    let known = json!([{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "n1"}]);
    let addresses = |world: &World| world.node().map(|node| node["status"]["addresses"].clone());
    world.start();
    world.until("the node has its addresses", |world| addresses(world) == Some(known.clone())).await;
    for answers in [FakeAnswers::Never, FakeAnswers::Fails] {
        world.host.0.lock().unwrap().network = answers;
        world.pass(MINUTE * 2).await;
        assert_eq!(addresses(&world), Some(known.clone()), "{answers:?}");
    }
    // What is answered counts: also that an address has gone.
    {
        let machine = &mut *world.host.0.lock().unwrap();
        machine.interfaces[1].addresses = vec!["10.0.0.6".parse().unwrap()];
        machine.network = FakeAnswers::AtOnce;
    }
    world.pass(MINUTE).await;
    assert_eq!(addresses(&world).unwrap_or_default()[0]["address"], "10.0.0.6");
}

#[tokio::test(start_paused = true)]
async fn facts_that_never_rest_do_not_flood_the_api_server() {
    let mut world = World::new();
    world.start_ready().await;
    world.host.0.lock().unwrap().interfaces[1].addresses = vec!["10.0.0.6".parse().unwrap()];
    for second in 0..600 {
        let message = format!("PLEG is not healthy: pleg was last seen active {second} ago");
        world.health.send_modify(|health| health.errors = vec![message]);
        world.pass(Duration::from_millis(50)).await;
    }
    assert!((20..=50).contains(&world.patches()), "{} patches in half a minute", world.patches());
    assert_eq!(world.events(), ["NodeNotReady"]);
    assert_eq!(
        world.node().unwrap()["status"]["addresses"][0]["address"],
        "10.0.0.6",
        "the machine is looked at"
    );
}

#[tokio::test(start_paused = true)]
async fn a_report_comes_without_a_change_too() {
    let mut world = World::new();
    world.start_ready().await;
    // Half the period to one and a half after a change, then the period; a jump of the clock changes nothing of that.
    world.pass(MINUTE * 2).await;
    assert_eq!(world.patches(), 0);
    world.clock.jump(SignedDuration::from_hours(-30));
    world.pass(MINUTE * 6).await;
    assert!((1..=2).contains(&world.patches()), "{} reports", world.patches());
    world.clock.jump(SignedDuration::from_hours(60));
    world.pass(MINUTE * 52).await;
    assert!((10..=12).contains(&world.patches()), "{} reports in an hour", world.patches());
    assert_eq!(world.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn what_others_say_stays() {
    let mut world = World::new();
    world.start_ready().await;
    let mut conditions = world.node().unwrap()["status"]["conditions"].clone();
    let foreign =
        json!({"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "ok"});
    conditions.as_array_mut().unwrap().insert(0, foreign.clone());
    world.others_change("/status", json!({"status": {"conditions": conditions}})).await;
    let change = json!({
        "metadata": {"labels": {"zone": "a"}},
        "spec": {"podCIDRs": ["10.1.0.0/24"], "unschedulable": true},
    });
    world.others_change("", change).await;
    world.until("the cordon is told", |w| w.events() == ["NodeNotSchedulable"]).await;
    world.health.send_modify(|health| health.errors.push("container runtime is down".to_owned()));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!((world.ready().as_str(), world.patches()), ("False", 1));
    assert_eq!(world.condition("NetworkUnavailable"), foreign);
    assert_eq!(world.node().unwrap()["metadata"]["labels"]["zone"], "a");
    let view = world.view();
    assert_eq!((view.pod_cidrs.clone(), view.unschedulable), (vec!["10.1.0.0/24".to_owned()], true));

    // What the cluster says of a node that it has not heard from is corrected.
    let mut conditions = world.node().unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions[1]["type"], "MemoryPressure");
    conditions[1]["status"] = json!("Unknown");
    world.others_change("/status", json!({"status": {"conditions": conditions}})).await;
    world.pass(Duration::from_secs(11)).await;
    assert_eq!(world.condition("MemoryPressure")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out() {
    let mut world = World::new();
    world.start_ready().await;
    world.api.outage();
    world.health.send_modify(|health| health.errors.push("container runtime is down".to_owned()));
    world.pass(MINUTE * 10).await;
    let tries = world.api.calls().len();
    assert!(tries < 10 * 60 * 2, "{tries} requests in ten minutes");
    assert_eq!(world.events(), Vec::<&str>::new(), "told once it is true in the cluster");
    world.api.clear_faults();
    let back = world.api.take_calls().len();
    world.pass(Duration::from_secs(20)).await;
    assert_eq!((world.ready().as_str(), world.events()), ("False", vec!["NodeNotReady"]), "{back}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_patch_is_tried_again_and_never_in_a_circle() {
    for (effect, times) in [(Effect::Fail(500), 4), (Effect::Fail(409), 4), (Effect::LostAnswer, 1)] {
        let mut world = World::new();
        world.start_ready().await;
        world.api.fault_times(Where::call(Verb::StrategicPatch, "status"), effect.clone(), times);
        world.health.send_modify(|health| health.errors.push("container runtime is down".to_owned()));
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.ready(), "False", "{effect:?}");
        let asked = world.calls(Verb::Get, "/api/v1/nodes/n1");
        assert!(asked.iter().all(|call| call.lane == Lane::Heartbeat) && !asked.is_empty(), "{effect:?}");
        assert_eq!(world.events(), ["NodeNotReady"], "{effect:?}");
    }
    for code in [403, 429, 500] {
        let mut world = World::new();
        world.start_ready().await;
        world.api.fault(Where::call(Verb::StrategicPatch, "status"), Effect::Fail(code));
        world.health.send_modify(|health| health.errors.push("container runtime is down".to_owned()));
        world.pass(MINUTE * 2).await;
        let tries = world.patches();
        assert!((10..=70).contains(&tries), "{code}: {tries} tries in two minutes");
        world.api.clear_faults();
        world.pass(Duration::from_secs(11)).await;
        assert_eq!(world.ready(), "False", "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_stays_deleted() {
    let mut world = World::new();
    world.start_ready().await;
    world.api.delete("nodes", "", "n1");
    world.until("it is known", |w| w.view().uid.is_none()).await;
    assert_eq!(world.view().host_ips.len(), 1);
    world.pass(MINUTE * 5).await;
    assert_eq!(world.node(), None);
    assert!(world.api.calls().len() < 200, "{} requests", world.api.calls().len());
    // Somebody makes one: then it is kept true again.
    world.api.put("nodes", json!({"metadata": {"name": "n1"}}));
    world.until("it is ready", |w| w.ready() == "True").await;
    world.api.delete("nodes", "", "n1");
    world.stop();
    world.start();
    world.until("it is registered again", |w| w.ready() == "True").await;
}

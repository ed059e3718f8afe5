//! Drivers on the Node and on the CSINode.

use crablet_node::DriverInfo;
use serde_json::json;

use crate::world::{NODE, World};

fn info(id: &str, max_volumes: i64, zone: Option<&str>) -> DriverInfo {
    let topology = zone.map(|zone| ("topology.d.io/zone".to_owned(), zone.to_owned())).into_iter().collect();
    DriverInfo { node_id: id.to_owned(), max_volumes, topology }
}

#[tokio::test(start_paused = true)]
async fn drivers_come_and_go() {
    let mut world = World::new();
    world.start_ready().await;
    let drivers = world.csi_drivers();
    drivers.install("a.io", &info("id-a", 0, Some("east"))).await.unwrap();
    drivers.install("b.io", &info("id-b", 5_000_000_000, None)).await.unwrap();
    let node = world.node().unwrap();
    assert_eq!(node["metadata"]["labels"]["topology.d.io/zone"], "east");
    let ids = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].as_str().unwrap();
    assert_eq!(ids, r#"{"a.io":"id-a","b.io":"id-b"}"#);
    let listed = || world.api.get("csinodes", "", NODE).unwrap()["spec"]["drivers"].clone();
    assert_eq!(
        listed(),
        json!([
            { "name": "a.io", "nodeID": "id-a", "topologyKeys": ["topology.d.io/zone"] },
            { "name": "b.io", "nodeID": "id-b", "topologyKeys": [], "allocatable": { "count": i32::MAX } },
        ])
    );
    drivers.update("a.io", &info("id-a", 7, Some("east"))).await.unwrap();
    assert_eq!(listed()[1]["allocatable"]["count"], 7);

    // What is known already is not said again.
    world.api.take_calls();
    drivers.install("a.io", &info("id-a", 7, Some("east"))).await.unwrap();
    assert!(
        world.api.calls().iter().all(|call| call.path.contains("lease") || !call.path.contains("status"))
    );

    drivers.uninstall("b.io").await.unwrap();
    drivers.uninstall("a.io").await.unwrap();
    drivers.uninstall("a.io").await.unwrap();
    assert_eq!(listed(), json!([]));
    let metadata = world.node().unwrap()["metadata"].clone();
    assert_eq!(metadata["annotations"].get("csi.volume.kubernetes.io/nodeid"), None);
    assert_eq!(metadata["labels"]["topology.d.io/zone"], "east");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_elsewhere_already_is_refused() {
    let mut world = World::new();
    world.start_ready().await;
    let drivers = world.csi_drivers();
    drivers.install("a.io", &info("id", 0, Some("east"))).await.unwrap();
    let error = drivers.install("b.io", &info("id", 0, Some("west"))).await.unwrap_err();
    assert!(
        error.contains(
            r#"detected topology value collision: driver reported "topology.d.io/zone":"west" but existing label is"#
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_csi_node_that_vanished_or_belongs_to_another_is_made_anew() {
    let mut world = World::new();
    world.start_ready().await;
    let mut foreign = world.api.get("csinodes", "", NODE).unwrap();
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    world.api.put("csinodes", foreign);
    world.csi_drivers().install("a.io", &info("id", 0, None)).await.unwrap();
    let csi_node = world.api.get("csinodes", "", NODE).unwrap();
    assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], world.node().unwrap()["metadata"]["uid"]);
    assert_eq!(csi_node["spec"]["drivers"][0]["name"], "a.io");
}

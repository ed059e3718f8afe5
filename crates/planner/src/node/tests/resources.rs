use serde_json::json;

use super::*;
use crate::node::resources::set_resources;

/// `capacity | allocatable` of `name`.
fn amounts(world: &World, old: Value, name: &str) -> String {
    let mut node = node(json!({"metadata": {}, "status": old}));
    let status = node.status.get_or_insert_default();
    set_resources(status, &world.facts());
    let of = |list: &Option<BTreeMap<String, _>>| match list.as_ref().and_then(|list| list.get(name)) {
        Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(text)) => text.clone(),
        None => "-".to_owned(),
    };
    format!("{} | {}", of(&status.capacity), of(&status.allocatable))
}

#[test]
fn allocatable_is_capacity_without_what_is_kept_back() {
    type Change = fn(&mut World);
    let cases: &[(&str, Change, &str, &str)] = &[
        ("plain", |_| {}, "cpu", "4 | 4"),
        ("plain", |_| {}, "memory", "8Gi | 8Gi"),
        ("plain", |_| {}, "ephemeral-storage", "100Gi | 100Gi"),
        ("plain", |_| {}, "pods", "110 | 110"),
        ("no disk watched", |w| w.settings.local_storage_isolation = false, "ephemeral-storage", "- | -"),
        ("pods per core", |w| w.settings.pods_per_core = 10, "pods", "40 | 40"),
        ("pods per core, capped", |w| w.settings.pods_per_core = 100, "pods", "110 | 110"),
        (
            "reserved twice",
            |w| {
                w.settings.system_reserved = quantities(&[("cpu", "500m"), ("pid", "100")]);
                w.settings.kube_reserved = quantities(&[("cpu", "250m")]);
            },
            "cpu",
            "4 | 3250m",
        ),
        (
            "reserved and evicted",
            |w| {
                w.settings.system_reserved = quantities(&[("memory", "1Gi")]);
                w.settings.eviction_hard.insert("memory.available".to_owned(), "100Mi".to_owned());
            },
            "memory",
            "8Gi | 7068Mi",
        ),
        (
            "percentage, in single precision as upstream",
            |w| {
                w.root_capacity = Some(81_106_868 * 1024);
                w.settings.eviction_hard.insert("nodefs.available".to_owned(), "10%".to_owned());
                w.settings.eviction_hard.insert("imagefs.available".to_owned(), "15%".to_owned());
            },
            "ephemeral-storage",
            "81106868Ki | 74748089426",
        ),
        (
            "all of it is no threshold",
            |w| {
                w.settings.eviction_hard.insert("memory.available".to_owned(), "100%".to_owned());
            },
            "memory",
            "8Gi | 8Gi",
        ),
        (
            "more than there is",
            |w| w.settings.kube_reserved = quantities(&[("memory", "9Gi")]),
            "memory",
            "8Gi | 0",
        ),
        (
            "huge pages come out of memory",
            |w| {
                w.machine.as_mut().unwrap().huge_pages = [(2 << 20, 512), (1 << 30, 1)].into();
                w.settings.kube_reserved = quantities(&[("hugepages-2Mi", "512Mi")]);
            },
            "memory",
            "8Gi | 6Gi",
        ),
        (
            "huge pages reserved",
            |w| {
                w.machine.as_mut().unwrap().huge_pages = [(2 << 20, 512), (1 << 30, 1)].into();
                w.settings.kube_reserved = quantities(&[("hugepages-2Mi", "512Mi")]);
            },
            "hugepages-2Mi",
            "1Gi | 512Mi",
        ),
        (
            "huge pages, none of them",
            |w| w.machine.as_mut().unwrap().huge_pages = [(2 << 20, 0)].into(),
            "hugepages-2Mi",
            "0 | 0",
        ),
        ("no machine", |w| w.machine = None, "cpu", "0 | 0"),
        ("no machine", |w| w.machine = None, "pods", "110 | 110"),
    ];
    for (name, change, resource, expected) in cases {
        let mut world = World::new();
        change(&mut world);
        assert_eq!(amounts(&world, json!({}), resource), *expected, "{name}: {resource}");
    }
}

#[test]
fn resources_of_others_stay() {
    let old = json!({
        "capacity": {"example.com/dongle": "3", "cpu": "1"},
        "allocatable": {"example.com/dongle": "1", "example.com/gone": "1", "cpu": "1"},
    });
    let world = World::new();
    assert_eq!(amounts(&world, old.clone(), "example.com/dongle"), "3 | 3");
    assert_eq!(amounts(&world, old.clone(), "example.com/gone"), "- | -");
    assert_eq!(amounts(&world, old, "cpu"), "4 | 4");
}

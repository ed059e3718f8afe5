//! What containers and volumes are told of their pod and of resources.

use std::net::IpAddr;

use crablet_model::api;
use serde_json::{Value, json};

use super::super::{volume_field, volume_resource};
use super::{NodeFacts, configure, image, node, one, pod};

/// The value of a variable of the pod's first container.
fn in_env(node: &NodeFacts, spec: &Value, source: Value) -> Result<String, String> {
    let mut spec = spec.clone();
    spec["containers"][0]["env"] = json!([{"name": "X", "valueFrom": source}]);
    let config = configure(&pod(spec), &image(), node).map_err(|error| error.to_string())?;
    Ok(config.env[0].1.to_string())
}

/// The content of a file.
fn in_volume(spec: &Value, source: Value) -> Result<String, String> {
    let field: api::ResourceFieldSelector = serde_json::from_value(source).expect("a reference");
    volume_resource(&pod(spec.clone()), &node(), &field).map_err(|error| error.to_string())
}

#[test]
fn what_stands_for_a_limit_depends_on_who_asks() {
    let spec = json!({
        "resources": {"limits": {"memory": "64Mi", "hugepages-2Mi": "4Mi"}},
        "initContainers": [{"name": "first"}, {"name": "sized", "resources": {"limits": {"memory": "8Mi"}}}],
        "containers": [{"name": "main"}, {"name": "other"}],
    });
    let (of_node, of_pod, own): (i64, i64, i64) = (4 << 30, 64 << 20, 8 << 20);
    for (container, resource, of_env, of_volume) in [
        ("main", "limits.memory", of_pod, of_node),
        ("other", "limits.memory", of_pod, of_node),
        ("first", "limits.memory", 0, of_node),
        ("sized", "limits.memory", own, own),
        ("main", "limits.cpu", 4, 4),
        ("first", "limits.cpu", 0, 4),
        ("main", "limits.hugepages-2Mi", 0, 0),
    ] {
        let source = json!({"containerName": container, "resource": resource});
        let env = in_env(&node(), &spec, json!({"resourceFieldRef": source}));
        assert_eq!(env, Ok(of_env.to_string()), "{container} {resource}");
        assert_eq!(in_volume(&spec, source), Ok(of_volume.to_string()), "{container} {resource}");
    }
    let unnamed = json!({"resourceFieldRef": {"resource": "limits.memory"}});
    assert_eq!(in_env(&node(), &spec, unnamed), Ok(of_pod.to_string()));
}

#[test]
fn a_node_that_stands_alone_tells_its_address_all_the_same() {
    let spec = json!({"containers": [{"name": "main"}]});
    let address = |node: &NodeFacts, path: &str| {
        let source = json!({"fieldRef": {"fieldPath": path}});
        in_env(node, &spec, source)
    };
    let alone = NodeFacts { host_ips: Vec::new(), ..node() };
    assert_eq!(address(&alone, "status.hostIP").as_deref(), Ok("192.0.2.1"));
    assert_eq!(address(&alone, "status.hostIPs").as_deref(), Ok("192.0.2.1"));
    let own_ips = ["192.0.2.1", "fd00::1"].map(|ip| ip.parse::<IpAddr>().expect("an address")).to_vec();
    let both = NodeFacts { own_ips, ..node() };
    assert_eq!(address(&both, "status.hostIP").as_deref(), Ok("192.0.2.1"));
    assert_eq!(address(&both, "status.hostIPs").as_deref(), Ok("192.0.2.1,fd00::1"));
    let nowhere = NodeFacts { own_ips: Vec::new(), ..node() };
    let unknown = "host IP unknown; known addresses: []";
    assert_eq!(address(&nowhere, "status.hostIP"), Err(unknown.to_owned()));
}

#[test]
fn what_does_not_print_is_escaped_as_go_escapes_it() {
    let field = api::ObjectFieldSelector { field_path: "metadata.annotations".to_owned(), api_version: None };
    for (text, expected) in [
        ("a \"b\" \\ 'c'", r#"a \"b\" \\ 'c'"#),
        ("\n\t\0\u{7f}", r"\n\t\x00\x7f"),
        ("ü 日本 😀", "ü 日本 😀"),
        ("e\u{301}\u{301}", "e\u{301}\u{301}"),
        ("\u{301}", "\u{301}"),
        ("\u{85}\u{a0}\u{ad}", r"\u0085\u00a0\u00ad"),
        ("\u{200b}\u{2028}\u{3000}\u{feff}", r"\u200b\u2028\u3000\ufeff"),
        ("\u{e000}\u{e0001}", r"\ue000\U000e0001"),
    ] {
        let mut pod = one(json!({"name": "c"}));
        pod.metadata.annotations = Some([("k".to_owned(), text.to_owned())].into());
        let shown = volume_field(&pod, &field).expect("a text");
        assert_eq!(shown, format!("k=\"{expected}\""), "{text:?}");
    }
}

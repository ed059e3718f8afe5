//! Which parts of which volumes a container sees, and where.

use crablet_model::runtime::{Mount, Propagation};
use serde_json::{Value, json};

use super::super::{EnvObjects, MountedVolume, SubPath};
use super::{Around, NodeFacts, container_config, image, node, one};

fn around() -> Around {
    let volume = |read_only, relabel| MountedVolume { host_path: "/v/data".to_owned(), read_only, relabel };
    let services = [("DB_SERVICE_HOST", "10.96.0.5"), ("EMPTY", "")];
    Around {
        volumes: [
            ("data".to_owned(), volume(false, true)),
            ("map".to_owned(), MountedVolume { host_path: "/v/map".to_owned(), ..volume(true, false) }),
        ]
        .into(),
        objects: EnvObjects {
            services: services.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..EnvObjects::default()
        },
        ..Around::default()
    }
}

/// `inside <- outside`, and what is special of the mount.
fn line(mount: &Mount) -> String {
    let mut line = format!("{} <- {}", mount.container_path, mount.host_path);
    for (is_so, word) in [
        (mount.readonly, " ro"),
        (mount.selinux_relabel, " relabel"),
        (mount.propagation == Propagation::HostToContainer, " rslave"),
        (mount.propagation == Propagation::Bidirectional, " rshared"),
    ] {
        line.push_str(if is_so { word } else { "" });
    }
    line
}

fn mounts(around: &Around, mounts: Value) -> Result<Vec<String>, String> {
    let config = around.container(json!({
        "name": "c", "volumeMounts": mounts, "terminationMessagePath": "/dev/termination-log",
    }))?;
    Ok(config.mounts.iter().map(line).collect())
}

const HOSTS: &str = "/etc/hosts <- /var/lib/kubelet/pods/u1/etc-hosts relabel";
const MESSAGE: &str = "/dev/termination-log <- /var/lib/kubelet/pods/u1/containers/c/0a1b2c3d relabel";

#[test]
fn mounts_come_in_the_order_of_the_pod_and_before_the_agents_own() {
    let made = mounts(
        &around(),
        json!([
            {"name": "map", "mountPath": "/z"},
            {"name": "data", "mountPath": "relative", "mountPropagation": "None"},
            {"name": "data", "mountPath": "/a", "readOnly": true, "mountPropagation": "HostToContainer"},
            {"name": "data", "mountPath": "/b", "mountPropagation": "Bidirectional"},
        ]),
    );
    assert_eq!(
        made.expect("a container"),
        [
            "/z <- /v/map ro",
            "/relative <- /v/data relabel",
            "/a <- /v/data ro relabel rslave",
            "/b <- /v/data relabel rshared",
            HOSTS,
            MESSAGE,
        ]
    );
}

#[test]
fn a_pod_may_bring_its_own_hosts_file() {
    let made = mounts(&around(), json!([{"name": "map", "mountPath": "/etc/hosts"}]));
    assert_eq!(made.expect("a container"), ["/etc/hosts <- /v/map ro", MESSAGE]);
    let beside = mounts(&around(), json!([{"name": "map", "mountPath": "/etc/hosts.d"}]));
    assert_eq!(beside.expect("a container"), ["/etc/hosts.d <- /v/map ro", HOSTS, MESSAGE]);
}

#[test]
fn nothing_is_labelled_where_files_have_no_labels() {
    let plain = NodeFacts { selinux_enabled: false, ..node() };
    let pod = one(json!({"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/a"}]}));
    let config = around().with_inputs(&pod, &image(), &plain, container_config).expect("a container");
    assert!(config.mounts.iter().all(|mount| !mount.selinux_relabel));
}

#[test]
fn what_cannot_be_mounted_is_said() {
    for (mount, expected) in [
        (
            json!({"name": "nope", "mountPath": "/a"}),
            "cannot find volume \"nope\" to mount into container \"c\"",
        ),
        (
            json!({"name": "data", "mountPath": "/a", "mountPropagation": "Odd"}),
            "invalid MountPropagation mode: \"Odd\"",
        ),
    ] {
        assert_eq!(mounts(&around(), json!([mount])), Err(expected.to_owned()));
    }
}

#[test]
fn a_part_of_a_volume_is_mounted_from_where_it_was_made_ready() {
    let made = Around { sub_paths: [(1, "/ready/1".to_owned())].into(), ..around() };
    let all = json!([
        {"name": "data", "mountPath": "/whole"},
        {"name": "data", "mountPath": "/part", "subPath": "x"},
    ]);
    let lines = mounts(&made, all).expect("a container");
    assert_eq!(lines[..2], ["/whole <- /v/data relabel", "/part <- /ready/1 relabel"]);
}

#[test]
fn parts_of_volumes_are_named_by_the_environment() {
    let container = json!({
        "name": "c",
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "DEEP", "value": "$(POD)/deep"},
        ],
        "volumeMounts": [
            {"name": "data", "mountPath": "/0"},
            {"name": "data", "mountPath": "/1", "subPath": "a/$(POD)"},
            {"name": "map", "mountPath": "/2", "subPathExpr": "$(DEEP)-$$(POD)"},
            {"name": "data", "mountPath": "/3", "subPathExpr": "$(DB_SERVICE_HOST)"},
            {"name": "data", "mountPath": "/4", "subPath": "..a/b.."},
        ],
    });
    let part =
        |index, volume: &str, path: &str| SubPath { index, volume: volume.to_owned(), path: path.to_owned() };
    assert_eq!(
        around().sub_paths(container),
        Ok(vec![
            part(1, "data", "a/$(POD)"),
            part(2, "map", "web/deep-$(POD)"),
            part(3, "data", "10.96.0.5"),
            part(4, "data", "..a/b.."),
        ])
    );
    assert_eq!(around().sub_paths(json!({"name": "c"})), Ok(Vec::new()));
}

#[test]
fn a_part_that_is_not_known_or_not_inside_is_refused() {
    let path = |field: &str, path: &str| {
        let mount = json!({"name": "data", "mountPath": "/a", field: path});
        let env = json!([{"name": "UP", "value": "../x"}, {"name": "ROOT", "value": "/etc"}, {"name": "VOID", "value": ""}]);
        around().sub_paths(json!({"name": "c", "env": env, "volumeMounts": [mount]})).expect_err("a refusal")
    };
    assert_eq!(path("subPathExpr", "$(NOPE)/$(ALSO)/$(NOPE)"), "missing value for ALSO, NOPE");
    assert_eq!(
        path("subPathExpr", "a/$(VOID)"),
        "missing value for VOID",
        "an empty name would mean the whole volume"
    );
    assert_eq!(path("subPathExpr", "$(EMPTY)"), "missing value for EMPTY");
    assert_eq!(path("subPathExpr", "$(ROOT)"), "error SubPath `/etc` must not be an absolute path");
    assert_eq!(path("subPathExpr", "a/$(UP)"), "unable to provision SubPath `a/../x`: must not contain '..'");
    assert_eq!(path("subPath", "/etc"), "error SubPath `/etc` must not be an absolute path");
    assert_eq!(path("subPath", ".."), "unable to provision SubPath `..`: must not contain '..'");
}

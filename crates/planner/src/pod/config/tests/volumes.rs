//! Which parts of which volumes a container sees, and where.

use crablet_model::runtime::{Device, ImageMount, Mount, Propagation, RuntimeHandler};
use serde_json::{Value, json};

use super::super::{EnvFile, EnvObjects, FileReference, MountedVolume, SubPath, sub_paths};
use super::{Around, NodeFacts, container_config, image, node, one};

fn around() -> Around {
    let volume = |read_only, relabel| MountedVolume {
        host_path: "/v/data".to_owned(),
        read_only,
        relabel,
        ..MountedVolume::default()
    };
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
            {"name": "data", "mountPath": "relative/", "mountPropagation": "None"},
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
    // As upstream, the words of the pod count, not the place that they lead to.
    let relative = mounts(&around(), json!([{"name": "map", "mountPath": "etc/hosts"}]));
    assert_eq!(relative.expect("a container"), ["/etc/hosts <- /v/map ro", HOSTS, MESSAGE]);
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

#[test]
fn mounts_are_read_only_all_the_way_down_where_the_runtime_can() {
    let mount = |fields: Value| {
        let mut mount = json!({"name": "data", "mountPath": "/a"});
        mount.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        one(json!({"name": "c", "volumeMounts": [mount]}))
    };
    let handler = RuntimeHandler { recursive_read_only_mounts: true, ..RuntimeHandler::default() };
    let able = NodeFacts { runtime_handlers: vec![handler], ..node() };
    let asked = |node: &NodeFacts, mode: &str| {
        let pod = mount(json!({"readOnly": true, "recursiveReadOnly": mode}));
        let made = around().with_inputs(&pod, &image(), node, container_config);
        made.map(|config| config.mounts[0].recursive_read_only).map_err(|error| error.to_string())
    };
    assert_eq!([asked(&able, "Enabled"), asked(&able, "IfPossible")], [Ok(true), Ok(true)]);
    assert_eq!([asked(&able, "Disabled"), asked(&node(), "IfPossible")], [Ok(false), Ok(false)]);
    let prefix =
        "failed to resolve recursive read-only mode: volume \"data\" requested recursive read-only mode, but";
    let refused = format!("{prefix} it is not supported by the runtime");
    assert_eq!(asked(&node(), "Enabled"), Err(refused));
    for (fields, why) in [
        (json!({"recursiveReadOnly": "Enabled"}), "it is not read-only"),
        (
            json!({"recursiveReadOnly": "Enabled", "readOnly": true, "mountPropagation": "HostToContainer"}),
            "it is not compatible with propagation \"HostToContainer\"",
        ),
    ] {
        let made = around().with_inputs(&mount(fields), &image(), &able, container_config);
        assert_eq!(made.expect_err("a refusal").to_string(), format!("{prefix} {why}"));
    }
}

#[test]
fn a_block_volume_is_a_device_and_nothing_else() {
    let block = |read_only| MountedVolume {
        host_path: "/v/disk".to_owned(),
        block: true,
        read_only,
        ..MountedVolume::default()
    };
    let made = Around {
        volumes: [("rw".to_owned(), block(false)), ("ro".to_owned(), block(true))].into(),
        ..around()
    };
    let devices =
        |devices: Value| made.container(json!({"name": "c", "volumeDevices": devices})).map(|c| c.devices);
    let device = |inside: &str, permissions: &str| Device {
        container_path: inside.to_owned(),
        host_path: "/v/disk".to_owned(),
        permissions: permissions.to_owned(),
    };
    let both = json!([{"name": "rw", "devicePath": "/dev/a"}, {"name": "ro", "devicePath": "/dev/b"}]);
    assert_eq!(devices(both), Ok(vec![device("/dev/a", "mrw"), device("/dev/b", "r")]));
    assert_eq!(
        devices(json!([{"name": "rw", "devicePath": "dev"}])),
        Err("error DevicePath `dev` must be an absolute path".to_owned())
    );
    assert_eq!(
        devices(json!([{"name": "data", "devicePath": "/dev/a"}])),
        Err("cannot find volume \"data\" to pass into container \"c\"".to_owned())
    );
    assert_eq!(
        mounts(&made, json!([{"name": "rw", "mountPath": "/a"}])),
        Err("cannot find volume \"rw\" to mount into container \"c\"".to_owned())
    );
}

#[test]
fn an_image_is_mounted_as_the_runtime_knows_it() {
    let volume = MountedVolume { read_only: true, ..MountedVolume::default() };
    let around = Around {
        volumes: [("art".to_owned(), volume)].into(),
        image_volumes: [("art".to_owned(), "sha256:def".to_owned())].into(),
        ..Around::default()
    };
    let pod = super::pod(json!({
        "volumes": [{"name": "art", "image": {"reference": "art:1"}}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "art", "mountPath": "/a", "subPath": "x/y"}]}],
    }));
    assert_eq!(around.with_inputs(&pod, &image(), &node(), sub_paths), Ok(Vec::new()));
    let config = around.with_inputs(&pod, &image(), &node(), container_config).expect("a container");
    let mount = &config.mounts[0];
    assert_eq!((mount.host_path.as_str(), mount.readonly), ("", true));
    let expected = ImageMount {
        image_ref: "sha256:def".to_owned(),
        user_specified_image: "art:1".to_owned(),
        sub_path: "x/y".to_owned(),
    };
    assert_eq!(mount.image, Some(expected));
    let unknown = Around { image_volumes: Default::default(), ..around };
    assert!(unknown.with_inputs(&pod, &image(), &node(), container_config).is_err());
}

#[test]
fn variables_can_come_from_files_in_volumes() {
    let reference = FileReference { volume: "data".to_owned(), path: "env/a".to_owned() };
    let with = |text: Result<&str, &str>| {
        let content = text.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned);
        let file = EnvFile { path: "/v/data/env/a".to_owned(), content };
        let objects = EnvObjects { files: [(reference.clone(), file)].into(), ..EnvObjects::default() };
        Around { objects, ..around() }
    };
    let env = |text, optional: bool| {
        let from = json!({"volumeName": "data", "path": "env/a", "key": "K", "optional": optional});
        let container = json!({"name": "c", "env": [{"name": "X", "valueFrom": {"fileKeyRef": from}}]});
        with(text).container(container).map(|config| config.env)
    };
    assert_eq!(env(Ok("K='v'\n"), false), Ok(vec![("X".to_owned(), "v".into())]));
    assert_eq!(env(Ok("L='v'\n"), true), Ok(Vec::new()));
    let missing = "environment variable key \"K\" not found in file \"/v/data/env/a\"";
    assert_eq!(env(Ok("L='v'\n"), false), Err(missing.to_owned()));
    assert_eq!(env(Ok("K=v\n"), true), Err("couldn't parse env file".to_owned()));
    assert_eq!(env(Err("no such file"), true), Err("couldn't parse env file".to_owned()));
}

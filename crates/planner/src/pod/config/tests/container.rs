//! Containers: what they run, as whom, and with which environment.

use crablet_model::api;
use crablet_model::runtime::{Capabilities, GroupsPolicy, IdRange, Mount, NamespaceMode, SecurityProfile};
use serde_json::{Value, json};

use super::super::super::facts::PreparedImage;
use super::super::{MountedVolume, container_config, sandbox_config, volume_groups};
use super::Placement;
use super::{
    Around, NodeFacts, SwapControl, container_of, container_on, container_with, image, node, one, refusal,
    strings,
};

#[test]
fn a_stop_signal_counts_where_the_node_knows_it() {
    let container = json!({"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}});
    assert_eq!(container_of(container.clone()).stop_signal, None);
    let knowing = NodeFacts { stop_signals: true, ..node() };
    assert_eq!(container_on(&knowing, container).stop_signal.as_deref(), Some("SIGUSR1"));
    assert_eq!(container_on(&knowing, json!({"name": "c", "image": "i"})).stop_signal, None);
}

#[test]
fn last_words_at_a_place_without_a_root_are_at_the_root() {
    for (path, inside) in
        [("words/last", "/words/last"), ("/dev//words/", "/dev/words"), ("/dev/../words", "/words")]
    {
        let config = container_of(json!({"name": "c", "image": "i", "terminationMessagePath": path}));
        assert_eq!(config.mounts.last().map(|mount| mount.container_path.as_str()), Some(inside));
    }
}

#[test]
fn a_container_carries_what_a_restarted_agent_needs_to_know() {
    let config = container_of(json!({
        "name": "c", "image": "busybox", "workingDir": "/w", "stdin": true, "tty": true,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}, {"containerPort": 9, "hostPort": 9, "hostIP": "::1"}],
        "lifecycle": {"preStop": {"httpGet": {
            "port": "http", "path": "/a?b&<c>", "scheme": "HTTP", "httpHeaders": [{"name": "X", "value": "y"}],
        }}},
    }));
    assert_eq!((config.name.as_str(), config.attempt, config.log_path.as_str()), ("c", 4, "c/4.log"));
    assert_eq!((config.image_ref.as_str(), config.user_specified_image.as_str()), ("sha256:abc", "busybox"));
    assert_eq!(
        (config.working_dir.as_str(), config.stdin, config.stdin_once, config.tty),
        ("/w", true, false, true)
    );
    let labels: Vec<_> = config.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        labels,
        [
            "io.kubernetes.container.name=c",
            "io.kubernetes.pod.name=web",
            "io.kubernetes.pod.namespace=shop",
            "io.kubernetes.pod.uid=u1",
        ]
    );
    let hash = crablet_model::hash::container_hash("c", "busybox");
    let annotations: Vec<_> = config.annotations.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        annotations,
        [
            format!("io.kubernetes.container.hash={hash}"),
            "io.kubernetes.container.ports=[{\"name\":\"http\",\"containerPort\":80,\"protocol\":\"TCP\"},\
             {\"hostPort\":9,\"containerPort\":9,\"hostIP\":\"::1\"}]"
                .to_owned(),
            "io.kubernetes.container.preStopHandler={\"httpGet\":{\"path\":\"/a?b\\u0026\\u003cc\\u003e\",\"port\":\"http\",\
             \"scheme\":\"HTTP\",\"httpHeaders\":[{\"name\":\"X\",\"value\":\"y\"}]}}"
                .to_owned(),
            "io.kubernetes.container.restartCount=4".to_owned(),
            "io.kubernetes.container.terminationMessagePath=/dev/termination-log".to_owned(),
            "io.kubernetes.container.terminationMessagePolicy=File".to_owned(),
            "io.kubernetes.pod.terminationGracePeriod=30".to_owned(),
        ]
    );
    let mount = |inside: &str, outside: &str| Mount {
        container_path: inside.to_owned(),
        host_path: outside.to_owned(),
        readonly: false,
        selinux_relabel: true,
        ..Mount::default()
    };
    assert_eq!(
        config.mounts,
        [
            mount("/etc/hosts", "/var/lib/kubelet/pods/u1/etc-hosts"),
            mount("/dev/termination-log", "/var/lib/kubelet/pods/u1/containers/c/0a1b2c3d"),
        ]
    );
    assert_eq!(config.resources.oom_score_adj, 1000);
}

#[test]
fn huge_pages_are_the_containers_then_the_pods_and_none_else() {
    let spec = |of_pod: Value, own: Value| {
        let resources = json!({"limits": own});
        super::pod(
            json!({"resources": {"limits": of_pod}, "containers": [{"name": "c", "resources": resources}]}),
        )
    };
    let sized = NodeFacts { hugepage_sizes: strings(&["2MB", "1GB"]), ..node() };
    for (of_pod, own, expected) in [
        (json!({}), json!({}), [0, 0]),
        (json!({"hugepages-2Mi": "8Mi"}), json!({}), [8 << 20, 0]),
        (
            json!({"hugepages-2Mi": "8Mi"}),
            json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}),
            [4 << 20, 1 << 30],
        ),
    ] {
        let config = super::configure(&spec(of_pod, own), &image(), &sized).expect("a container");
        let [small, large] = expected;
        assert_eq!(config.hugepage_limits, [("2MB".to_owned(), small), ("1GB".to_owned(), large)]);
    }
}

#[test]
fn nobody_gets_swap_or_huge_pages() {
    let limited = json!({"name": "c", "resources": {"limits": {"memory": "16Mi"}}});
    let config = container_of(limited.clone());
    assert_eq!(config.hugepage_limits, [("2MB".to_owned(), 0)]);
    assert_eq!((config.memory_swap_limit, config.unified.len()), (16 << 20, 0));
    assert_eq!(container_of(json!({"name": "c"})).memory_swap_limit, 0);
    let v2 = NodeFacts { swap_control: SwapControl::Alone, ..node() };
    let config = container_on(&v2, limited);
    let unified: Vec<_> = config.unified.iter().map(|(file, value)| format!("{file}={value}")).collect();
    assert_eq!((config.memory_swap_limit, unified), (0, vec!["memory.swap.max=0".to_owned()]));
}

#[test]
fn references_to_the_environment_are_replaced() {
    let config = container_of(json!({
        "name": "c",
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)$(LATER)"},
            {"name": "LATER", "value": "x"},
            {"name": "A", "value": "$(A)2"},
            {"name": "EMPTY", "value": ""},
        ],
        "command": ["$(A)", "$$(A)", "$(NOPE)", "$(A", "$A", "a$", "$$$(B)", "$()"],
        "args": ["-$(EMPTY)-"],
    }));
    let env: Vec<_> = config.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=12", "B=1$(LATER)", "LATER=x", "EMPTY="]);
    assert_eq!(config.command, ["12", "$(A)", "$(NOPE)", "$(A", "$A", "a$", "$1$(LATER)", "$()"]);
    assert_eq!(config.args, ["--"]);
}

#[test]
fn the_environment_can_name_the_pod_and_its_resources() {
    let field = |path: &str| json!({"name": path, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let resource = |name: &str, divisor: &str| {
        let reference = json!({"resource": name, "divisor": divisor});
        json!({"name": format!("{name}/{divisor}"), "valueFrom": {"resourceFieldRef": reference}})
    };
    let config = container_of(json!({
        "name": "c",
        "resources": {"limits": {"memory": "1500Mi"}, "requests": {"cpu": "250m", "ephemeral-storage": "1Gi"}},
        "env": [
            field("metadata.name"), field("metadata.namespace"), field("metadata.uid"), field("spec.nodeName"),
            field("spec.serviceAccountName"), field("status.hostIP"), field("status.hostIPs"), field("status.podIP"),
            field("status.podIPs"), field("metadata.labels['app']"), field("metadata.labels['nope']"),
            field("metadata.labels"), field("metadata.annotations"),
            resource("limits.memory", "0"), resource("limits.memory", "1Gi"), resource("limits.cpu", "0"),
            resource("limits.cpu", "1m"), resource("requests.cpu", "0"), resource("requests.memory", "1"),
            resource("requests.ephemeral-storage", "1Mi"),
        ],
    }));
    let env: Vec<_> = config.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        env,
        [
            "metadata.name=web",
            "metadata.namespace=shop",
            "metadata.uid=u1",
            "spec.nodeName=n1",
            "spec.serviceAccountName=",
            "status.hostIP=192.0.2.1",
            "status.hostIPs=192.0.2.1",
            "status.podIP=10.0.0.7",
            "status.podIPs=10.0.0.7,fd00::7",
            "metadata.labels['app']=web",
            "metadata.labels['nope']=",
            "metadata.labels=app=\"web\"",
            "metadata.annotations=kubernetes.io/config.source=\"file\"\nnote=\"a \\\"b\\\"\\nc\"",
            "limits.memory/0=1572864000",
            "limits.memory/1Gi=2",
            "limits.cpu/0=4",
            "limits.cpu/1m=3500",
            "requests.cpu/0=1",
            "requests.memory/1=0",
            "requests.ephemeral-storage/1Mi=1024",
        ]
    );
}

#[test]
fn what_cannot_be_given_is_refused() {
    let from = |source: Value| refusal(json!({"name": "c", "env": [{"name": "X", "valueFrom": source}]}));
    for (refused, expected) in [
        (from(json!({"fieldRef": {"fieldPath": "spec.odd"}})), "field label not supported: spec.odd"),
        (
            from(json!({"fieldRef": {"apiVersion": "v9", "fieldPath": "metadata.name"}})),
            "unsupported pod version: v9",
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.odd"}})),
            "unsupported container resource : limits.odd",
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "d"}})),
            "container d not found",
        ),
        (
            from(json!({"configMapKeyRef": {"name": "m", "key": "k"}})),
            "couldn't get configMap shop/m, no kubeClient defined",
        ),
        (
            from(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
            "couldn't get secret shop/s, no kubeClient defined",
        ),
        (
            refusal(json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]})),
            "couldn't get secret shop/s, no kubeClient defined",
        ),
        (
            from(json!({"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}})),
            "cannot find the volume \"v\" referenced by FileKeyRef",
        ),
        (
            refusal(json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "cannot find volume \"v\" to mount into container \"c\"",
        ),
    ] {
        assert_eq!(refused, expected);
    }
    let no_spec = api::Pod { spec: None, ..one(json!({"name": "c"})) };
    let refused = sandbox_config(&no_spec, &node(), 0, &Placement::default()).expect_err("a refusal");
    assert_eq!(refused.to_string(), "pod web_shop(u1) has no specification");
}

#[test]
fn the_user_is_the_containers_then_the_pods_then_the_images() {
    let user = |container: Value, pod: Value, uid: Option<i64>, username: &str| {
        let spec =
            json!({"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]});
        let image = PreparedImage { uid, username: username.to_owned(), ..image() };
        let config = container_with(&super::pod(spec), &image).map_err(|e| e.to_string())?;
        Ok((config.security.run_as_user, config.security.run_as_username, config.security.run_as_group))
    };
    let ok = |uid: Option<i64>, name: &str, gid: Option<i64>| Ok((uid, name.to_owned(), gid));
    let non_root = || json!({"runAsNonRoot": true});
    let refused = |fault: &str| Err(format!("{fault} (pod: \"web_shop(u1)\", container: c)"));
    for (container, pod, uid, username, expected) in [
        (json!({}), json!({}), None, "", ok(Some(0), "", None)),
        (json!({}), json!({}), None, "app", ok(None, "app", None)),
        (json!({}), json!({}), Some(5), "", ok(Some(5), "", None)),
        (json!({}), json!({"runAsUser": 6, "runAsGroup": 60}), Some(5), "", ok(Some(6), "", Some(60))),
        (json!({"runAsUser": 7}), json!({"runAsUser": 6}), None, "app", ok(Some(7), "", None)),
        (json!({"runAsUser": 7}), non_root(), None, "app", ok(Some(7), "", None)),
        (json!({}), non_root(), Some(5), "", ok(Some(5), "", None)),
        (json!({"runAsNonRoot": false}), non_root(), None, "", ok(Some(0), "", None)),
        (
            json!({"runAsUser": 0}),
            non_root(),
            None,
            "",
            refused("container's runAsUser breaks non-root policy"),
        ),
        (json!({}), non_root(), None, "", refused("container has runAsNonRoot and image will run as root")),
        (json!({}), json!({}), Some(3_000_000_000), "", ok(Some(3_000_000_000), "", None)),
        (
            json!({}),
            non_root(),
            Some(3_000_000_000),
            "",
            refused(
                "container has runAsNonRoot and image has an invalid user id (3000000000). \
                 (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive",
            ),
        ),
        (
            json!({}),
            non_root(),
            Some(0),
            "",
            refused("container has runAsNonRoot and image will run as root"),
        ),
        (
            json!({}),
            non_root(),
            None,
            "app",
            refused(
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
        ),
    ] {
        assert_eq!(
            user(container.clone(), pod.clone(), uid, username),
            expected,
            "{container} {pod} {uid:?} {username}"
        );
    }
}

#[test]
fn a_containers_security_is_as_tight_as_asked() {
    let plain = container_of(json!({"name": "c"})).security;
    assert_eq!((plain.masked_paths.len(), plain.readonly_paths.len()), (12, 5));
    assert_eq!(plain.seccomp, SecurityProfile::Unconfined);
    assert!(!plain.no_new_privs && !plain.privileged && !plain.readonly_rootfs);
    let asked = container_of(json!({"name": "c", "securityContext": {
        "privileged": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "procMount": "Unmasked",
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }}))
    .security;
    assert!(asked.no_new_privs && asked.privileged && asked.readonly_rootfs);
    assert!(asked.masked_paths.is_empty() && asked.readonly_paths.is_empty());
    let capabilities = Capabilities { add: strings(&["NET_ADMIN"]), drop: strings(&["ALL"]) };
    assert_eq!((plain.capabilities, asked.capabilities), (None, Some(capabilities)));
    assert_eq!(asked.seccomp, SecurityProfile::RuntimeDefault);
}

#[test]
fn profiles_are_the_containers_then_the_pods() {
    use SecurityProfile::{Localhost, RuntimeDefault, Unconfined};
    let mut rooted = node();
    rooted.root_dir = "/var/lib/kubelet".to_owned();
    let both = |annotation: Option<&str>, of_pod: Value, own: Value| {
        let mut pod = super::pod(
            json!({"securityContext": of_pod, "containers": [{"name": "c", "securityContext": own}]}),
        );
        let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
        pod.metadata
            .annotations
            .get_or_insert_default()
            .extend(annotation.map(|text| (key, text.to_owned())));
        let made = super::configure(&pod, &image(), &rooted).map_err(|error| error.to_string())?;
        Ok((made.security.seccomp, made.security.apparmor))
    };
    let seccomp = |kind: &str| json!({"seccompProfile": {"type": kind, "localhostProfile": "a/b.json"}});
    let apparmor = |kind: &str| json!({"appArmorProfile": {"type": kind, "localhostProfile": "mine"}});
    for (annotation, of_pod, own, expected) in [
        (None, json!({}), json!({}), Ok((Unconfined, None))),
        (
            None,
            seccomp("Localhost"),
            json!({}),
            Ok((Localhost("/var/lib/kubelet/seccomp/a/b.json".to_owned()), None)),
        ),
        (None, seccomp("Localhost"), seccomp("RuntimeDefault"), Ok((RuntimeDefault, None))),
        (None, apparmor("Unconfined"), json!({}), Ok((Unconfined, Some(Unconfined)))),
        (
            None,
            apparmor("Unconfined"),
            apparmor("Localhost"),
            Ok((Unconfined, Some(Localhost("mine".to_owned())))),
        ),
        (Some("runtime/default"), apparmor("Unconfined"), json!({}), Ok((Unconfined, Some(RuntimeDefault)))),
        (Some("localhost/old"), json!({}), json!({}), Ok((Unconfined, Some(Localhost("old".to_owned()))))),
        (Some("unconfined"), json!({}), apparmor("RuntimeDefault"), Ok((Unconfined, Some(RuntimeDefault)))),
        (Some("odd"), apparmor("Unconfined"), json!({}), Ok((Unconfined, Some(Unconfined)))),
        (
            None,
            json!({}),
            json!({"seccompProfile": {"type": "Localhost"}}),
            Err("localhostProfile must be set if seccompProfile type is Localhost.".to_owned()),
        ),
        (
            None,
            json!({}),
            json!({"appArmorProfile": {"type": "Localhost"}}),
            Err("missing localhost apparmor profile name".to_owned()),
        ),
    ] {
        assert_eq!(both(annotation, of_pod.clone(), own.clone()), expected, "{annotation:?} {of_pod} {own}");
    }
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_its_target() {
    let around = Around { target_id: Some("abc".to_owned()), ..Around::default() };
    let namespaces = |spec: Value| {
        let made = around.with_inputs(&super::pod(spec), &image(), &node(), container_config);
        let namespaces = made.expect("a container").security.namespaces;
        (namespaces.pid, namespaces.target_id)
    };
    let plain = json!({"containers": [{"name": "c"}]});
    assert_eq!(namespaces(plain), (NamespaceMode::Target, "abc".to_owned()));
    let shared = json!({"shareProcessNamespace": true, "containers": [{"name": "c"}]});
    assert_eq!(namespaces(shared), (NamespaceMode::Pod, String::new()));
}

#[test]
fn groups_of_volumes_come_where_upstream_puts_them() {
    let spec = json!({
        "securityContext": {"fsGroup": 1, "supplementalGroups": [2, 3], "supplementalGroupsPolicy": "Strict"},
        "containers": [{"name": "c"}],
    });
    let pod = super::pod(spec);
    let volume = |group| MountedVolume { group: Some(group), ..MountedVolume::default() };
    let volumes =
        [("a".to_owned(), volume(9)), ("b".to_owned(), volume(2)), ("c".to_owned(), volume(8))].into();
    let placement = Placement { volume_groups: volume_groups(&pod, &volumes), ..Placement::default() };
    let (sandbox, _) = sandbox_config(&pod, &node(), 0, &placement).expect("a sandbox");
    assert_eq!(
        (sandbox.supplemental_groups, sandbox.groups_policy),
        (vec![1, 8, 9, 2, 3], GroupsPolicy::Strict)
    );
    let around = Around { placement, ..Around::default() };
    let made = around.with_inputs(&pod, &image(), &node(), container_config).expect("a container").security;
    assert_eq!((made.supplemental_groups, made.groups_policy), (vec![1, 2, 3, 8, 9], GroupsPolicy::Strict));
}

#[test]
fn a_pod_with_users_of_its_own_never_gets_the_nodes() {
    let pod = super::pod(json!({"hostUsers": false, "containers": [{"name": "c"}]}));
    assert!(sandbox_config(&pod, &node(), 0, &Placement::default()).is_err());
    let users = Some(IdRange { host_id: 65536, length: 65536 });
    let placement = Placement { users, ..Placement::default() };
    let (sandbox, _) = sandbox_config(&pod, &node(), 0, &placement).expect("a sandbox");
    assert_eq!(sandbox.namespaces.users, users);
    let around = Around { placement, ..Around::default() };
    let made = around.with_inputs(&pod, &image(), &node(), container_config).expect("a container");
    assert_eq!(made.security.namespaces.users, users);
    assert!(!made.mounts.is_empty() && made.mounts.iter().all(|mount| mount.users == users));
}

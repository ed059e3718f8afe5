//! One rule at a time.

use super::*;

fn alone(pod: &api::Pod) -> String {
    said(judge(pod, &BTreeMap::new(), &node()))
}

const AFFINITY: &str =
    "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";

#[test]
fn selectors_and_affinity() {
    let affine = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}})
    };
    let label = |key: &str, operator: &str, values: Value| {
        affine(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let field = |key: &str, operator: &str, values: Value| {
        affine(json!([{"matchFields": [{"key": key, "operator": operator, "values": values}]}]))
    };
    for (spec, fits) in [
        (json!({}), true),
        (json!({"nodeSelector": {"disk": "ssd"}}), true),
        (json!({"nodeSelector": {"disk": "ssd", "zone": "a"}}), false),
        (json!({"nodeSelector": {"disk": "hdd"}}), false),
        (label("disk", "In", json!(["hdd", "ssd"])), true),
        (label("disk", "In", json!(["hdd"])), false),
        (label("zone", "In", json!(["a"])), false),
        (label("disk", "NotIn", json!(["hdd"])), true),
        (label("disk", "NotIn", json!(["ssd"])), false),
        (label("zone", "NotIn", json!(["a"])), true),
        (label("disk", "Exists", json!([])), true),
        (label("zone", "Exists", json!([])), false),
        (label("zone", "DoesNotExist", json!([])), true),
        (label("disk", "DoesNotExist", json!([])), false),
        (label("cores", "Gt", json!(["7"])), true),
        (label("cores", "Gt", json!(["8"])), false),
        (label("cores", "Lt", json!(["9"])), true),
        (label("cores", "Lt", json!(["8"])), false),
        (label("disk", "Gt", json!(["1"])), false),
        (label("cores", "Gt", json!(["1", "2"])), false),
        (label("disk", "Like", json!(["s*"])), false),
        (field("metadata.name", "In", json!(["node-1"])), true),
        (field("metadata.name", "In", json!(["node-2"])), false),
        (field("metadata.name", "In", json!(["node-1", "node-2"])), false),
        (field("metadata.name", "NotIn", json!(["node-2"])), true),
        (field("metadata.name", "Exists", json!([])), false),
        // Terms are alternatives, and one that asks for nothing holds nowhere.
        (affine(json!([])), false),
        (affine(json!([{}])), false),
        (affine(json!([{}, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}])), true),
        // All of a term has to hold.
        (
            affine(json!([{
                "matchExpressions": [{"key": "disk", "operator": "Exists"}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}],
            }])),
            false,
        ),
    ] {
        let expected = if fits { "ok" } else { AFFINITY };
        assert_eq!(alone(&pod(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn taints_that_end_pods_have_to_be_tolerated_except_by_static_ones() {
    let taint = |key: &str, value: &str, effect: &str| -> api::Taint {
        serde_json::from_value(json!({"key": key, "value": value, "effect": effect})).unwrap()
    };
    let refused =
        "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    for (taints, tolerations, expected) in [
        (vec![taint("a", "1", "NoSchedule")], json!([]), "ok"),
        (vec![taint("a", "1", "PreferNoSchedule")], json!([]), "ok"),
        (vec![taint("a", "1", "NoExecute")], json!([]), refused),
        (vec![taint("a", "1", "NoExecute")], json!([{"key": "a", "value": "1"}]), "ok"),
        (
            vec![taint("a", "1", "NoExecute")],
            json!([{"key": "a", "operator": "Equal", "value": "2"}]),
            refused,
        ),
        (vec![taint("a", "1", "NoExecute")], json!([{"key": "a", "operator": "Exists"}]), "ok"),
        (vec![taint("a", "1", "NoExecute")], json!([{"operator": "Exists"}]), "ok"),
        (
            vec![taint("a", "1", "NoExecute")],
            json!([{"operator": "Exists", "effect": "NoSchedule"}]),
            refused,
        ),
        (vec![taint("a", "5", "NoExecute")], json!([{"key": "a", "operator": "Gt", "value": "4"}]), refused),
        (
            vec![taint("a", "1", "NoExecute"), taint("b", "1", "NoExecute")],
            json!([{"key": "a", "operator": "Exists"}]),
            refused,
        ),
    ] {
        let tainted = AdmissionNode { taints, ..node() };
        let pod = pod(json!({"tolerations": tolerations}));
        assert_eq!(said(judge(&pod, &BTreeMap::new(), &tainted)), expected, "{tolerations}");
        assert_eq!(said(judge(&made_static(pod), &BTreeMap::new(), &tainted)), "ok");
    }
    let compares =
        AdmissionNode { taints: vec![taint("a", "5", "NoExecute")], toleration_comparisons: true, ..node() };
    for (operator, value, fits) in
        [("Gt", "4", true), ("Gt", "5", false), ("Lt", "6", true), ("Lt", "x", false)]
    {
        let pod = pod(json!({"tolerations": [{"key": "a", "operator": operator, "value": value}]}));
        assert_eq!(
            judge(&pod, &BTreeMap::new(), &compares) == Decision::Admitted,
            fits,
            "{operator} {value}"
        );
    }
}

#[test]
fn resources_beside_two_others() {
    let others = others(&[
        ("a", asking(json!({"cpu": "500m", "memory": "1Gi"}))),
        ("b", asking(json!({"cpu": "500m", "ephemeral-storage": "4Gi", "hugepages-2Mi": "4Mi"}))),
    ]);
    for (requests, expected) in [
        (json!({"cpu": "1", "memory": "3Gi", "ephemeral-storage": "6Gi", "hugepages-2Mi": "4Mi"}), "ok"),
        (
            json!({"cpu": "1001m"}),
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 1001, used: 1000, capacity: 2000",
        ),
        (
            json!({"memory": "4Gi"}),
            "OutOfmemory: Node didn't have enough resource: memory, requested: 4294967296, used: 1073741824, capacity: 4294967296",
        ),
        (
            json!({"ephemeral-storage": "7Gi"}),
            "OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 7516192768, used: 4294967296, capacity: 10737418240",
        ),
        (
            json!({"hugepages-2Mi": "6Mi"}),
            "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 4194304, capacity: 8388608",
        ),
        (
            json!({"example.com/gpu": "2"}),
            "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1",
        ),
        // Somebody else hands out what the node does not know of.
        (json!({"example.com/licence": "7"}), "ok"),
        // The first of several is told.
        (
            json!({"cpu": "9", "memory": "9Gi"}),
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 9000, used: 1000, capacity: 2000",
        ),
    ] {
        assert_eq!(said(judge(&asking(requests.clone()), &others, &node())), expected, "{requests}");
    }
}

#[test]
fn a_node_takes_so_many_pods() {
    let others = others(&["a", "b", "c"].map(|uid| (uid, pod(json!({})))));
    let expected = "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    assert_eq!(said(judge(&pod(json!({})), &others, &node())), expected);
}

#[test]
fn what_a_pod_asks_for_is_the_most_that_it_needs_at_once() {
    let with = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |name: &str, cpu: &str| json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (spec, milli) in [
        (json!({"containers": [with("a", "1"), with("b", "500m")]}), 1500),
        (json!({"containers": [with("a", "1")], "initContainers": [with("i", "3"), with("j", "2")]}), 3000),
        (
            json!({"containers": [with("a", "1")], "initContainers": [sidecar("s", "1"), with("i", "2")]}),
            3000,
        ),
        (
            json!({"containers": [with("a", "1")], "initContainers": [with("i", "2"), sidecar("s", "1")]}),
            2000,
        ),
        (json!({"containers": [with("a", "1")], "overhead": {"cpu": "250m"}}), 1250),
        (json!({"containers": [with("a", "1")], "resources": {"requests": {"cpu": "4"}}}), 4000),
        (json!({"containers": [with("a", "1")], "resources": {"limits": {"cpu": "4"}}}), 1000),
    ] {
        assert_eq!(Claim::of(&pod(spec.clone())).requested.milli_cpu, milli, "{spec}");
    }
}

#[test]
fn ports_of_the_host() {
    let with = |port: Value| pod(json!({"containers": [{"name": "c", "ports": [port]}]}));
    let others = others(&[
        ("a", with(json!({"containerPort": 80, "hostPort": 8080}))),
        ("b", with(json!({"containerPort": 80, "hostPort": 9090, "hostIP": "10.0.0.1", "protocol": "UDP"}))),
    ]);
    let refused =
        "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    for (port, expected) in [
        (json!({"containerPort": 8080}), "ok"),
        (json!({"containerPort": 80, "hostPort": 8081}), "ok"),
        (json!({"containerPort": 80, "hostPort": 8080}), refused),
        (json!({"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.7"}), refused),
        (json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}), "ok"),
        (json!({"containerPort": 80, "hostPort": 9090}), "ok"),
        (json!({"containerPort": 80, "hostPort": 9090, "protocol": "UDP"}), refused),
        (json!({"containerPort": 80, "hostPort": 9090, "protocol": "UDP", "hostIP": "10.0.0.1"}), refused),
        (json!({"containerPort": 80, "hostPort": 9090, "protocol": "UDP", "hostIP": "10.0.0.2"}), "ok"),
    ] {
        assert_eq!(said(judge(&with(port.clone()), &others, &node())), expected, "{port}");
    }
}

#[test]
fn the_operating_system_the_nodes_name_and_groups() {
    let mut labelled = pod(json!({}));
    labelled.metadata.labels = Some([("kubernetes.io/os".to_owned(), "windows".to_owned())].into());
    let expected = "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    assert_eq!(alone(&labelled), expected);
    for (spec, expected) in [
        (json!({"os": {"name": "linux"}}), "ok"),
        (
            json!({"os": {"name": "windows"}}),
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (json!({"nodeName": "node-1"}), "ok"),
        (
            json!({"nodeName": "node-2"}),
            "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
        (json!({"securityContext": {"supplementalGroupsPolicy": "Merge"}}), "ok"),
        (
            json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
    ] {
        assert_eq!(alone(&pod(spec.clone())), expected, "{spec}");
    }
    let able = AdmissionNode { supplemental_groups_policy: true, ..node() };
    let strict = pod(json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    assert_eq!(judge(&strict, &BTreeMap::new(), &able), Decision::Admitted);
}

#[test]
fn sysctls_that_are_safe_or_allowed() {
    for (name, extra, expected) in [
        ("kernel.shm_rmid_forced", json!({}), "ok"),
        ("net.ipv4.tcp_rmem", json!({}), "ok"),
        ("net/ipv4/tcp_rmem", json!({}), "ok"),
        ("net.core.somaxconn", json!({}), "ok"),
        ("kernel.msgmax", json!({}), "ok"),
        ("vm.swappiness", json!({}), "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted"),
        ("vm/swappiness", json!({}), "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted"),
        (
            "net.core.somaxconn",
            json!({"hostNetwork": true}),
            "SysctlForbidden: forbidden sysctl: \"net.core.somaxconn\" not allowed with host Net enabled",
        ),
        (
            "kernel.msgmax",
            json!({"hostIPC": true}),
            "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowed with host IPC enabled",
        ),
        ("kernel.msgmax", json!({"hostNetwork": true}), "ok"),
    ] {
        let mut spec = extra.clone();
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
        assert_eq!(alone(&pod(spec)), expected, "{name} {extra}");
    }
    let old = AdmissionNode { sysctls: Sysctls::new(Some((4, 4)), &[]), ..node() };
    let rmem = pod(json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}}));
    assert_ne!(judge(&rmem, &BTreeMap::new(), &old), Decision::Admitted);
}

#[test]
fn apparmor_profiles_need_a_host_that_enforces_them() {
    let able = AdmissionNode { apparmor: true, ..node() };
    let off = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    for (spec, without, with_it) in [
        (json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}), "ok", "ok"),
        (json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}), off, "ok"),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}}}),
            off,
            "AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name",
        ),
        (
            json!({"containers": [{"name": "c", "securityContext": {"appArmorProfile": {
                "type": "Localhost", "localhostProfile": "mine"}}}]}),
            off,
            "ok",
        ),
    ] {
        assert_eq!(alone(&pod(spec.clone())), without, "{spec}");
        assert_eq!(said(judge(&pod(spec.clone()), &BTreeMap::new(), &able)), with_it, "{spec}");
    }
    let mut noted = pod(json!({}));
    let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
    noted.metadata.annotations = Some([(key, "localhost/mine".to_owned())].into());
    assert_eq!(alone(&noted), off);
}

#[test]
fn features_that_the_node_does_not_declare() {
    let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}});
    let pod = pod(json!({"containers": [{"name": "c", "restartPolicyRules": [rule]}]}));
    let said_of = |declared: Option<&[&str]>| {
        let declared_features = declared.map(|all| all.iter().map(|name| (*name).to_owned()).collect());
        said(judge(&pod, &BTreeMap::new(), &AdmissionNode { declared_features, ..node() }))
    };
    let refused = "PodFeatureUnsupported: Pod requires node features that are not available: RestartAllContainersOnContainerExits";
    assert_eq!(said_of(Some(&[])), refused);
    assert_eq!(said_of(Some(&["RestartAllContainersOnContainerExits"])), "ok");
    assert_eq!(said_of(None), "ok");
}

#[test]
fn who_is_refused_for_labels_alone_may_be_looked_at_again() {
    let again = |pod: &api::Pod| match judge(pod, &BTreeMap::new(), &node()) {
        Decision::Rejected(rejection) => rejection.labels_only,
        _ => false,
    };
    assert!(again(&pod(json!({"nodeSelector": {"disk": "hdd"}}))));
    assert!(!again(&pod(json!({"nodeSelector": {"disk": "hdd"}, "nodeName": "node-2"}))));
    assert!(!again(&asking(json!({"cpu": "9"}))));
}

//! What a manifest becomes.

use super::*;
use crate::api::{Container, PodSpec};

fn spec_of(decoded: &Decoded) -> &PodSpec {
    decoded.pod.spec.as_ref().expect("a spec")
}

fn container_of(decoded: &Decoded) -> &Container {
    &spec_of(decoded).containers[0]
}

#[test]
fn a_minimal_manifest_becomes_this_nodes_pod() {
    let decoded = accepted(MINIMAL);
    let meta = &decoded.pod.metadata;
    assert_eq!(meta.name.as_deref(), Some("web-node1"));
    assert_eq!(meta.namespace.as_deref(), Some("default"));
    let uid = meta.uid.as_deref().expect("a uid");
    assert!(
        uid.len() == 32 && uid.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
        "{uid}"
    );
    let annotations = meta.annotations.as_ref().expect("annotations");
    assert_eq!(annotations.get("kubernetes.io/config.hash").map(String::as_str), Some(uid));
    assert_eq!(annotations.len(), 1, "the source is the mux's to write: {annotations:?}");
    let spec = spec_of(&decoded);
    assert_eq!(spec.node_name.as_deref(), Some(NODE));
    assert_eq!(decoded.pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Pending"));
    assert_eq!(decoded.warnings, Vec::<String>::new());
}

#[test]
fn the_api_servers_defaults_are_filled_in() {
    let decoded = accepted(MINIMAL);
    let spec = spec_of(&decoded);
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirst"));
    assert_eq!(spec.scheduler_name.as_deref(), Some("default-scheduler"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.enable_service_links, Some(true));
    assert!(spec.security_context.is_some());
    let container = container_of(&decoded);
    assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
    assert_eq!(container.termination_message_path.as_deref(), Some("/dev/termination-log"));
    assert_eq!(container.termination_message_policy.as_deref(), Some("File"));
}

#[test]
fn what_the_manifest_says_is_kept() {
    let text = with_spec("restartPolicy: Never\nterminationGracePeriodSeconds: 0\nenableServiceLinks: false");
    let decoded = accepted(&text);
    let spec = spec_of(&decoded);
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.termination_grace_period_seconds, Some(0));
    assert_eq!(spec.enable_service_links, Some(false));
    assert_eq!(
        container_of(&accepted(&MINIMAL.replace("nginx:1", "nginx"))).image_pull_policy.as_deref(),
        Some("Always")
    );
}

#[test]
fn an_empty_text_is_the_same_as_none() {
    let decoded = accepted(&with_spec("restartPolicy: \"\"\nhostname: \"\""));
    assert_eq!(spec_of(&decoded).restart_policy.as_deref(), Some("Always"));
}

#[test]
fn requests_default_to_limits_and_amounts_are_canonical() {
    let text = with_container(
        "resources:\n  limits: {cpu: 0.5, memory: 1024Mi}\n  requests: {cpu: \"0.1001\", ephemeral-storage: 1e9}",
    );
    let decoded = accepted(&text);
    let resources = container_of(&decoded).resources.as_ref().expect("resources");
    let shown =
        |list: &Option<std::collections::BTreeMap<String, _>>| serde_json::to_string(list).expect("json");
    assert_eq!(shown(&resources.limits), r#"{"cpu":"500m","memory":"1Gi"}"#);
    assert_eq!(shown(&resources.requests), r#"{"cpu":"101m","ephemeral-storage":"1G","memory":"1Gi"}"#);
}

#[test]
fn ports_are_tcp_and_on_the_host_network_they_are_host_ports() {
    let ports = "ports:\n- containerPort: 80\n- containerPort: 53\n  protocol: UDP";
    let decoded = accepted(&with_container(ports));
    let list = container_of(&decoded).ports.as_ref().expect("ports");
    assert_eq!(list[0].protocol.as_deref(), Some("TCP"));
    assert_eq!(list[0].host_port, None);
    assert_eq!(list[1].protocol.as_deref(), Some("UDP"));
    let decoded = accepted(&format!("{}  hostNetwork: true\n", with_container(ports)));
    assert_eq!(container_of(&decoded).ports.as_ref().expect("ports")[0].host_port, Some(80));
}

#[test]
fn no_taint_evicts_a_pod_from_a_file() {
    let tolerations = |decoded: &Decoded| spec_of(decoded).tolerations.clone().unwrap_or_default();
    let own = tolerations(&accepted(MINIMAL));
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].operator.as_deref(), own[0].effect.as_deref()), (Some("Exists"), Some("NoExecute")));
    let text = with_spec(
        "tolerations:\n- {operator: Exists, effect: NoExecute, tolerationSeconds: 5}\n- {key: a, operator: Exists}",
    );
    let replaced = tolerations(&accepted(&text));
    assert_eq!((replaced.len(), replaced[0].toleration_seconds), (2, None));
    let url = Origin::Url { url: "http://h/p" };
    let from_url = decode_pod(MINIMAL.as_bytes(), &url, NODE, Gates::default()).expect("a pod");
    assert_eq!(tolerations(&from_url), []);
}

fn uid(text: &str, origin: Origin<'_>, node: &str) -> String {
    let decoded = decode_pod(text.as_bytes(), &origin, node, Gates::default()).expect("a pod");
    decoded.pod.metadata.uid.expect("a uid")
}

#[test]
fn the_uid_is_the_contents_and_the_places() {
    let base = uid(MINIMAL, FILE, NODE);
    assert_eq!(base, uid(MINIMAL, FILE, NODE));
    let written_differently =
        format!("# a comment\n{MINIMAL}  restartPolicy: Always\n  dnsPolicy: ClusterFirst\n");
    assert_eq!(base, uid(&written_differently, FILE, NODE), "spelling out defaults makes no other pod");
    let as_json =
        serde_json::to_string(&serde_saphyr::from_str::<Value>(MINIMAL).expect("yaml")).expect("json");
    assert_eq!(base, uid(&as_json, FILE, NODE));
    let url = Origin::Url { url: "http://h/p" };
    for other in [
        uid(&MINIMAL.replace("nginx:1", "nginx:2"), FILE, NODE),
        uid(MINIMAL, Origin::File { path: "/other.yaml" }, NODE),
        uid(MINIMAL, Origin::Submitted { name: "web" }, NODE),
        uid(MINIMAL, FILE, "node1"),
        uid(MINIMAL, url, NODE),
    ] {
        assert_ne!(base, other);
    }
    assert_eq!(uid(MINIMAL, url, "a"), uid(MINIMAL, url, "b"), "upstream leaves the node out for URLs");
}

/// Running pods carry this value, which is upstream's: if it changes, an update of Crablet restarts every static pod.
#[test]
fn the_uid_of_a_known_manifest_never_changes() {
    assert_eq!(uid(MINIMAL, FILE, NODE), "2bf1de6c78ff4e0b07d3dbc4ccba46e5");
}

#[test]
fn a_uid_in_the_manifest_is_kept() {
    let decoded = accepted(&with_metadata("uid: my-pod"));
    assert_eq!(decoded.pod.metadata.uid.as_deref(), Some("my-pod"));
    let annotations = decoded.pod.metadata.annotations.expect("annotations");
    assert_eq!(annotations.get("kubernetes.io/config.hash").map(String::as_str), Some("my-pod"));
}

/// As upstream's decoder has it, so that the UID is that of the pod with the empty text.
#[test]
fn a_key_without_a_value_has_an_empty_one() {
    for (nothing, empty) in [
        (with_metadata("labels: {tier: }"), with_metadata("labels: {tier: \"\"}")),
        (
            with_metadata("annotations:\n  example.com/note:"),
            with_metadata("annotations: {example.com/note: \"\"}"),
        ),
        (with_spec("nodeSelector:\n  a:"), with_spec("nodeSelector: {a: \"\"}")),
        (with_container("args:\n-\n- b"), with_container("args: [\"\", b]")),
    ] {
        assert_eq!(accepted(&nothing), accepted(&empty), "{nothing}");
    }
    let message = refusal(&with_container("resources: {limits: {cpu: }}"));
    assert!(message.starts_with("spec.containers[0].resources.limits.cpu: must be "), "{message}");
}

#[test]
fn of_a_key_that_is_there_twice_the_last_one_counts() {
    let text = with_spec("hostname: one\nhostname: two\ndnsConfig: {searches: [a], searches: [b]}");
    let decoded = accepted(&text);
    assert_eq!(decoded.warnings, ["line 10, column 3: duplicate mapping key: hostname; the last one counts"]);
    let spec = spec_of(&decoded);
    assert_eq!(spec.hostname.as_deref(), Some("two"));
    let searches = spec.dns_config.as_ref().and_then(|config| config.searches.as_deref());
    assert_eq!(searches, Some(&["b".to_owned()][..]));
    let once = with_spec("hostname: two\ndnsConfig: {searches: [b]}");
    assert_eq!(decoded.pod, accepted(&once).pod, "nothing of the first ones is left, the UID included");
}

#[test]
fn a_negative_grace_period_is_a_second() {
    let negative = accepted(&with_spec("terminationGracePeriodSeconds: -5"));
    assert_eq!(spec_of(&negative).termination_grace_period_seconds, Some(1));
    assert_eq!(negative, accepted(&with_spec("terminationGracePeriodSeconds: 1")));
}

/// The container waits with `InvalidImageName` then.
#[test]
fn an_image_that_is_none_makes_no_manifest_invalid() {
    let id = "0123456789012345678901234567890123456789012345678901234567890123";
    for image in ["Nginx:1", "Not An Image", "nginx:", id] {
        let decoded = accepted(&MINIMAL.replace("nginx:1", &format!("{image:?}")));
        let container = container_of(&decoded);
        assert_eq!(container.image.as_deref(), Some(image));
        assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
    }
}

#[test]
fn gates_allow_more() {
    let with = |gates: Gates, text: &str| decode_pod(text.as_bytes(), &FILE, NODE, gates);
    let refer = Gates { may_refer: true, ..Gates::default() };
    for lines in [
        "serviceAccountName: a",
        "imagePullSecrets: [{name: s}]",
        "volumes: [{name: v, secret: {secretName: s}}]",
        "volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]",
        "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p}}, {configMap: {name: c}}]}}]",
    ] {
        refusal(&with_spec(lines));
        with(refer, &with_spec(lines)).unwrap_or_else(|error| panic!("refused: {error}\n{lines}"));
    }
    for (lines, expected) in [
        (
            "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: p}}]}}]",
            "spec.volumes[0]: static pods may not use ClusterTrustBundle projected volume sources",
        ),
        ("resourceClaims: [{name: r}]", "spec.resourceClaims: static pods may not use ResourceClaims"),
    ] {
        let error = with(refer, &with_spec(lines)).expect_err("a refusal");
        assert_eq!(error.to_string(), expected);
    }
    let mount = with_spec("securityContext: {seLinuxChangePolicy: MountOption}");
    assert!(with(Gates { selinux_mount: true, ..Gates::default() }, &mount).is_ok());
    let addresses = with_spec(
        "hostAliases: [{ip: 010.0.00.1}]\ndnsConfig: {nameservers: [\"::ffff:10.0.0.1\", \"::ffff:010.0.0.1\"]}",
    );
    assert!(with(Gates { any_address: true, ..Gates::default() }, &addresses).is_ok());
}

#[test]
fn unknown_fields_are_named_and_ignored() {
    let text = format!(
        "{}  hostNetwrok: true\nextra: 1\n",
        with_container("livenesProbe: {}\nports: [{containerPort: 1, x: y}]")
    );
    let mut warnings = accepted(&text).warnings;
    warnings.sort();
    assert_eq!(
        warnings,
        [
            "extra: unknown field, ignored",
            "spec.containers[0].livenesProbe: unknown field, ignored",
            "spec.containers[0].ports[0].x: unknown field, ignored",
            "spec.hostNetwrok: unknown field, ignored",
        ]
    );
}

#[test]
fn what_kubectl_adds_to_a_dry_run_is_no_trouble() {
    let text = format!("{}status: {{}}\n", with_metadata("creationTimestamp: null\nlabels:\n  run: web"));
    assert_eq!(accepted(&text).warnings, Vec::<String>::new());
    let text = format!("{MINIMAL}status:\n  phase: Failed\n");
    let decoded = accepted(&text);
    assert_eq!(decoded.warnings, ["status: ignored; a manifest says what should be, not what is"]);
    assert_eq!(decoded.pod.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
}

#[test]
fn only_the_first_document_counts() {
    for text in [
        format!("{MINIMAL}---\nkind: [broken\n"),
        format!("---\n{MINIMAL}---\n{MINIMAL}"),
        format!("# leading comment\n---\n{MINIMAL}---\nsecond: true\n"),
    ] {
        let warnings = accepted(&text).warnings;
        assert_eq!(warnings.len(), 1, "{text}");
        assert!(
            warnings[0].starts_with("the manifest has more than one document; only the first one is used")
        );
    }
    assert_eq!(accepted(&format!("---\n{MINIMAL}---\n")).warnings, Vec::<String>::new());
}

#[test]
fn everything_that_is_supported_is_accepted() {
    let decoded = accepted(include_str!("everything.yaml"));
    assert_eq!(decoded.warnings, Vec::<String>::new());
    let env = container_of(&decoded).env.as_ref().expect("env");
    let field = env[1].value_from.as_ref().and_then(|from| from.field_ref.as_ref()).expect("a field");
    assert_eq!(field.api_version.as_deref(), Some("v1"));
}

#[test]
fn yaml_reads_numbers_as_kubernetes_does() {
    let decoded = accepted(&with_spec(
        "terminationGracePeriodSeconds: 30.0\nsecurityContext: {runAsUser: 0o17, runAsGroup: 017}",
    ));
    let context = spec_of(&decoded).security_context.as_ref().expect("a context");
    assert_eq!((context.run_as_user, context.run_as_group), (Some(15), Some(15)));
}

#[test]
fn flow_style_and_a_byte_order_mark_are_read() {
    accepted(
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: nginx}]}}",
    );
    accepted(&format!("\u{feff}{MINIMAL}"));
}

#[test]
fn a_url_may_answer_with_a_pod_or_a_list() {
    let origin = Origin::Url { url: "http://h/p" };
    let one = decode_pods(MINIMAL.as_bytes(), &origin, NODE, Gates::default()).expect("pods");
    assert_eq!(one.len(), 1);
    let list = r#"{"apiVersion":"v1","kind":"PodList","items":[
        {"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":1}}}]}},
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"x":1,"containers":[{"name":"c","image":"i"}]}}]}"#;
    let pods = decode_pods(list.as_bytes(), &origin, NODE, Gates::default()).expect("pods");
    let names: Vec<_> =
        pods.iter().map(|decoded| decoded.pod.metadata.name.clone().unwrap_or_default()).collect();
    assert_eq!(names, ["a-node1", "b-node1"]);
    assert_eq!(pods[1].warnings, ["items[1].spec.x: unknown field, ignored"]);
    let empty = br#"{"apiVersion":"v1","kind":"PodList"}"#;
    let empty = decode_pods(empty, &origin, NODE, Gates::default()).expect("pods");
    assert_eq!(empty, []);
}

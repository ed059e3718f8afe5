//! What is refused, and in which words.

use super::*;

#[test]
fn what_is_no_pod_at_all() {
    for (text, expected) in [
        ("", "the manifest is empty; write a `v1` `Pod` into it, or remove it"),
        (" \n\t\n", "the manifest is empty; write a `v1` `Pod` into it, or remove it"),
        ("# only a comment\n", "the manifest is empty; write a `v1` `Pod` into it, or remove it"),
        ("---\n", "the manifest is empty; write a `v1` `Pod` into it, or remove it"),
        (
            "just text",
            "the manifest holds a text; it must hold a mapping that begins with `apiVersion` and `kind`",
        ),
        (
            "- a\n- b\n",
            "the manifest holds a list; it must hold a mapping that begins with `apiVersion` and `kind`",
        ),
        ("a: 1", "apiVersion: required; set it to `v1`; kind: required; set it to `Pod`"),
        (
            "apiVersion: apps/v1\nkind: Deployment",
            "apiVersion: \"apps/v1\" is not `v1`; kind: \"Deployment\" is not `Pod`",
        ),
        ("apiVersion: v1\nkind: [Pod]", "kind: must be the text `Pod`, found a list"),
        ("apiVersion: 1\nkind: Pod", "apiVersion: must be the text `v1`, found a number"),
        ("apiVersion: v1\nkind: PodList", "kind: \"PodList\" is not `Pod`"),
        (
            "apiVersion: v1\nkind: Pod",
            "metadata.name: required; spec.containers: at least one container is required",
        ),
    ] {
        assert_eq!(refusal(text), expected, "{text}");
    }
}

#[test]
fn bytes_that_cannot_be_read() {
    let decode = |bytes: &[u8]| decode_pod(bytes, &FILE, NODE, Gates::default());
    let refusal = |bytes: &[u8]| decode(bytes).expect_err("a refusal").to_string();
    assert_eq!(refusal(b"kind: \xff"), "byte 6 is not valid UTF-8; save the manifest as UTF-8");
    let large = vec![b' '; MAX_MANIFEST_BYTES + 1];
    assert_eq!(refusal(&large), "the manifest has 10485761 bytes; the limit is 10485760");
}

#[test]
fn broken_syntax_names_line_and_column() {
    for (text, line) in
        [("{\"a\": 1 \"b\": 2}", "line 1, column 9: "), ("{\"a\": 1} trailing", "line 1, column 10: ")]
    {
        assert!(refusal(text).starts_with(line), "{}", refusal(text));
    }
    for text in ["a: [1, 2\n", "a: 1\na: [2\n", "a:\n\t- x\n", "a: *nowhere\n", "a: b: c\n"] {
        let message = refusal(text);
        assert!(message.starts_with("line ") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_value_of_the_wrong_type_names_its_field() {
    for (lines, expected) in [
        (
            "env: [{name: A, value: 5}]",
            "spec.containers[0].env[0].value: must be a text, found integer 5; put it in quotes",
        ),
        (
            "env: [{name: A, value: yes}]",
            "spec.containers[0].env[0].value: must be a text, found boolean true; put it in quotes",
        ),
        (
            "ports: [{containerPort: \"80\"}]",
            "spec.containers[0].ports[0].containerPort: must be a whole number, found string \"80\"",
        ),
        ("ports: {containerPort: 80}", "spec.containers[0].ports: must be a list, found map"),
        ("tty: \"true\"", "spec.containers[0].tty: must be `true` or `false`, found string \"true\""),
        ("command: /bin/sh", "spec.containers[0].command: must be a list, found string \"/bin/sh\""),
        (
            "securityContext: root",
            "spec.containers[0].securityContext: must be a mapping, found string \"root\"",
        ),
        (
            "resources: {limits: {cpu: [1]}}",
            "spec.containers[0].resources.limits.cpu: must be a quantity such as `500m` or `128Mi`, found sequence",
        ),
        (
            "stdin: 2\ntty: 1",
            "spec.containers[0].stdin: must be `true` or `false`, found integer 2; spec.containers[0].tty: must be `true` or `false`, found integer 1",
        ),
    ] {
        assert_eq!(refusal(&with_container(lines)), expected, "{lines}");
    }
    assert!(
        refusal(&with_metadata("labels: {a: 1}"))
            .starts_with("metadata.labels.a: must be a text, found integer 1")
    );
    assert!(
        refusal(&with_metadata("creationTimestamp: yesterday")).starts_with("metadata.creationTimestamp: ")
    );
}

#[test]
fn what_the_api_server_would_refuse_in_the_pod() {
    for (lines, expected) in [
        (
            "restartPolicy: Sometimes",
            "spec.restartPolicy: \"Sometimes\" is not one of Always, OnFailure, Never",
        ),
        (
            "dnsPolicy: Mine",
            "spec.dnsPolicy: \"Mine\" is not one of ClusterFirst, ClusterFirstWithHostNet, Default, None",
        ),
        ("dnsPolicy: None", "spec.dnsConfig.nameservers: at least one is required with dnsPolicy `None`"),
        ("dnsConfig: {nameservers: [a]}", "spec.dnsConfig.nameservers[0]: \"a\" is not an IP address"),
        (
            "dnsConfig: {nameservers: [1.1.1.1, 1.1.1.1, 1.1.1.1, 1.1.1.1]}",
            "spec.dnsConfig.nameservers: 4 nameservers; the limit is 3",
        ),
        ("dnsConfig: {searches: [\"a b\"]}", "spec.dnsConfig.searches[0]: \"a b\" must be at most 253"),
        ("dnsConfig: {options: [{value: x}]}", "spec.dnsConfig.options[0].name: required"),
        (
            "dnsConfig: {nameservers: [010.0.0.1]}",
            "spec.dnsConfig.nameservers[0]: \"010.0.0.1\" must not have leading 0s",
        ),
        (
            "hostAliases: [{ip: \"::ffff:10.0.0.1\"}]",
            "spec.hostAliases[0].ip: \"::ffff:10.0.0.1\" must not be an IPv4-mapped IPv6 address",
        ),
        ("runtimeClassName: Kata", "spec.runtimeClassName: \"Kata\" must be at most 253 lower-case"),
        ("runtimeClassName: \"\"", "spec.runtimeClassName: \"\" must be at most 253 lower-case"),
        ("overhead: {cpu: -1}", "spec.overhead.limits[cpu]: \"-1\" is below 0"),
        (
            "securityContext: {seLinuxChangePolicy: MountOption}",
            "spec.securityContext.seLinuxChangePolicy: \"MountOption\" is not one of Recursive",
        ),
        (
            "restartPolicy: Never\ninitContainers: [{name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]",
            "spec.initContainers[0].resizePolicy[0].restartPolicy: must be 'NotRequired' when pod `restartPolicy` is \
             'Never'; spec.initContainers[0].resizePolicy[0].restartPolicy: must not be set to 'RestartContainer' for \
             non-sidecar initContainers",
        ),
        ("activeDeadlineSeconds: 0", "spec.activeDeadlineSeconds: 0 is not between 1 and 2147483647"),
        ("hostname: Big", "spec.hostname: \"Big\" must be at most 63 lower-case letters"),
        ("subdomain: a.b", "spec.subdomain: \"a.b\" must be at most 63 lower-case letters"),
        (
            "hostAliases: [{ip: x, hostnames: [\"_\"]}]",
            "spec.hostAliases[0].ip: \"x\" is not an IP address; spec.hostAliases[0].hostnames[0]: \"_\" must be",
        ),
        (
            "hostPID: true\nshareProcessNamespace: true",
            "spec.shareProcessNamespace: cannot be `true` together with `hostPID`",
        ),
        ("nodeSelector: {\"a b\": c}", "spec.nodeSelector: key \"a b\" must be a name"),
        (
            "tolerations: [{key: a, operator: Exists, value: b}]",
            "spec.tolerations[0].value: must be empty with operator `Exists`",
        ),
        (
            "tolerations: [{operator: Equal}]",
            "spec.tolerations[0].operator: must be `Exists` when there is no key",
        ),
        (
            "securityContext: {runAsUser: -1}",
            "spec.securityContext.runAsUser: -1 is not between 0 and 2147483647",
        ),
        (
            "securityContext: {fsGroup: 2147483648}",
            "spec.securityContext.fsGroup: 2147483648 is not between 0 and 2147483647",
        ),
        (
            "securityContext: {fsGroupChangePolicy: Never}",
            "spec.securityContext.fsGroupChangePolicy: \"Never\" is not one of OnRootMismatch, Always",
        ),
        (
            "securityContext: {supplementalGroups: [1, 2147483648]}",
            "spec.securityContext.supplementalGroups[1]: 2147483648 is not between",
        ),
        (
            "securityContext: {seccompProfile: {type: Mine}}",
            "spec.securityContext.seccompProfile.type: \"Mine\" is not one of",
        ),
        ("os: {name: beos}", "spec.os.name: \"beos\" is not one of linux, windows"),
    ] {
        let message = refusal(&with_spec(lines));
        assert!(message.starts_with(expected), "{lines}\n{message}");
    }
}

#[test]
fn what_the_api_server_would_refuse_in_a_container() {
    for (lines, expected) in [
        ("imagePullPolicy: Maybe", "imagePullPolicy: \"Maybe\" is not one of Always, IfNotPresent, Never"),
        (
            "terminationMessagePolicy: X",
            "terminationMessagePolicy: \"X\" is not one of File, FallbackToLogsOnError",
        ),
        ("ports: [{containerPort: 0}]", "ports[0].containerPort: required"),
        ("ports: [{containerPort: 65536}]", "ports[0].containerPort: 65536 is not between 1 and 65535"),
        ("ports: [{containerPort: 1, hostPort: -1}]", "ports[0].hostPort: -1 is not between 1 and 65535"),
        (
            "ports: [{containerPort: 1, protocol: tcp}]",
            "ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP",
        ),
        ("ports: [{containerPort: 1, name: 1}, {containerPort: 2}]", "ports[0].name: must be a text"),
        ("ports: [{containerPort: 1, name: HTTP}]", "ports[0].name: \"HTTP\" must be at most 15"),
        (
            "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]",
            "ports[1].name: \"a\" is the name of an earlier port",
        ),
        (
            "ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2, hostPort: 9}]",
            "ports[1].hostPort: 9 is taken by an earlier port",
        ),
        ("env: [{value: x}]", "env[0].name: required"),
        ("env: [{name: A=B}]", "env[0].name: \"A=B\" must be printable ASCII without `=`"),
        ("env: [{name: A, valueFrom: {}}]", "env[0].valueFrom: names no source"),
        (
            "env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "env[0].valueFrom: cannot be set together with `value`",
        ),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu}}}]",
            "env[0].valueFrom: names more than one source",
        ),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]",
            "env[0].valueFrom.fieldRef.fieldPath: \"metadata.labels\" is not one of metadata.name",
        ),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a b']\"}}}]",
            "env[0].valueFrom.fieldRef.fieldPath: key \"a b\" must be",
        ),
        ("env: [{name: A, valueFrom: {fieldRef: {}}}]", "env[0].valueFrom.fieldRef.fieldPath: required"),
        (
            "env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}]",
            "env[0].valueFrom.fieldRef.apiVersion: \"v2\" is not `v1`",
        ),
        (
            "env: [{name: A, valueFrom: {resourceFieldRef: {resource: cpu}}}]",
            "env[0].valueFrom.resourceFieldRef.resource: \"cpu\" is not `limits.` or `requests.`",
        ),
        (
            "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]",
            "env[0].valueFrom.resourceFieldRef.divisor: \"2\" is not one of 1, 1m",
        ),
        (
            "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: z}}}]",
            "env[0].valueFrom.resourceFieldRef.containerName: \"z\" is no container of this pod",
        ),
        ("envFrom: [{prefix: a}]", "envFrom[0]: names no source; set `configMapRef` or `secretRef`"),
        (
            "envFrom: [{prefix: =, configMapRef: {name: c}, secretRef: {name: s}}]",
            "envFrom[0].prefix: \"=\" must be printable ASCII without `=`; spec.containers[0].envFrom[0]: names more",
        ),
        ("resources: {limits: {cpu: fast}}", "resources.limits[cpu]: \"fast\" is not a quantity"),
        (
            "resources: {limits: {memory: 128MB}}",
            "resources.limits[memory]: \"128MB\" has the unknown suffix \"MB\"",
        ),
        ("resources: {requests: {cpu: -1}}", "resources.requests[cpu]: \"-1\" is below 0"),
        (
            "resources: {requests: {cpu: 2}, limits: {cpu: 1}}",
            "resources.requests[cpu]: 2 is above the limit of 1",
        ),
        (
            "resources: {requests: {example.com/gpu: 1}}",
            "resources.requests[example.com/gpu]: Limit must be set for non overcommitable resources",
        ),
        (
            "resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 2}}",
            "resources.requests[example.com/gpu]: 1 must be equal to the limit of 2",
        ),
        (
            "resources: {limits: {example.com/gpu: 500m}}",
            "resources.limits[example.com/gpu]: \"500m\" must be an integer",
        ),
        (
            "resources: {limits: {requests.example.com/gpu: 1}}",
            "resources.limits[requests.example.com/gpu]: doesn't follow extended resource name standard",
        ),
        (
            "resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]",
            "resizePolicy[0].resourceName: \"disk\" is not one of cpu, memory",
        ),
        (
            "resizePolicy: [{resourceName: cpu, restartPolicy: Never}]",
            "resizePolicy[0].restartPolicy: \"Never\" is not one of NotRequired, RestartContainer",
        ),
        (
            "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]",
            "resizePolicy[1].resourceName: \"cpu\" is named above; names must be unique",
        ),
        ("resources: {limits: {gpu: 1}}", "resources.limits[gpu]: is not a resource that containers have"),
        ("securityContext: {runAsGroup: -5}", "securityContext.runAsGroup: -5 is not between"),
        (
            "securityContext: {privileged: true, allowPrivilegeEscalation: false}",
            "securityContext.allowPrivilegeEscalation: cannot be `false` together with `privileged`",
        ),
        (
            "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}",
            "securityContext.allowPrivilegeEscalation: cannot be `false` together with the capability",
        ),
        (
            "securityContext: {procMount: None}",
            "securityContext.procMount: \"None\" is not one of Default, Unmasked",
        ),
        ("securityContext: {seccompProfile: {}}", "securityContext.seccompProfile.type: required"),
        (
            "securityContext: {seccompProfile: {type: Unconfined, localhostProfile: x}}",
            "securityContext.seccompProfile.localhostProfile: only for type `Localhost`",
        ),
    ] {
        let message = refusal(&with_container(lines));
        assert!(message.starts_with(&format!("spec.containers[0].{expected}")), "{lines}\n{message}");
    }
}

#[test]
fn names_images_and_their_like() {
    for (from, to, expected) in [
        ("name: web", "name: Web", "metadata.name: \"Web-node1\" must be at most 253"),
        ("name: web", "generateName: web-", "metadata.name: required"),
        ("name: web", "name: web\n  namespace: a.b", "metadata.namespace: \"a.b\" must be at most 63"),
        ("name: web", "name: web\n  uid: ../../etc", "metadata.uid: \"../../etc\" must be at most 63"),
        ("name: web", "name: web\n  labels: {\"a b\": x}", "metadata.labels: key \"a b\" must be"),
        ("name: web", "name: web\n  labels: {a: \"x y\"}", "metadata.labels[a]: \"x y\" must be"),
        (
            "name: web",
            "name: web\n  annotations: {\"a\\nb\": x}",
            "metadata.annotations: key \"a\\nb\" must be",
        ),
        (
            "name: web",
            "name: web\n  annotations: {kubernetes.io/config.mirror: x}",
            "metadata.annotations[kubernetes.io/config.mirror]: this is the API server's copy",
        ),
        (
            "name: web",
            "name: web\n  deletionTimestamp: \"2024-01-01T00:00:00Z\"",
            "metadata.deletionTimestamp: a manifest cannot delete its pod",
        ),
        ("    image: nginx:1\n", "", "spec.containers[0].image: required"),
        ("nginx:1", "\" nginx\"", "spec.containers[0].image: must not have leading or trailing whitespace"),
        ("- name: app", "- name: App", "spec.containers[0].name: \"App\" must be at most 63"),
        ("- name: app\n    image", "- image", "spec.containers[0].name: required"),
        (
            "nginx:1\n",
            "nginx:1\n  - name: app\n    image: nginx:1\n",
            "spec.containers[1].name: \"app\" is the name of an earlier container",
        ),
        (
            "nginx:1\n",
            "nginx:1\n    ports: [{containerPort: 80, hostPort: 81}]\n  hostNetwork: true\n",
            "spec.containers[0].ports[0].hostPort: 81 must equal `containerPort` 80 with hostNetwork",
        ),
    ] {
        let message = refusal(&MINIMAL.replace(from, to));
        assert!(message.starts_with(expected), "{to}\n{message}");
    }
}

#[test]
fn annotations_have_a_limit_together() {
    let text = with_metadata(&format!("annotations: {{a: \"{}\"}}", "x".repeat(256 << 10)));
    assert!(refusal(&text).starts_with("metadata.annotations: 2622"), "{}", refusal(&text));
    assert!(refusal(&text).ends_with("bytes together; the limit is 262144"));
}

#[test]
fn static_pods_name_no_api_objects() {
    for (lines, expected) in [
        ("serviceAccountName: a", "spec.serviceAccountName: static pods may not reference serviceaccounts"),
        ("serviceAccount: a", "spec.serviceAccountName: static pods may not reference serviceaccounts"),
        ("imagePullSecrets: [{name: s}]", "spec.imagePullSecrets: static pods may not reference secrets"),
        (
            "volumes: [{name: v, secret: {secretName: s}}]",
            "spec.volumes[0]: static pods may not reference secrets",
        ),
        (
            "volumes: [{name: v, configMap: {name: c}}]",
            "spec.volumes[0]: static pods may not reference configmaps",
        ),
        (
            "volumes: [{name: v, csi: {driver: d}}]",
            "spec.volumes[0]: static pods may not reference csidrivers (via CSI volumes)",
        ),
        (
            "volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]",
            "spec.volumes[0]: static pods may not reference endpoints (via glusterFS volumes)",
        ),
        (
            "volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]",
            "spec.volumes[0]: static pods may not reference persistentvolumeclaims",
        ),
        (
            "volumes: [{name: v, ephemeral: {}}]",
            "spec.volumes[0]: static pods may not reference persistentvolumeclaims (via ephemeral volumes)",
        ),
        (
            "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p}}]}}]",
            "spec.volumes[0]: static pods may not reference serviceaccounts (via projected volumes)",
        ),
        (
            "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: p}}]}}]",
            "spec.volumes[0]: static pods may not reference clustertrustbundles",
        ),
        (
            "volumes: [{name: v, projected: {sources: [{secret: {name: p}}]}}]",
            "spec.volumes[0]: static pods may not reference secrets",
        ),
        ("resourceClaims: [{name: r}]", "spec.resourceClaims: static pods may not reference resourceclaims"),
    ] {
        assert_eq!(refusal(&with_spec(lines)), expected, "{lines}");
    }
    for (lines, expected) in [
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
            "spec.containers[0].env[0].valueFrom.secretKeyRef: static pods may not reference secrets",
        ),
        (
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]",
            "spec.containers[0].env[0].valueFrom.configMapKeyRef: static pods may not reference configmaps",
        ),
        (
            "envFrom: [{configMapRef: {name: c}}]",
            "spec.containers[0].envFrom[0].configMapRef: static pods may not reference configmaps",
        ),
        (
            "envFrom: [{configMapRef: {name: c}}, {prefix: a, secretRef: {name: c}}]",
            "spec.containers[0].envFrom[1].secretRef: static pods may not reference secrets",
        ),
    ] {
        assert_eq!(refusal(&with_container(lines)), expected, "{lines}");
    }
}

#[test]
fn what_cannot_run_yet_is_said() {
    for (lines, path) in [
        ("volumes: [{name: v, rbd: {image: i, monitors: [m]}}]", "spec.volumes[0].rbd"),
        ("volumes: [{name: v, flexVolume: {driver: a/b}}]", "spec.volumes[0].flexVolume"),
    ] {
        assert_eq!(refusal(&with_spec(lines)), format!("{path}: not supported yet; remove it"), "{lines}");
    }
    let expected = "spec.schedulingGates: not supported in a static pod; remove it";
    assert_eq!(refusal(&with_spec("schedulingGates: [{name: g}]")), expected);
    let message = refusal(&with_container("resources: {claims: [{name: c}]}"));
    let expected = "spec.containers[0].resources.claims: not supported yet; remove it";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn one_bad_pod_refuses_the_list_and_is_named() {
    let list = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n- metadata: {name: b}\n";
    let url = Origin::Url { url: "http://h/p" };
    let error = decode_pods(list.as_bytes(), &url, NODE, Gates::default()).expect_err("a refusal");
    assert_eq!(error.to_string(), "items[1].spec.containers: at least one container is required");
    for (text, expected) in [
        ("apiVersion: v1\nkind: List\n", "kind: \"List\" is not `Pod` or `PodList`"),
        ("apiVersion: v1\nkind: PodList\nitems: {}\n", "items: must be a list of pods"),
        ("apiVersion: v1\nkind: PodList\nitems: [5]\n", "items[0]: must be a mapping, found integer 5"),
    ] {
        let error = decode_pods(text.as_bytes(), &FILE, NODE, Gates::default()).expect_err("a refusal");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_refusal_is_one_line_of_bearable_length() {
    let bad_env: String = (0..1000).map(|_| "    - {name: \"a=\\n\"}\n").collect();
    let message = refusal(&format!("{MINIMAL}    env:\n{bad_env}"));
    assert!(!message.contains('\n') && message.ends_with("; and 990 more"), "{message}");
    let message = refusal(&with_spec(&format!("hostname: \"{}\"", "X".repeat(100_000))));
    assert!(message.len() < 400, "{message}");
}

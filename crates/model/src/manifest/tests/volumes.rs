//! Volumes and where containers see them.

use super::*;

/// A volume in one line of YAML, without its name, and the whole manifest around it.
fn with_volume(source: &str) -> String {
    with_spec(&format!("volumes: [{{name: v{source}}}]"))
}

/// A manifest with the volumes `a` and `b`, and these mounts.
fn with_mounts(mounts: &str) -> String {
    format!("{}  volumes: [{{name: a}}, {{name: b}}]\n", with_container(&format!("volumeMounts: {mounts}")))
}

fn volume_of(source: &str) -> serde_json::Value {
    let spec = accepted(&with_volume(source)).pod.spec.expect("a spec");
    serde_json::to_value(&spec.volumes.expect("volumes")[0]).expect("json")
}

#[test]
fn the_api_servers_defaults_are_filled_in() {
    use serde_json::json;
    for (source, expected) in [
        ("", json!({"name": "v", "emptyDir": {}})),
        (", hostPath: {path: /h}", json!({"name": "v", "hostPath": {"path": "/h", "type": ""}})),
        (
            ", downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.name}}]}",
            json!({"name": "v", "downwardAPI": {"defaultMode": 420, "items": [
                {"path": "f", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}),
        ),
        (
            ", projected: {sources: [{downwardAPI: {items: [{path: f, fieldRef: {fieldPath: metadata.uid}}]}}]}",
            json!({"name": "v", "projected": {"defaultMode": 420, "sources": [{"downwardAPI": {"items": [
                {"path": "f", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}]}}]}}),
        ),
        (", downwardAPI: {defaultMode: 0}", json!({"name": "v", "downwardAPI": {"defaultMode": 0}})),
    ] {
        assert_eq!(volume_of(source), expected, "{source}");
    }
}

/// A static pod may not have these, but is refused for that and not for what it leaves out.
#[test]
fn sources_from_the_api_server_have_their_defaults_too() {
    let mut pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [], "volumes": [
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}},
    ]}}))
    .expect("a pod");
    defaults::apply(&mut pod);
    assert_eq!(
        serde_json::to_value(pod.spec.expect("a spec").volumes).expect("json"),
        serde_json::json!([
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "c", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "t", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "p", "expirationSeconds": 3600}}]}},
        ])
    );
}

#[test]
fn bidirectional_mounts_are_for_privileged_containers() {
    let mounts = "[{name: a, mountPath: /a, mountPropagation: Bidirectional}]";
    assert_eq!(
        refusal(&with_mounts(mounts)),
        "spec.containers[0].volumeMounts[0].mountPropagation: `Bidirectional` is only for privileged containers; set `securityContext.privileged` or use `HostToContainer`"
    );
    accepted(&with_mounts(&format!("{mounts}\nsecurityContext: {{privileged: true}}")));
}

#[test]
fn names_of_volumes_and_their_sources() {
    for (volumes, expected) in [
        ("[{emptyDir: {}}]", "spec.volumes[0].name: required"),
        ("[{name: V}]", "spec.volumes[0].name: \"V\" must be at most 63 lower-case letters"),
        (
            "[{name: v}, {name: v}]",
            "spec.volumes[1].name: \"v\" is the name of an earlier volume; names must be unique",
        ),
        (
            "[{name: v, hostPath: {path: /h}, emptyDir: {}}]",
            "spec.volumes[0]: names more than one source (emptyDir, hostPath); keep one of them",
        ),
        (
            "[{name: v, nfs: {server: s, path: /}, emptyDir: {}}]",
            "spec.volumes[0]: names more than one source (emptyDir, nfs); keep one of them",
        ),
    ] {
        let message = refusal(&with_spec(&format!("volumes: {volumes}")));
        assert!(message.starts_with(expected), "{volumes}\n{message}");
    }
}

#[test]
fn what_the_api_server_would_refuse_in_a_volume() {
    for (source, expected) in [
        (
            "emptyDir: {medium: Disk}",
            "emptyDir.medium: \"Disk\" is not one of Memory, HugePages, HugePages-<size>",
        ),
        ("emptyDir: {medium: HugePages-x}", "emptyDir.medium: \"HugePages-x\" is not one of"),
        ("emptyDir: {sizeLimit: -1}", "emptyDir.sizeLimit: \"-1\" is below 0"),
        ("emptyDir: {sizeLimit: much}", "emptyDir.sizeLimit: \"much\" is not a quantity"),
        ("hostPath: {}", "hostPath.path: required"),
        ("hostPath: {path: /a/../b}", "hostPath.path: \"/a/../b\" must not contain `..`"),
        (
            "hostPath: {path: /a, type: Folder}",
            "hostPath.type: \"Folder\" is not one of DirectoryOrCreate, Directory",
        ),
        (
            "downwardAPI: {defaultMode: 512}",
            "downwardAPI.defaultMode: 512 is not between 0 and 511 (octal 0777)",
        ),
        ("projected: {defaultMode: -1}", "projected.defaultMode: -1 is not between 0 and 511"),
        (
            "projected: {sources: [{secret: {name: s}, configMap: {name: c}}]}",
            "projected.sources[0]: names more than one source; keep one of them",
        ),
        (
            "projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}, {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.uid}}]}}]}",
            "projected.sources[1].downwardAPI.items[0].path: \"a\" is the path of an earlier item; paths must be unique",
        ),
    ] {
        let message = refusal(&with_volume(&format!(", {source}")));
        assert!(message.starts_with(&format!("spec.volumes[0].{expected}")), "{source}\n{message}");
    }
}

#[test]
fn what_the_api_server_would_refuse_in_a_file_about_the_pod() {
    let name = "fieldRef: {fieldPath: metadata.name}";
    let cpu = "resourceFieldRef: {containerName: app, resource: limits.cpu}";
    for (item, expected) in [
        (name.to_owned(), ".path: required"),
        (format!("path: /a, {name}"), ".path: \"/a\" must be a relative path"),
        (format!("path: a/../b, {name}"), ".path: \"a/../b\" must not contain `..`"),
        (format!("path: ..data, {name}"), ".path: \"..data\" must not begin with `..`"),
        (format!("path: a, mode: 01000, {name}"), ".mode: 512 is not between 0 and 511 (octal 0777)"),
        ("path: a".to_owned(), ": names no source; set `fieldRef` or `resourceFieldRef`"),
        (format!("path: a, {name}, {cpu}"), ": names more than one source; keep one of them"),
        (
            "path: a, fieldRef: {fieldPath: status.podIP}".to_owned(),
            ".fieldRef.fieldPath: \"status.podIP\" is not one of metadata.name, metadata.namespace, metadata.labels",
        ),
        (
            "path: a, resourceFieldRef: {resource: limits.cpu}".to_owned(),
            ".resourceFieldRef.containerName: required",
        ),
        (
            "path: a, resourceFieldRef: {containerName: z, resource: limits.cpu}".to_owned(),
            ".resourceFieldRef.containerName: \"z\" is no container of this pod",
        ),
    ] {
        for (source, path) in [
            (format!(", downwardAPI: {{items: [{{{item}}}]}}"), "downwardAPI.items[0]"),
            (
                format!(", projected: {{sources: [{{downwardAPI: {{items: [{{{item}}}]}}}}]}}"),
                "projected.sources[0].downwardAPI.items[0]",
            ),
        ] {
            let message = refusal(&with_volume(&source));
            assert!(message.starts_with(&format!("spec.volumes[0].{path}{expected}")), "{source}\n{message}");
        }
    }
}

#[test]
fn what_the_api_server_would_refuse_in_a_mount() {
    for (mounts, expected) in [
        ("[{mountPath: /a}]", "[0].name: required"),
        (
            "[{name: a, mountPath: /a}, {name: z, mountPath: /z}]",
            "[1].name: \"z\" is no volume of this pod; add it to `spec.volumes`",
        ),
        ("[{name: a}]", "[0].mountPath: required"),
        (
            "[{name: a, mountPath: /a}, {name: b, mountPath: /a}]",
            "[1].mountPath: \"/a\" is the path of an earlier mount; paths must be unique in a container",
        ),
        ("[{name: a, mountPath: /a, subPath: /b}]", "[0].subPath: \"/b\" must be a relative path"),
        ("[{name: a, mountPath: /a, subPath: b/..}]", "[0].subPath: \"b/..\" must not contain `..`"),
        (
            "[{name: a, mountPath: /a, subPathExpr: ../$(B)}]",
            "[0].subPathExpr: \"../$(B)\" must not contain `..`",
        ),
        (
            "[{name: a, mountPath: /a, subPath: b, subPathExpr: c}]",
            "[0].subPathExpr: cannot be set together with `subPath`; remove one of them",
        ),
        (
            "[{name: a, mountPath: /a, mountPropagation: Both}]",
            "[0].mountPropagation: \"Both\" is not one of None, HostToContainer, Bidirectional",
        ),
        (
            "[{name: a, mountPath: /a, recursiveReadOnly: IfPossible}]",
            "[0].recursiveReadOnly: may only be specified when readOnly is true",
        ),
        (
            "[{name: a, mountPath: /a, readOnly: true, mountPropagation: HostToContainer, recursiveReadOnly: Enabled}]",
            "[0].recursiveReadOnly: may only be specified when mountPropagation is None or not specified",
        ),
        (
            "[{name: a, mountPath: /a, readOnly: true, recursiveReadOnly: Sometimes}]",
            "[0].recursiveReadOnly: \"Sometimes\" is not one of Disabled, Enabled, IfPossible",
        ),
    ] {
        let message = refusal(&with_mounts(mounts));
        assert_eq!(message, format!("spec.containers[0].volumeMounts{expected}"), "{mounts}");
    }
}

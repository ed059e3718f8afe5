use crablet_protos::cri;
use prost::Message as _;

use super::*;

fn limits(values: Values) -> Limits {
    Limits { values, salt: Salt::new("test"), output: 8, message: 1 << 20 }
}

fn decoded(values: Values, name: &str, message: &impl prost::Message) -> Value {
    Decoder::redacting(&limits(values)).message(name, &message.encode_to_vec())
}

fn container() -> cri::ContainerConfig {
    let env = |key: &str, value: &str| cri::KeyValue { key: key.into(), value: value.as_bytes().to_vec() };
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "main".into(), attempt: 2 }),
        command: vec!["app".into(), "--password=hunter22".into()],
        args: vec!["plain".into()],
        envs: vec![env("PASSWORD", "hunter22"), env("EMPTY", "")],
        annotations: [("a".to_owned(), "b".to_owned()), (LAST_APPLIED.to_owned(), "{hunter22}".to_owned())]
            .into(),
        tty: true,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(cri::LinuxContainerResources { oom_score_adj: -997, ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn fields_have_their_names_and_defaults_are_absent() {
    let shown = decoded(Values::Shown, "ContainerConfig", &container());
    assert_eq!(
        shown,
        json!({
            "metadata": { "name": "main", "attempt": 2 },
            "command": ["app", "--password=hunter22"],
            "args": ["plain"],
            "envs": [{ "key": "PASSWORD", "value": "hunter22" }, { "key": "EMPTY" }],
            "annotations": { "a": "b", LAST_APPLIED: "{hunter22}" },
            "tty": true,
            "linux": { "resources": { "oom_score_adj": -997 } },
        })
    );
}

#[test]
fn environments_are_hashed_wherever_their_values_appear() {
    let hidden = decoded(Values::Hashed, "ContainerConfig", &container());
    assert!(!hidden.to_string().contains("hunter22"), "{hidden}");
    let hash = limits(Values::Hashed).salt.hash(b"hunter22");
    assert_eq!(hidden["envs"][0], json!({ "key": "PASSWORD", "value": hash }));
    assert_eq!(hidden["command"][1], format!("--password={hash}"));
    assert_eq!(hidden["args"], json!(["plain"]));
    assert_eq!(hidden["annotations"]["a"], "b");
}

#[test]
fn credentials_are_hashed_whatever_is_asked_for() {
    let auth = cri::AuthConfig {
        username: "robot".into(),
        password: "s3cret-1".into(),
        auth: "s3cret-2".into(),
        server_address: "registry.example".into(),
        identity_token: "s3cret-3".into(),
        registry_token: "s3cret-4".into(),
    };
    let request = cri::PullImageRequest { auth: Some(auth), ..Default::default() };
    for values in [Values::Shown, Values::Hashed] {
        let shown = decoded(values, "PullImageRequest", &request);
        assert!(!shown.to_string().contains("s3cret"), "{shown}");
        assert_eq!(shown["auth"]["username"], "robot");
        assert_eq!(shown["auth"]["server_address"], "registry.example");
    }
}

#[test]
fn unknown_fields_are_shown_by_number() {
    // Field 900: varint 5; field 901: two bytes; field 901 again.
    let unknown = [0xa0, 0x38, 5, 0xaa, 0x38, 2, 0xca, 0xfe, 0xaa, 0x38, 1, 0x07];
    let mut bytes = cri::VersionRequest { version: "v1".into() }.encode_to_vec();
    bytes.extend(unknown);
    let limits = limits(Values::Hashed);
    let decoder = Decoder::redacting(&limits);
    assert_eq!(
        decoder.message("VersionRequest", &bytes),
        json!({ "version": "v1", "#900": 5, "#901": ["hex:cafe", "hex:07"] })
    );
    // Of a call that nobody knows, everything is unknown.
    assert_eq!(decoder.message("", &unknown[..3]), json!({ "#900": 5 }));
    assert_eq!(decoder.message("VersionRequest", &[0xff]), json!({ "not_protobuf": "hex:ff" }));
    // A field of credentials that is not known yet is a secret too.
    let future = decoder.message("AuthConfig", &unknown[3..8]);
    assert!(future["#901"].as_str().unwrap().starts_with("sha256:"), "{future}");
}

#[test]
fn long_output_is_cut_and_says_so() {
    let answer =
        cri::ExecSyncResponse { stdout: "123456\u{fc}89".into(), stderr: b"\xff\xfe".to_vec(), exit_code: 3 };
    assert_eq!(
        decoded(Values::Hashed, "ExecSyncResponse", &answer),
        json!({ "stdout": "123456\u{fc}... (cut: 10 bytes in all)", "stderr": "hex:fffe", "exit_code": 3 })
    );
}

#[test]
fn what_a_runtime_tells_of_itself_is_not_shown() {
    let info = [("info".to_owned(), "PASSWORD=hunter22".to_owned())];
    let answer = cri::ContainerStatusResponse { info: info.into(), ..Default::default() };
    let hidden = decoded(Values::Hashed, "ContainerStatusResponse", &answer);
    assert!(hidden["info"]["info"].as_str().unwrap().starts_with("sha256:"), "{hidden}");
}

#[test]
fn enums_maps_and_nested_messages_read_as_upstream_names_them() {
    let options = cri::NamespaceOption { network: cri::NamespaceMode::Node as i32, ..Default::default() };
    let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    let shown = decoded(Values::Hashed, "LinuxSandboxSecurityContext", &context);
    assert_eq!(shown, json!({ "namespace_options": { "network": "NODE" } }));
}

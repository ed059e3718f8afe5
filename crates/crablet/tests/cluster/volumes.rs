//! What containers read and share.

use std::fs;

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::support::{QUIET, Room, shell, shell_pod};

/// Prints `name=value` for all that it was given, then waits for news in the config map's file.
const READER: &str = r#"
echo "env=$FROM_MAP $FROM_SECRET $PREFIX_colour"
echo "map=$(cat /map/greeting)"
echo "secret=$(cat /secret/password) $(stat -Lc %a /secret/password)"
echo "projected=$(cat /all/greeting) $(cat /all/password)"
echo "downward=$POD_NAME $POD_NAMESPACE $POD_UID $NODE_NAME $CPU_LIMIT"
echo "labels=$(cat /podinfo/labels)"
echo "token=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)"
echo "namespace=$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)"
echo "authority=$(head -n 1 /var/run/secrets/kubernetes.io/serviceaccount/ca.crt)"
echo "ip=$POD_IP"
until [ "$(cat /map/greeting)" = changed ]; do sleep 0.5; done
echo "map=$(cat /map/greeting)"
"#;

pub fn the_clusters_objects_reach_the_containers(room: &Room<'_>) -> Result<()> {
    room.kubectl(&[
        "create",
        "configmap",
        "map",
        "--from-literal=greeting=hello",
        "--from-literal=colour=blue",
    ])?;
    room.kubectl(&["create", "secret", "generic", "secret", "--from-literal=password=sesame"])?;
    let mut pod = shell_pod("reader", READER);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["volumes"] = volumes();
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = environment();
    container["envFrom"] = json!([{ "prefix": "PREFIX_", "configMapRef": { "name": "map" } }]);
    container["resources"] = json!({ "limits": { "cpu": "500m", "memory": "64Mi" } });
    container["volumeMounts"] = json!([
        { "name": "map", "mountPath": "/map" },
        { "name": "secret", "mountPath": "/secret" },
        { "name": "all", "mountPath": "/all" },
        { "name": "podinfo", "mountPath": "/podinfo" },
    ]);
    room.create_ready(&pod)?;

    let pod = room.get("pod/reader")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (uid, address) = (text(&pod["metadata"]["uid"]), text(&pod["status"]["podIP"]));
    let mut log = room.follow(&["logs", "-f", "reader"])?;
    for expected in [
        "env=hello sesame blue".to_owned(),
        "map=hello".to_owned(),
        "secret=sesame 400".to_owned(),
        "projected=hello sesame".to_owned(),
        format!("downward=reader {} {uid} node 500", room.namespace()),
        "labels=app=\"reader\"".to_owned(),
    ] {
        let name = expected.split('=').next().unwrap_or_default();
        let line = log.until(|line| line.split('=').next() == Some(name))?;
        ensure!(line == expected, "the container has {line:?}, not {expected:?}");
    }
    let token = log.until(|line| line.starts_with("token="))?;
    let token = token.trim_start_matches("token=");
    let claims = claims(token)?;
    ensure!(claims["kubernetes.io"]["pod"]["uid"] == uid.as_str(), "the token is bound to {claims}");
    let server = room.cluster.server();
    let mut as_the_pod = std::process::Command::new(room.cluster.bin().join("kubectl"));
    as_the_pod.args(["--server", &server, "--token", token, "--certificate-authority"]);
    as_the_pod.arg(room.cluster.pki().ca_file()).args(["auth", "whoami", "-o", "json"]);
    let who = crablet_testbed::process::output_of(&mut as_the_pod)?;
    let who: Value = serde_json::from_str(&who)?;
    let expected = format!("system:serviceaccount:{}:default", room.namespace());
    ensure!(who["status"]["userInfo"]["username"] == expected.as_str(), "the token is for {who}");
    for expected in [
        format!("namespace={}", room.namespace()),
        "authority=-----BEGIN CERTIFICATE-----".to_owned(),
        format!("ip={address}"),
    ] {
        log.until(|line| line == expected)?;
    }

    room.kubectl(&["patch", "configmap", "map", "--patch", r#"{"data":{"greeting":"changed"}}"#])?;
    log.until(|line| line == "map=changed")?;
    room.wait("pod/reader", "jsonpath={.status.phase}=Succeeded")?;
    room.delete(&["pod", "reader"])?;
    Ok(())
}

fn environment() -> Value {
    let field =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!([
        { "name": "FROM_MAP", "valueFrom": { "configMapKeyRef": { "name": "map", "key": "greeting" } } },
        { "name": "FROM_SECRET", "valueFrom": { "secretKeyRef": { "name": "secret", "key": "password" } } },
        { "name": "CPU_LIMIT", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1m" } } },
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_UID", "metadata.uid"),
        field("NODE_NAME", "spec.nodeName"),
        field("POD_IP", "status.podIP"),
    ])
}

fn volumes() -> Value {
    json!([
        { "name": "map", "configMap": { "name": "map" } },
        { "name": "secret", "secret": { "secretName": "secret", "defaultMode": 256 } },
        { "name": "all", "projected": { "sources": [
            { "configMap": { "name": "map", "items": [{ "key": "greeting", "path": "greeting" }] } },
            { "secret": { "name": "secret" } },
        ] } },
        { "name": "podinfo", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
        ] } },
    ])
}

/// What a token says of itself; whether it is true is for the API server to say.
fn claims(token: &str) -> Result<Value> {
    let parts: Vec<&str> = token.split('.').collect();
    ensure!(parts.len() == 3, "not a JWT: {} parts", parts.len());
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1])?)?)
}

pub fn what_is_missing_is_waited_for(room: &Room<'_>) -> Result<()> {
    let mut mounts = shell_pod("mounts", QUIET);
    mounts["spec"]["volumes"] = json!([{ "name": "late", "secret": { "secretName": "late" } }]);
    mounts["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "late", "mountPath": "/late" }]);
    let mut reads = shell_pod("reads", QUIET);
    reads["spec"]["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "late" } }]);
    room.create(&mounts)?;
    room.create(&reads)?;
    room.event_saying("pod/mounts", "FailedMount", "secret \"late\" not found")?;
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError";
    room.wait("pod/reads", reason)?;
    room.kubectl(&["create", "secret", "generic", "late", "--from-literal=word=now"])?;
    room.wait_ready("mounts")?;
    room.wait_ready("reads")?;
    room.delete(&["pods", "--all"])?;
    Ok(())
}

pub fn folders_are_shared(room: &Room<'_>) -> Result<()> {
    fs::write(room.folder().join("from-the-host"), "hello\n")?;
    let writer = format!("cat /host/from-the-host > /shared/letter; {QUIET}");
    let reader =
        format!("until [ -s /shared/letter ]; do sleep 0.1; done; cp /shared/letter /host/back; {QUIET}");
    let mut pod = shell_pod("pair", &writer);
    pod["spec"]["containers"] = json!([shell("writer", &writer), shell("reader", &reader)]);
    for container in 0..2 {
        pod["spec"]["containers"][container]["volumeMounts"] =
            json!([{ "name": "shared", "mountPath": "/shared" }, { "name": "host", "mountPath": "/host" }]);
    }
    pod["spec"]["volumes"] = json!([
        { "name": "shared", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        { "name": "host", "hostPath": { "path": room.folder() } },
    ]);
    room.create_ready(&pod)?;
    let back = room.folder().join("back");
    room.until("the letter", || Ok(fs::read_to_string(&back).is_ok_and(|text| text == "hello\n")))?;
    room.delete(&["pod", "pair"])?;
    // A hostPath is not the pod's to remove.
    ensure!(room.folder().join("from-the-host").exists(), "the host's file went with the pod");
    Ok(())
}

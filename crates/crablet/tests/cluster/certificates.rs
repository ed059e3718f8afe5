//! Certificates that pods find in their volumes, signed by a signer of the test's own, and bundles of whom to trust.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_testbed::cluster::{Cluster, Node, NodeOptions};
use crablet_testbed::process::output_of;
use serde_json::{Value, json};

use super::certificates;
use super::support::{QUIET, Room, Step, ensure_has, kubelet, shell_pod, side_by_side, step};

const GATES: &str =
    "--feature-gates=PodCertificateRequest=true,ClusterTrustBundle=true,ClusterTrustBundleProjection=true";
const SIGNER: &str = "crablet.test/signer";
const KINDS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

pub fn api_flags() -> Vec<String> {
    vec![GATES.to_owned(), "--runtime-config=certificates.k8s.io/v1beta1=true".to_owned()]
}

pub fn all(cluster: &Cluster) -> Result<()> {
    const STEPS: &[Step] = &[
        step!(certificates::keys_of_every_kind_are_certified),
        step!(certificates::a_key_and_its_chain_can_lie_apart),
        step!(certificates::a_denied_request_is_told),
        step!(certificates::a_request_that_waits_is_told),
        step!(certificates::those_to_trust_are_shown),
    ];
    let node = join(cluster)?;
    side_by_side(cluster, node.log_path(), STEPS)?;
    let room = Room::new(cluster, node.log_path(), "after-a-death")?;
    room.during("a_new_life_asks_anew", |room| a_new_life_asks_anew(room, &node))
}

fn join(cluster: &Cluster) -> Result<Node> {
    let mut options = NodeOptions::new(kubelet());
    options.flags.push(GATES.to_owned());
    cluster.join(options)
}

/// A pod with these sources in one volume, `v`.
fn pod(name: &str, sources: &[Value]) -> Value {
    let mut pod = shell_pod(name, QUIET);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    pod["spec"]["volumes"] = json!([{ "name": "v", "projected": { "sources": sources } }]);
    pod
}

fn bundle(kind: &str) -> Value {
    let path = format!("{kind}.pem");
    let annotations = json!({ "crablet.test/for": kind });
    json!({ "podCertificate": {
        "signerName": SIGNER, "keyType": kind, "credentialBundlePath": path, "userAnnotations": annotations,
    }})
}

/// The requests of a pod that nobody has answered, once there are as many.
fn requests(room: &Room<'_>, pod: &str, count: usize) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    room.until("the node asks for certificates", || {
        let list = room.get("podcertificaterequests")?;
        let open =
            |request: &&Value| request["spec"]["podName"] == pod && request["status"]["conditions"].is_null();
        found = list["items"].as_array().into_iter().flatten().filter(open).cloned().collect();
        Ok(found.len() == count)
    })?;
    Ok(found)
}

fn answer(room: &Room<'_>, request: &Value, status: &Value) -> Result<()> {
    let name = request["metadata"]["name"].as_str().context("a request without a name")?;
    let patch = json!({ "status": status }).to_string();
    let what =
        ["patch", "podcertificaterequests", name, "--subresource=status", "--type=merge", "-p", &patch];
    room.kubectl(&what).map(drop)
}

fn condition(kind: &str) -> Value {
    let now = output_of(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])).unwrap_or_default();
    json!([{
        "type": kind, "status": "True", "reason": "ForATest", "message": "so it is",
        "lastTransitionTime": now.trim(),
    }])
}

fn openssl(arguments: &[&str], files: &[(&str, &Path)]) -> Result<String> {
    let mut command = Command::new("openssl");
    command.args(arguments);
    for (option, path) in files {
        command.arg(option).arg(path);
    }
    output_of(&mut command)
}

/// Signs a request for a day.
fn sign(room: &Room<'_>, request: &Value) -> Result<()> {
    let name = request["metadata"]["name"].as_str().context("a request without a name")?;
    let at = |suffix: &str| room.folder().join(format!("{name}.{suffix}"));
    let stub = request["spec"]["stubPKCS10Request"].as_str().context("a request without a stub")?;
    fs::write(at("der"), BASE64_STANDARD.decode(stub)?)?;
    let (ca, ca_key) = (room.folder().join("ca.pem"), room.folder().join("ca.key"));
    if !ca.exists() {
        let made = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=signer"];
        openssl(&made, &[("-keyout", &ca_key), ("-out", &ca)])?;
    }
    let signing = ["x509", "-req", "-inform", "DER", "-days", "1"];
    openssl(&signing, &[("-in", &at("der")), ("-CA", &ca), ("-CAkey", &ca_key), ("-out", &at("pem"))])?;
    let dates = openssl(&["x509", "-noout", "-dates", "-dateopt", "iso_8601"], &[("-in", &at("pem"))])?;
    let date = |field: &str| -> Result<jiff::Timestamp> {
        let line = dates.lines().find_map(|line| line.strip_prefix(field)).context("no such date")?;
        Ok(line.replace(' ', "T").parse()?)
    };
    let (begin, end) = (date("notBefore=")?, date("notAfter=")?);
    let status = json!({
        "conditions": condition("Issued"),
        "certificateChain": fs::read_to_string(at("pem"))? + &fs::read_to_string(&ca)?,
        "notBefore": begin.to_string(),
        "beginRefreshAt": (begin + jiff::SignedDuration::from_hours(12)).to_string(),
        "notAfter": end.to_string(),
    });
    answer(room, request, &status)
}

/// Where the volume of a pod lies on the node.
fn volume(room: &Room<'_>, pod: &str) -> Result<PathBuf> {
    let uid = room.get(&format!("pod/{pod}"))?["metadata"]["uid"].clone();
    let uid = uid.as_str().context("a pod without a UID")?;
    let pods = room.cluster.dir().join("node/root/pods");
    Ok(pods.join(uid).join("volumes/kubernetes.io~projected/v"))
}

/// The key belongs to the first certificate, and the signer is the second.
fn ensure_pair(key: &Path, chain: &Path) -> Result<()> {
    let of_key = openssl(&["pkey", "-pubout"], &[("-in", key)])?;
    let of_chain = openssl(&["x509", "-noout", "-pubkey"], &[("-in", chain)])?;
    ensure!(of_key.trim() == of_chain.trim(), "the key of {} is of another certificate", key.display());
    let certificates = fs::read_to_string(chain)?.matches("-----BEGIN CERTIFICATE-----").count();
    ensure!(certificates == 2, "{certificates} certificates are in {}", chain.display());
    Ok(())
}

pub fn keys_of_every_kind_are_certified(room: &Room<'_>) -> Result<()> {
    room.create(&pod("all", &KINDS.map(bundle)))?;
    let requests = requests(room, "all", KINDS.len())?;
    for request in &requests {
        let spec = &request["spec"];
        ensure!(spec["nodeName"] == "node" && spec["signerName"] == SIGNER, "{spec:#}");
        ensure!(spec["serviceAccountName"] == "default", "{spec:#}");
        ensure!(spec["unverifiedUserAnnotations"]["crablet.test/for"].is_string(), "{spec:#}");
        let owner = &request["metadata"]["ownerReferences"][0];
        ensure!(owner["kind"] == "Pod" && owner["uid"] == spec["podUID"], "{request:#}");
        sign(room, request)?;
    }
    room.wait_ready("all")?;
    let volume = volume(room, "all")?;
    for kind in KINDS {
        let path = volume.join(format!("{kind}.pem"));
        ensure_pair(&path, &path)?;
        let text = fs::read_to_string(&path)?;
        ensure!(text.starts_with("-----BEGIN PRIVATE KEY-----"), "{kind}: the key does not come first");
        let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
        ensure!(mode == 0o644, "{kind} has mode {mode:o}");
    }
    let seen = room.kubectl(&["exec", "all", "--", "ls", "/v"])?;
    ensure!(seen.split_whitespace().count() == KINDS.len(), "the container sees {seen}");
    room.delete(&["pod", "all"])
}

pub fn a_key_and_its_chain_can_lie_apart(room: &Room<'_>) -> Result<()> {
    let source = json!({ "podCertificate": {
        "signerName": SIGNER, "keyType": "ECDSAP256", "keyPath": "own/key.pem",
        "certificateChainPath": "own/chain.pem", "maxExpirationSeconds": 86400,
    }});
    let mut apart = pod(
        "apart",
        &[
            json!({ "downwardAPI": { "items": [
                { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } },
            ]}}),
            source,
        ],
    );
    apart["spec"]["securityContext"] = json!({ "fsGroup": 2000, "runAsUser": 1000 });
    room.create(&apart)?;
    sign(room, &requests(room, "apart", 1)?[0])?;
    room.wait_ready("apart")?;
    let volume = volume(room, "apart")?;
    ensure_pair(&volume.join("own/key.pem"), &volume.join("own/chain.pem"))?;
    let mode = fs::metadata(volume.join("own/key.pem"))?.permissions().mode() & 0o777;
    ensure!(mode == 0o640, "the key has mode {mode:o}");
    ensure_has(&room.kubectl(&["exec", "apart", "--", "cat", "/v/own/key.pem"])?, &["PRIVATE KEY"])
}

pub fn a_denied_request_is_told(room: &Room<'_>) -> Result<()> {
    room.create(&pod("denied", &[bundle("ED25519")]))?;
    let request = requests(room, "denied", 1)?.remove(0);
    answer(room, &request, &json!({ "conditions": condition("Denied") }))?;
    let name = request["metadata"]["name"].as_str().unwrap_or_default();
    let told = room.event("pod/denied", "Denied")?;
    ensure_has(&told, &[name, "was denied, reason=\"ForATest\", message=\"so it is\""])?;
    let why = "PodCertificateRequest was permanently denied: reason=\"ForATest\" message=\"so it is\"";
    told_of_mount(room, "denied", why)?;
    room.delete(&["pod", "denied"])
}

pub fn a_request_that_waits_is_told(room: &Room<'_>) -> Result<()> {
    room.create(&pod("waits", &[bundle("ED25519")]))?;
    requests(room, "waits", 1)?;
    told_of_mount(room, "waits", "credential bundle is not issued yet")?;
    // It can go all the same.
    room.delete(&["pod", "waits"])
}

/// An event about the volume that says so.
fn told_of_mount(room: &Room<'_>, pod: &str, why: &str) -> Result<()> {
    let text = format!("MountVolume.SetUp failed for volume \"v\" : {why}");
    room.event_saying(&format!("pod/{pod}"), "FailedMount", &text).map(drop)
}

pub fn those_to_trust_are_shown(room: &Room<'_>) -> Result<()> {
    let anchor = room.folder().join("anchor.pem");
    let key = room.folder().join("anchor.key");
    let made = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=anchor"];
    openssl(&made, &[("-keyout", &key), ("-out", &anchor)])?;
    let text = fs::read_to_string(&anchor)?;
    room.create(&json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": "crablet.test:anchors:one", "labels": { "live": "yes" } },
        "spec": { "signerName": "crablet.test/anchors", "trustBundle": format!("who is trusted:\n{text}") },
    }))?;
    let trusting = pod(
        "trusting",
        &[
            json!({ "clusterTrustBundle": { "name": "crablet.test:anchors:one", "path": "named" } }),
            json!({ "clusterTrustBundle": {
                "signerName": "crablet.test/anchors", "path": "chosen",
                "labelSelector": { "matchLabels": { "live": "yes" } },
            }}),
            json!({ "clusterTrustBundle": { "name": "crablet.test:absent", "path": "absent", "optional": true } }),
        ],
    );
    room.create_ready(&trusting)?;
    let volume = volume(room, "trusting")?;
    for (file, expected) in [("named", text.as_str()), ("chosen", text.as_str()), ("absent", "")] {
        let shown = fs::read_to_string(volume.join(file))?;
        ensure!(shown == expected, "`{file}` shows\n{shown}");
    }
    Ok(())
}

/// Keys are in memory only: whoever comes after a death asks for new ones, and the pod lives on with the old ones.
fn a_new_life_asks_anew(room: &Room<'_>, node: &Node) -> Result<()> {
    room.create(&pod("old", &[bundle("ECDSAP256")]))?;
    sign(room, &requests(room, "old", 1)?[0])?;
    room.wait_ready("old")?;
    let path = volume(room, "old")?.join("ECDSAP256.pem");
    let before = fs::read_to_string(&path)?;
    node.kubelet().kill9()?;
    let _next = join(room.cluster)?;
    let request = requests(room, "old", 1)?.remove(0);
    ensure!(fs::read_to_string(&path)? == before, "the old pair is gone before there is a new one");
    sign(room, &request)?;
    room.until("the new pair is shown", || Ok(fs::read_to_string(&path)? != before))?;
    ensure_pair(&path, &path)?;
    let pod = room.get("pod/old")?;
    ensure!(super::support::main_container(&pod)["restartCount"] == 0, "the pod was begun again: {pod:#}");
    room.delete(&["pod", "old"])
}

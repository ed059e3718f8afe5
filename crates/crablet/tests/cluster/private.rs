//! Images behind a password: who may pull them, and who may use them once they are there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use crablet_testbed::cluster::Cluster;
use crablet_testbed::suites::registry;
use serde_json::{Value, json};

use super::support::{QUIET, Room, Step, main_container, shell_pod, side_by_side, step};
use super::{private, whole_node};

/// What the test bed's images are called, and the registries that have them too.
const OF: &str = "crablet.test";
const WITH_SECRETS: &str = "secrets.test";
const WITH_PROGRAM: &str = "program.test";
const WITH_TOKENS: &str = "tokens.test";
/// Whom tokens for a program are meant for, and what an account has to say to be known to it.
const AUDIENCE: &str = "registry.crablet.test";
const ANNOTATION: &str = "crablet.test/reads";
const LOGIN: (&str, &str) = ("reader", "only-for-readers");

pub fn all(cluster: &Cluster) -> Result<()> {
    const STEPS: &[Step] = &[
        step!(private::a_secret_opens_an_image),
        step!(private::a_program_knows_the_password),
        step!(private::a_program_is_shown_who_asks),
    ];
    for name in [WITH_SECRETS, WITH_PROGRAM, WITH_TOKENS] {
        registry::start_private(cluster.containerd(), name, OF, LOGIN)?;
    }
    let mut options = whole_node::options();
    options.flags.extend(with_program(cluster)?);
    let node = cluster.join(options)?;
    side_by_side(cluster, node.log_path(), STEPS)
}

/// A program that knows the password of one of the registries, and its configuration.
fn with_program(cluster: &Cluster) -> Result<[String; 2]> {
    let folder = cluster.dir().join("knows");
    fs::create_dir_all(&folder)?;
    let asked = folder.join("asked");
    write_program(&folder.join("knows-it"), WITH_PROGRAM, "/dev/null")?;
    write_program(&folder.join("looks-who-asks"), WITH_TOKENS, &asked.display().to_string())?;
    let config = folder.join("config.json");
    let looks = json!({
        "name": "looks-who-asks",
        "matchImages": [WITH_TOKENS],
        "defaultCacheDuration": "0s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "tokenAttributes": {
            "serviceAccountTokenAudience": AUDIENCE,
            "cacheType": "ServiceAccount",
            "requireServiceAccount": true,
            "requiredServiceAccountAnnotationKeys": [ANNOTATION],
        },
    });
    let provider = json!({
        "name": "knows-it",
        "matchImages": [WITH_PROGRAM],
        "defaultCacheDuration": "1m",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    });
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [provider, looks],
    });
    fs::write(&config, text.to_string())?;
    Ok([
        format!("--image-credential-provider-config={}", config.display()),
        format!("--image-credential-provider-bin-dir={}", folder.display()),
    ])
}

/// It keeps what it was asked, and knows the password of one registry.
fn write_program(path: &Path, registry: &str, asked: &str) -> Result<()> {
    let answer = json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "cacheDuration": "10m",
        "auth": { registry: { "username": LOGIN.0, "password": LOGIN.1 } },
    });
    fs::write(path, format!("#!/bin/sh\ncat > {asked}\ncat <<'EOF'\n{answer}\nEOF\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// A pod of busybox from one of the registries.
fn pod(name: &str, registry: &str, policy: &str, secrets: &[&str]) -> Value {
    let mut pod = shell_pod(name, QUIET);
    pod["spec"]["containers"][0]["image"] = json!(format!("{registry}/busybox:1"));
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!(policy);
    let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
    pod["spec"]["imagePullSecrets"] = json!(secrets);
    pod
}

fn secret(room: &Room<'_>, name: &str, password: &str) -> Result<()> {
    let server = format!("--docker-server={WITH_SECRETS}");
    let (user, password) =
        (format!("--docker-username={}", LOGIN.0), format!("--docker-password={password}"));
    room.kubectl(&["create", "secret", "docker-registry", name, &server, &user, &password])?;
    Ok(())
}

/// The pod waits because it may not have its image.
fn denied(room: &Room<'_>, pod: &Value, reasons: &[&str]) -> Result<()> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    room.create(pod)?;
    room.until("the pod waits for its image", || {
        let pod = room.get(&format!("pod/{name}"))?;
        let reason = main_container(&pod)["state"]["waiting"]["reason"].clone();
        Ok(reasons.iter().any(|wanted| reason == *wanted))
    })
}

pub fn a_secret_opens_an_image(room: &Room<'_>) -> Result<()> {
    let pulling = ["ErrImagePull", "ImagePullBackOff"];
    secret(room, "right", LOGIN.1)?;
    secret(room, "copy", LOGIN.1)?;
    secret(room, "wrong", "guessed")?;
    denied(room, &pod("nobody", WITH_SECRETS, "IfNotPresent", &[]), &pulling)?;
    denied(room, &pod("guesser", WITH_SECRETS, "IfNotPresent", &["wrong"]), &pulling)?;
    room.create_ready(&pod("reader", WITH_SECRETS, "IfNotPresent", &["wrong", "right"]))?;

    // It is there now, and still not for everybody.
    room.create_ready(&pod("second", WITH_SECRETS, "Never", &["copy"]))?;
    let told = room.event("pod/second", "Pulled")?;
    ensure!(told.ends_with("already present on machine and can be accessed by the pod"), "{told}");
    denied(room, &pod("late-guesser", WITH_SECRETS, "IfNotPresent", &["wrong"]), &pulling)?;
    denied(room, &pod("late-nobody", WITH_SECRETS, "Never", &[]), &["ErrImageNeverPull"])?;

    denied(room, &pod("lost", WITH_SECRETS, "Always", &["absent"]), &pulling)?;
    let told = room.event("pod/lost", "FailedToRetrieveImagePullSecret")?;
    let expected =
        "Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.";
    ensure!(told == expected, "{told}");
    Ok(())
}

pub fn a_program_knows_the_password(room: &Room<'_>) -> Result<()> {
    room.create_ready(&pod("reader", WITH_PROGRAM, "Always", &[]))?;
    // What every pod could have pulled is for every pod.
    room.create_ready(&pod("second", WITH_PROGRAM, "Never", &[]))
}

pub fn a_program_is_shown_who_asks(room: &Room<'_>) -> Result<()> {
    // A node may not ask for tokens for just anybody.
    let rule = json!({
        "apiGroups": [""], "resources": [AUDIENCE], "verbs": ["request-serviceaccounts-token-audience"],
    });
    room.create(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "tokens-for-registry" }, "rules": [rule],
    }))?;
    let binding = ["--clusterrole=tokens-for-registry", "--group=system:nodes"];
    room.kubectl(&[&["create", "clusterrolebinding", "tokens-for-registry"][..], &binding].concat())?;
    denied(room, &pod("stranger", WITH_TOKENS, "Always", &[]), &["ErrImagePull", "ImagePullBackOff"])?;
    room.delete(&["pod", "stranger"])?;

    room.kubectl(&["annotate", "serviceaccount", "default", &format!("{ANNOTATION}=all")])?;
    room.create_ready(&pod("reader", WITH_TOKENS, "Always", &[]))?;
    let asked: Value = serde_json::from_slice(&fs::read(room.cluster.dir().join("knows/asked"))?)?;
    let image = format!("{WITH_TOKENS}/busybox");
    ensure!(asked["image"] == image, "it was asked for {}", asked["image"]);
    let annotations = json!({ ANNOTATION: "all" });
    ensure!(asked["serviceAccountAnnotations"] == annotations, "{}", asked["serviceAccountAnnotations"]);
    let token = asked["serviceAccountToken"].as_str().context("it was shown no token")?;
    let claims = token.split('.').nth(1).context("what it was shown is no token")?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    ensure!(claims["aud"] == json!([AUDIENCE]), "it is meant for {}", claims["aud"]);
    let subject = format!("system:serviceaccount:{}:default", room.namespace());
    ensure!(claims["sub"] == subject, "it is of {}", claims["sub"]);
    ensure!(claims["kubernetes.io"]["pod"]["name"] == "reader", "it is not bound to the pod: {claims:#}");
    Ok(())
}

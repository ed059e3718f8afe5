//! Programs that know credentials, as real processes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::providers::config::parse;
use super::*;

/// A folder with a program that counts its runs, keeps what it was told, and answers with `answer`.
fn program(answer: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\ncd {}\ncat > told\necho >> runs\necho \"$GREETING $1\" > around\n{answer}\n",
        folder.path().display()
    );
    let path = folder.path().join("helper");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn says(response: Value) -> String {
    format!("cat <<'EOF'\n{response}\nEOF")
}

fn response(key: &str, duration: Value) -> Value {
    json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": key, "cacheDuration": duration,
        "auth": {
            "r.io": {"username": "u", "password": PASSWORD},
            "s.io": {"username": "u", "password": null},
            "t.io": null,
        },
    })
}

const CONFIG: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: helper
  matchImages: ['*.io']
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: GREETING, value: hello}]
";

fn provider(folder: &Path) -> Vec<Provider> {
    parse(&[("config.yaml".into(), CONFIG.to_owned())], folder, true).unwrap()
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("runs")).map_or(0, |runs| runs.lines().count())
}

#[tokio::test]
async fn a_program_is_told_the_repository_and_its_answer_is_kept_as_it_says() {
    for (key, duration, expected) in [
        ("Image", json!("1h"), 2),
        ("Registry", json!("1h"), 1),
        ("Global", Value::Null, 1),
        ("Registry", json!("0s"), 3),
    ] {
        let (world, folder) =
            (World::pulling_in(Duration::ZERO), program(&says(response(key, duration.clone()))));
        let images = world.images(Verification::NeverPreloaded, provider(folder.path()));
        for image in ["r.io/app:1", "r.io/app:1", "r.io/open:1"] {
            assert_eq!(ensure(&images, image, PullPolicy::Always, &[]).await, "ready");
        }
        assert_eq!(runs(folder.path()), expected, "{key} {duration}");
        let told = std::fs::read(folder.path().join("told")).unwrap();
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["kind"], "CredentialProviderRequest");
        assert_eq!(told["apiVersion"], "credentialprovider.kubelet.k8s.io/v1");
        assert!(
            told["image"].as_str().is_some_and(|image| image.starts_with("r.io/") && !image.contains(":1"))
        );
        assert_eq!(std::fs::read_to_string(folder.path().join("around")).unwrap(), "hello get\n");
    }
}

#[tokio::test]
async fn a_program_that_fails_knows_nothing_and_the_pull_goes_without() {
    let wrong_version = json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"});
    let no_key =
        json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1"});
    let unknown = json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Image", "more": 1});
    for answer in
        ["exit 3".to_owned(), "echo nonsense".to_owned(), says(wrong_version), says(no_key), says(unknown)]
    {
        let (world, folder) = (World::pulling_in(Duration::ZERO), program(&answer));
        let images = world.images(Verification::NeverPreloaded, provider(folder.path()));
        assert!(ensure(&images, "r.io/app:1", PullPolicy::Always, &[]).await.starts_with("ErrImagePull"));
        assert_eq!(ensure(&images, "r.io/open:1", PullPolicy::Always, &[]).await, "ready");
    }
}

#[tokio::test]
async fn a_program_is_not_asked_for_other_registries() {
    let (world, folder) = (World::pulling_in(Duration::ZERO), program("exit 1"));
    world.runtime.put_image("r.example.org/x:1", FakeImage::pulled(Pull::Works { after: Duration::ZERO }));
    let images = world.images(Verification::NeverPreloaded, provider(folder.path()));
    assert_eq!(ensure(&images, "r.example.org/x:1", PullPolicy::Always, &[]).await, "ready");
    assert_eq!(runs(folder.path()), 0);
}

#[tokio::test]
async fn those_who_ask_at_the_same_time_have_one_answer() {
    let answer = format!("sleep 0.2\n{}", says(response("Image", json!("0s"))));
    let (world, folder) = (World::pulling_in(Duration::ZERO), program(&answer));
    let images = world.images(Verification::NeverPreloaded, provider(folder.path()));
    let (one, other) = tokio::join!(
        ensure(&images, "r.io/app:1", PullPolicy::Always, &[]),
        ensure(&images, "r.io/app:1", PullPolicy::Always, &[]),
    );
    assert_eq!((one.as_str(), other.as_str()), ("ready", "ready"));
    assert_eq!(runs(folder.path()), 1);
}

#[test]
fn configurations_that_are_refused() {
    let head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n";
    let good = "- {name: a, matchImages: [r.io], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n";
    let invalid = "failed to validate credential provider config: ";
    let cases = [
        ("kind: Pod\napiVersion: v1".to_owned(), "error decoding config \"a.yaml\": failed to decode \"Pod\" (wrong Kind)".to_owned()),
        (
            "kind: CredentialProviderConfig\napiVersion: apps/v1".to_owned(),
            "error decoding config \"a.yaml\": failed to decode CredentialProviderConfig, unexpected Group: apps".to_owned(),
        ),
        (format!("{head}  []"), format!("{invalid}providers: Required value: at least 1 item in plugins is required")),
        (format!("{head}{good}{good}"), "duplicate provider name \"a\" found in configuration file(s)".to_owned()),
        (
            format!("{head}{}", good.replace("name: a", "name: a/b")),
            format!("{invalid}providers.name: Invalid value: \"a/b\": provider name cannot contain '/'"),
        ),
        (
            format!("{head}{}", good.replace("name: a", "name: ..")),
            format!("{invalid}providers.name: Invalid value: \"..\": provider name cannot be '..'"),
        ),
        (
            format!("{head}{}", good.replace("[r.io]", "[]")),
            format!("{invalid}providers.matchImages: Required value: at least 1 item in matchImages is required"),
        ),
        (
            format!("{head}{}", good.replace("1m", "-1m")),
            format!("{invalid}providers.defaultCacheDuration: Invalid value: \"-1m\": must be greater than or equal to 0"),
        ),
        (
            format!("{head}{}", good.replace(" defaultCacheDuration: 1m,", "")),
            format!("{invalid}providers.defaultCacheDuration: Required value"),
        ),
        (
            format!("{head}{}", good.replace("k8s.io/v1}", "k8s.io/v2}")),
            format!("{invalid}providers.apiVersion: Unsupported value: \"credentialprovider.kubelet.k8s.io/v2\": supported values: \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\""),
        ),
        (
            format!("{head}{}", good.replace("name: a", "name: a, tokenAttributes: {serviceAccountTokenAudience: x, requireServiceAccount: true}")),
            format!("{invalid}providers.tokenAttributes.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token"),
        ),
    ];
    for (text, expected) in cases {
        let found = parse(&[("a.yaml".into(), text.clone())], Path::new("/bin"), true);
        assert_eq!(found, Err(expected), "{text}");
    }
    let unknown = format!("{head}{}", good.replace("name: a", "name: a, colour: red"));
    let found = parse(&[("a.yaml".into(), unknown)], Path::new("/bin"), true).unwrap_err();
    assert!(found.contains("strict decoding error") && found.contains("colour"), "{found}");
}

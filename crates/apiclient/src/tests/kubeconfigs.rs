use super::pki::Pki;
use super::{Home, settings};
use crate::{ApiClient, Kubeconfig};

const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: s3cret}}]
";

/// Without the path, which each message begins with.
fn refusal(text: &str) -> String {
    let home = Home::new(&Pki::new());
    home.write("kubeconfig", text);
    let path = home.path("kubeconfig");
    let error = Kubeconfig::load(&path)
        .and_then(|kubeconfig| ApiClient::new(&kubeconfig, settings()).map(drop))
        .expect_err("refused")
        .to_string();
    let prefix = format!("{}: ", path.display());
    error.strip_prefix(&prefix).expect("the path first").replace(&home.path("").display().to_string(), "~/")
}

fn user(fields: &str) -> String {
    GOOD.replace("{token: s3cret}", fields)
}

#[test]
fn a_kubeconfig_is_known_by_what_its_context_names() {
    for (text, wanted) in [
        (GOOD.replace("current-context: c", ""), "current-context: it is not set"),
        (
            GOOD.replace("current-context: c", "current-context: d"),
            "current-context: there is no context \"d\"",
        ),
        (GOOD.replace("name: k", "name: l"), "contexts: there is no cluster \"k\""),
        (GOOD.replace("name: u", "name: v"), "contexts: there is no user \"u\""),
        (GOOD.replace("server:", "no:"), "clusters: no server found for cluster \"k\""),
        ("just words".to_owned(), "it is no kubeconfig"),
        (String::new(), "it is no kubeconfig"),
        (
            user("{auth-provider: {name: oidc}}"),
            "users: \"u\": auth-provider is not supported: use client-certificate, token, tokenFile, username or exec",
        ),
        (user("{token: [s3cret]}"), "users: \"u\": token is not a string"),
        (
            user("{token: s3cret, username: me}"),
            "users: \"u\": more than one authentication method: token and username, only one is allowed",
        ),
        (
            user("{client-certificate: a.pem}"),
            "users: \"u\": client-key-data or client-key must be given with a client certificate",
        ),
        (
            user("{client-certificate: a.pem, client-key: a.pem}"),
            "unable to read client-certificate ~/a.pem: No such file or directory (os error 2)",
        ),
        (
            user("{client-certificate-data: '%', client-key: a.pem}"),
            "users: \"u\": client-certificate-data is not base64",
        ),
        (
            user("{exec: {command: p, apiVersion: client.authentication.k8s.io/v1}}"),
            "users: \"u\": exec: interactiveMode must be given: Never or IfAvailable",
        ),
        (
            GOOD.replace("insecure-skip-tls-verify: true", "certificate-authority-data: YWJj"),
            "certificate-authority in the kubeconfig: there is no certificate in it",
        ),
        (
            GOOD.replace("insecure-", "proxy-url: 'http://p', insecure-"),
            "clusters: \"k\": proxy-url is not supported: the API server has to be reachable directly",
        ),
        (
            GOOD.replace("https://", "gopher://"),
            "clusters: server: \"gopher://10.0.0.1:6443\" is no address like https://10.0.0.1:6443",
        ),
    ] {
        assert_eq!(refusal(&text), wanted);
    }
}

#[test]
fn what_is_in_the_file_is_not_shown() {
    let broken = refusal(&GOOD.replace("{token: s3cret}", "{token: 's3cret"));
    assert!(!broken.contains("s3cret"), "{broken}");
    let home = Home::new(&Pki::new());
    home.write("kubeconfig", GOOD);
    let loaded = Kubeconfig::load(&home.path("kubeconfig")).expect("good");
    assert!(!format!("{loaded:?}").contains("s3cret"), "{loaded:?}");
}

#[test]
fn files_are_beside_the_kubeconfig() {
    let pki = Pki::new();
    let home = Home::new(&pki);
    home.write("me.pem", &pki.client("me"));
    let loaded = home.kubeconfig("https://10.0.0.1", "{client-certificate: me.pem, client-key: me.pem}");
    assert_eq!(loaded.client_certificate_file(), Some(home.path("me.pem").as_path()));
    loaded.check_credentials().expect("all there");
    let pem = loaded.client_certificate().expect("readable").expect("a certificate");
    assert_eq!(pem, std::fs::read(home.path("me.pem")).expect("the file"));
    let json = std::fs::read_to_string(home.path("kubeconfig")).expect("the file");
    assert!(json.contains("certificate-authority: ca.crt"));
}

use crablet_apiserver::{ApiServer, Call, ErrorKind, Lane};

use super::pki::Pki;
use super::server::{Answer, Seen, Server};
use super::{Home, soon};

fn authorization(seen: &Seen) -> Option<&str> {
    seen.headers.get("authorization").map(|value| value.to_str().expect("text"))
}

/// A user whose plugin is a script. The shell reads it: a file that was written just now cannot always be executed while
/// other threads start processes.
fn plugin(home: &Home, script: &str) -> String {
    home.write("plugin.sh", script);
    let path = home.path("plugin.sh");
    format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}, a], \
         env: [{{name: FLAVOUR, value: sweet}}], interactiveMode: Never, provideClusterInfo: true}}}}",
        path.display()
    )
}

#[tokio::test]
async fn passwords_and_tokens_are_shown() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{}")).await;
    let home = Home::new(&pki);
    for (user, wanted) in [
        ("{token: t0ken}", "Bearer t0ken"),
        ("{username: me, password: secret}", "Basic bWU6c2VjcmV0"),
        ("{}", ""),
    ] {
        let client = home.client(&server.url(), user);
        soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("an answer");
        assert_eq!(authorization(server.seen().last().expect("a request")).unwrap_or_default(), wanted);
    }
}

#[tokio::test]
async fn a_token_file_is_read_again_when_its_token_is_refused() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |seen| match authorization(seen) {
        Some("Bearer second") => Answer::ok("{}"),
        _ => Answer::Body(401, &[], "{\"reason\":\"Unauthorized\",\"message\":\"Unauthorized\"}".to_owned()),
    })
    .await;
    let home = Home::new(&pki);
    home.write("token", "first\n");
    let client = home.client(&server.url(), "{tokenFile: token}");
    let error = soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    home.write("token", "second\n");
    soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("accepted");
}

#[tokio::test]
async fn a_plugin_is_asked_once_and_again_when_it_is_refused() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |seen| match authorization(seen) {
        Some("Bearer run-1") if seen.path == "/refuse" => Answer::Body(401, &[], String::new()),
        _ => Answer::ok("{}"),
    })
    .await;
    let home = Home::new(&pki);
    let user = plugin(
        &home,
        r#"cd "$(dirname "$0")"
echo "$1 $FLAVOUR" >> runs
echo "$KUBERNETES_EXEC_INFO" > info
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"run-%s","expirationTimestamp":"2999-01-01T00:00:00Z"}}' "$(wc -l < runs)"
"#,
    );
    let client = home.client(&server.url(), &user);
    for path in ["/api", "/api", "/refuse"] {
        soon("a call", client.call(Call::get(Lane::Main, path))).await.expect("an answer");
    }
    let shown: Vec<_> =
        server.seen().iter().map(|seen| authorization(seen).unwrap_or_default().to_owned()).collect();
    assert_eq!(shown, ["Bearer run-1", "Bearer run-1", "Bearer run-1", "Bearer run-2"]);
    assert_eq!(std::fs::read_to_string(home.path("runs")).expect("runs"), "a sweet\na sweet\n");
    let info: serde_json::Value =
        serde_json::from_slice(&std::fs::read(home.path("info")).expect("info")).expect("JSON");
    assert_eq!(info["kind"], "ExecCredential");
    assert_eq!(info["spec"]["interactive"], false);
    assert_eq!(info["spec"]["cluster"]["server"], server.url());
    assert!(info["spec"]["cluster"]["certificate-authority-data"].is_string());
}

#[tokio::test]
async fn a_plugin_may_give_a_certificate() {
    let pki = Pki::new();
    let server = Server::http2(&pki, |_| Answer::ok("{}")).await;
    let home = Home::new(&pki);
    let pem = pki.client("me");
    let status = serde_json::json!({ "clientCertificateData": pem, "clientKeyData": pem });
    let credential = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    home.write("credential", &credential.to_string());
    let user = plugin(&home, "exec cat \"$(dirname \"$0\")/credential\"");
    let client = home.client(&server.url(), &user);
    soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect("an answer");
    assert!(server.seen()[0].certificate.is_some());
}

#[tokio::test]
async fn what_a_failed_plugin_complains_of_is_told_and_what_it_says_is_not() {
    let pki = Pki::new();
    let home = Home::new(&pki);
    let user = plugin(&home, "echo s3cret; echo 'no luck' >&2; exit 3");
    let client = home.client("https://127.0.0.1:1", &user);
    let error = soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect_err("no credentials");
    assert_eq!(
        error.message,
        "Get \"https://127.0.0.1:1/api\": getting credentials: exec: executable sh failed with exit code 3: no luck"
    );
    plugin(&home, "echo s3cret");
    let error = soon("a call", client.call(Call::get(Lane::Main, "/api"))).await.expect_err("no credentials");
    assert!(error.message.ends_with("decoding stdout: it is no ExecCredential"), "{error}");
}

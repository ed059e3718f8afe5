//! The main port over real TLS: who gets in, and what they may do.

mod common;

use std::sync::Arc;

use common::port::{Authority, Cluster, Port, SOON, Shelf, build, settings};
use crablet_server::{AuthorizationMode, KubeletServerSettings};
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

fn unauthorized() -> (u16, String) {
    (401, "Unauthorized".to_owned())
}

#[tokio::test]
async fn a_client_certificate_says_who_it_is_over_either_protocol() {
    let port = Port::start(settings()).await;
    port.cluster.allow("kube-apiserver get proxy");
    let client = port.authority.client("kube-apiserver", &["masters", "readers"]);
    let list = port.ask(Some(&client), None, "GET", "/pods").await;
    assert_eq!(list.0, 200);
    assert!(list.1.starts_with(r#"{"kind":"PodList""#), "{}", list.1);
    assert_eq!(
        port.ask_h2(&client, &["/pods", "/healthz", "/configz", "/nothing"]).await,
        [
            list,
            (200, "ok".to_owned()),
            (200, r#"{"kubeletconfig":{}}"#.to_owned()),
            (404, "404 page not found\n".to_owned())
        ]
    );

    let seen = port.cluster.access_seen.lock().expect("a lock");
    let asked: Vec<_> = seen.iter().map(|asked| asked.subresource).collect();
    assert_eq!(asked, ["pods", "proxy", "healthz", "configz"], "each is asked once, and remembered");
    let user = &seen[0].user;
    assert_eq!(user.groups, ["masters", "readers", "system:authenticated"]);
    assert_eq!(user.uid, "uid-of-kube-apiserver");
    let id = &user.extra["authentication.kubernetes.io/credential-id"];
    assert!(id[0].starts_with("X509SHA256=") && id[0].len() == 11 + 64, "{id:?}");
    assert_eq!((&*seen[0].node, seen[0].verb), ("node-1", "get"));
}

#[tokio::test]
async fn an_unknown_certificate_gets_an_answer_and_not_a_broken_connection() {
    let port = Port::start(KubeletServerSettings { anonymous: true, ..settings() }).await;
    let stranger = Authority::new("elsewhere").client("kube-apiserver", &["system:masters"]);
    assert_eq!(port.ask(Some(&stranger), None, "GET", "/pods").await, unauthorized());
    assert_eq!(port.ask_h2(&stranger, &["/pods"]).await, [unauthorized()]);
    // Another credential beside it may be good.
    port.cluster.allow("jane get pods");
    assert_eq!(port.ask(Some(&stranger), Some("jane"), "GET", "/pods").await.0, 200);
    // A certificate for servers is none for clients.
    assert!(port.cluster.access_seen.lock().expect("a lock").iter().all(|asked| asked.user.name == "jane"));
}

#[tokio::test]
async fn a_new_bundle_of_authorities_is_used_without_a_restart() {
    let port =
        Port::start(KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() })
            .await;
    let (old, successor) = (port.authority.client("a", &[]), Authority::new("successor"));
    let new = successor.client("a", &[]);
    assert_eq!(port.ask(Some(&old), None, "GET", "/healthz").await.0, 200);
    assert_eq!(port.ask(Some(&new), None, "GET", "/healthz").await.0, 401);

    let renamed = port.ca_file.with_extension("new");
    std::fs::write(&renamed, "not a bundle").expect("a file");
    std::fs::rename(&renamed, &port.ca_file).expect("a bundle");
    std::fs::write(&renamed, &successor.pem).expect("a file");
    assert_eq!(port.ask(Some(&old), None, "GET", "/healthz").await.0, 200, "a bad bundle changes nothing");
    std::fs::rename(&renamed, &port.ca_file).expect("a bundle");
    let swapped = async {
        while port.ask(Some(&new), None, "GET", "/healthz").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, swapped).await.expect("the new bundle");
    assert_eq!(port.ask(Some(&old), None, "GET", "/healthz").await.0, 401);
}

#[tokio::test]
async fn tokens_are_reviewed_once_and_errors_are_not_remembered() {
    let port = Port::start(KubeletServerSettings { anonymous: true, ..settings() }).await;
    port.cluster.allow("jane get healthz");
    for _ in 0..3 {
        assert_eq!(port.ask(None, Some("jane"), "GET", "/healthz").await, (200, "ok".to_owned()));
        assert_eq!(port.ask(None, Some("bad"), "GET", "/healthz").await, unauthorized());
    }
    assert_eq!(port.ask(None, Some("outage"), "GET", "/healthz").await, unauthorized());
    assert_eq!(port.ask(None, Some("outage"), "GET", "/healthz").await, unauthorized());
    assert_eq!(*port.cluster.tokens_seen.lock().expect("a lock"), ["jane", "bad", "outage", "outage"]);
}

#[tokio::test]
async fn refusals_are_worded_as_upstreams() {
    let port = Port::start(settings()).await;
    assert_eq!(port.ask(None, None, "GET", "/healthz").await, unauthorized(), "nobody is not anonymous here");
    let forbidden = |verb: &str, tried: &str| {
        (403, format!("Forbidden (user=jane, verb={verb}, resource=nodes, subresource(s)=[{tried}])\n"))
    };
    for (method, target, expected) in [
        ("GET", "/pods", forbidden("get", "pods proxy")),
        ("POST", "/exec/default/web/app", forbidden("create", "proxy")),
        ("GET", "/stats/summary", forbidden("get", "stats")),
        ("HEAD", "/pods", (403, String::new())),
        ("GET", "/debug/pprof/nothing", forbidden("get", "proxy")),
        // As Go's multiplexer, which looks for a page before anybody looks at who asks.
        ("GET", "/nothing", (404, "404 page not found\n".to_owned())),
    ] {
        assert_eq!(port.ask(None, Some("jane"), method, target).await, expected, "{method} {target}");
    }
    let error = "Authorization error (user=unlucky, verb=get, resource=nodes, subresource=pods)";
    assert_eq!(port.ask(None, Some("unlucky"), "GET", "/pods").await, (500, error.to_owned()));
}

#[tokio::test]
async fn nobody_in_particular_is_anonymous_where_that_is_wanted() {
    let port =
        Port::start(KubeletServerSettings { anonymous: true, debugging_handlers: false, ..settings() }).await;
    port.cluster.allow("system:anonymous get healthz");
    assert_eq!(port.ask(None, None, "GET", "/healthz").await.0, 200);
    assert_eq!(port.ask(None, None, "GET", "/pods").await.0, 403);
    let groups = port.cluster.access_seen.lock().expect("a lock")[0].user.groups.clone();
    assert_eq!(groups, ["system:unauthenticated"]);

    port.cluster.allow("jane get proxy");
    let disabled = (405, "Debug endpoints are disabled.\n".to_owned());
    assert_eq!(port.ask(None, Some("jane"), "GET", "/containerLogs/default/web/app").await, disabled);
    assert_eq!(port.ask(None, Some("jane"), "GET", "/configz").await.0, 404);
}

#[tokio::test]
async fn new_connections_get_the_new_certificate_and_none_without_one() {
    let port = Port::start(KubeletServerSettings { anonymous: true, ..settings() }).await;
    let served = async || -> Option<CertificateDer<'static>> {
        let stream = port.connect(None, "http/1.1").await.ok()?;
        stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone())
    };
    let second = port.authority.server("second");
    let first = served().await.expect("a certificate");
    port.certificate.send_replace(Some(second.clone()));
    assert_eq!(served().await.as_ref(), Some(&second.cert[0]));
    assert_ne!(second.cert[0], first);
    port.certificate.send_replace(None);
    assert_eq!(served().await, None, "the handshake fails");
    port.certificate.send_replace(Some(second));
    assert!(served().await.is_some());
}

#[tokio::test]
async fn those_who_say_nothing_keep_nobody_out() {
    let port =
        Port::start(KubeletServerSettings { authorization: AuthorizationMode::AlwaysAllow, ..settings() })
            .await;
    let client = port.authority.client("kube-apiserver", &[]);
    let early = port.connect(Some(&client), "http/1.1").await.expect("a connection");
    let mut silent = Vec::new();
    for _ in 0..1000 {
        silent.push(TcpStream::connect(port.address).await.expect("a connection"));
    }
    for _ in 0..3 {
        assert_eq!(port.ask(Some(&client), None, "GET", "/healthz").await.0, 200);
    }
    drop(early);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_come_is_not_waited_for() {
    let port = Port::start(settings()).await;
    let mut silent = TcpStream::connect(port.address).await.expect("a connection");
    assert_eq!(silent.read(&mut [0]).await.expect("an end"), 0);
}

#[tokio::test]
async fn settings_that_cannot_be_followed_are_named() {
    let refused = async |settings: KubeletServerSettings| {
        let certificate = watch::channel(None).1;
        let built = build(settings, certificate, Arc::<Cluster>::default(), Arc::<Shelf>::default()).await;
        built.err().expect("a refusal").to_string()
    };
    let nobody = KubeletServerSettings { token_webhook: None, ..settings() };
    assert!(refused(nobody).await.starts_with("no authentication method configured"));
    let mut strange = settings();
    strange.tls.cipher_suites = vec!["ROT13".to_owned()];
    assert!(refused(strange).await.contains("tlsCipherSuites"));
    let missing = KubeletServerSettings { client_ca_file: Some("/nonexistent/ca.crt".into()), ..settings() };
    assert!(refused(missing).await.contains("authentication.x509.clientCAFile"));
}

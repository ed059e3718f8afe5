//! What the ports answer, without sockets.

mod common;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Uri};
use common::{OnePull, Shelf, World};
use crablet_server::{PodView, healthz_router, local_router, read_only_router, serve_tcp};
use http_body_util::BodyExt;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

async fn ask(router: axum::Router, method: &str, target: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(target).body(Body::empty()).expect("a request");
    let response = router.oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
}

#[tokio::test]
async fn health_is_told_as_upstream_tells_it() {
    let world = Arc::new(World::default());
    let router = read_only_router(world.clone());
    for (target, status, body) in [
        ("/healthz", 200, "ok"),
        ("/healthz/", 404, "404 page not found\n"),
        ("/healthz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"),
        (
            "/healthz?verbose=1&exclude=syncloo%70",
            200,
            "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\nhealthz check passed\n",
        ),
        ("/healthz/ping", 200, "ok"),
        ("/healthz/log", 200, "ok"),
        ("/healthz/syncloop", 200, "ok"),
        ("/healthz/device-plugin", 404, "404 page not found\n"),
        ("/healthz/nothing", 404, "404 page not found\n"),
    ] {
        assert_eq!(ask(router.clone(), "GET", target).await, (status, body.to_owned()), "{target}");
    }
    assert_eq!(ask(router.clone(), "POST", "/healthz").await.0, 200);

    *world.trouble.lock().expect("a lock") = Some("the runtime is gone".to_owned());
    let failed = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n";
    for (target, status, body) in [
        ("/healthz", 500, format!("{failed}healthz check failed\n")),
        ("/healthz/syncloop", 500, "internal server error: the runtime is gone\n".to_owned()),
        ("/healthz/ping", 200, "ok".to_owned()),
        ("/healthz?exclude=syncloop", 200, "ok".to_owned()),
        (
            "/healthz?exclude=x&exclude=a&exclude=x",
            500,
            format!(
                "{failed}warn: some health checks cannot be excluded: no matches for \"a\",\"x\"\nhealthz check failed\n"
            ),
        ),
    ] {
        assert_eq!(ask(router.clone(), "GET", target).await, (status, body), "{target}");
    }
}

#[tokio::test]
async fn the_health_port_says_only_that_the_program_answers() {
    let world = Arc::new(World::default());
    *world.trouble.lock().expect("a lock") = Some("the runtime is gone".to_owned());
    let router = healthz_router(world);
    for (target, status, body) in [
        ("/healthz", 200, "ok"),
        ("/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"),
        ("/healthz/ping", 200, "ok"),
        ("/healthz/syncloop", 404, "404 page not found\n"),
        ("/pods", 404, "404 page not found\n"),
    ] {
        assert_eq!(ask(router.clone(), "GET", target).await, (status, body.to_owned()), "{target}");
    }
}

#[tokio::test]
async fn the_read_only_port_lists_pods_and_changes_nothing() {
    let router = read_only_router(Arc::new(World::default()));
    let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[\
                {\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}\n";
    for (method, target, status, body) in [
        ("GET", "/pods", 200, list),
        ("GET", "/pods/", 200, list),
        ("POST", "/pods", 405, "405: Method Not Allowed"),
        ("HEAD", "/pods", 405, "405: Method Not Allowed"),
        ("DELETE", "/pods/", 405, "405: Method Not Allowed"),
        ("GET", "/healthz", 200, "ok"),
        ("GET", "/logs/messages", 405, "Debug endpoints are disabled.\n"),
        ("POST", "/exec/default/web/app", 405, "Debug endpoints are disabled.\n"),
        ("PUT", "/run", 307, ""),
        ("GET", "/watch", 404, "404 page not found\n"),
        ("PUT", "/manifests/web", 404, "404 page not found\n"),
        ("GET", "/pulls", 404, "404 page not found\n"),
        ("GET", "/explain/default/web", 404, "404 page not found\n"),
        ("GET", "/configz", 404, "404 page not found\n"),
        ("GET", "/", 404, "404 page not found\n"),
    ] {
        assert_eq!(ask(router.clone(), method, target).await, (status, body.to_owned()), "{method} {target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_hung_up_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = healthz_router(Arc::new(World::default()));
    let serving = tokio::spawn(serve_tcp(listener, router, std::future::pending()));

    let mut silent = TcpStream::connect(address).await.expect("a connection");
    let mut slow = TcpStream::connect(address).await.expect("a connection");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.expect("a start");
    let mut idle = TcpStream::connect(address).await.expect("a connection");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("a request");
    let mut rest = String::new();
    for stream in [&mut silent, &mut slow, &mut idle] {
        stream.read_to_string(&mut rest).await.expect("an end");
    }
    assert!(rest.ends_with("\r\n\r\nok"), "{rest}");
    serving.abort();
}

proptest! {
    #[test]
    fn no_path_panics_or_reaches_the_shelf_under_a_strange_name(path in "/[ -~]{0,60}|/manifests/[%0-9a-f./A-Z]{0,20}") {
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let world: Arc<dyn PodView> = Arc::new(World::default());
        let router = local_router(world, Arc::new(Shelf::default()), Arc::new(OnePull));
        for method in ["GET", "PUT", "DELETE", "BREW"] {
            let request = Request::builder().method(method).uri(uri.clone()).body(Body::empty()).expect("a request");
            let status = runtime.block_on(router.clone().oneshot(request)).expect("an answer").status();
            prop_assert!(!status.is_server_error(), "{} {}: {}", method, uri, status);
        }
    }
}

//! Every endpoint of the main port but streams and logs: methods, codes, headers and texts, as upstream v1.36 has them.

mod common;

use std::sync::Arc;

use axum::Router;
use common::ask;
use common::port::{Loudness, Runtime, build_around, settings};
use crablet_server::{AuthorizationMode, KubeletServerPorts, KubeletServerSettings, PodView};

/// Everybody may do everything.
fn open() -> KubeletServerSettings {
    KubeletServerSettings { anonymous: true, authorization: AuthorizationMode::AlwaysAllow, ..settings() }
}

async fn router(settings: KubeletServerSettings) -> Router {
    build_around(settings, |ports| ports).await.expect("a server").into_router()
}

const NO_PAGE: &str = "404 page not found\n";
const NO_ROUTE: &str = "404: Page Not Found";
const WRONG_METHOD: &str = "405: Method Not Allowed";

#[tokio::test]
async fn unknown_paths_and_methods_are_answered_as_by_upstreams_two_routers() {
    let router = router(open()).await;
    for (method, target, status, allow, body) in [
        ("GET", "/", 404, "", NO_PAGE),
        ("GET", "/nothing", 404, "", NO_PAGE),
        ("GET", "/Pods", 404, "", NO_PAGE),
        ("GET", "/pods%2F", 404, "", NO_PAGE),
        ("GET", "/configz/", 404, "", NO_PAGE),
        ("GET", "/debug/flags/", 404, "", NO_PAGE),
        ("GET", "/metrics/cadvisor", 404, "", NO_PAGE),
        ("GET", "/%zz", 400, "", "400 Bad Request"),
        ("GET", "/pods/x", 404, "", NO_ROUTE),
        ("GET", "/run", 404, "", NO_ROUTE),
        ("POST", "/run/default/web", 404, "", NO_ROUTE),
        ("GET", "/containerLogs/default/web/app/x", 404, "", NO_ROUTE),
        ("GET", "/stats/summary", 404, "", NO_ROUTE),
        ("GET", "/debug/pprof/", 404, "", NO_ROUTE),
        ("HEAD", "/pods", 405, "GET", WRONG_METHOD),
        ("OPTIONS", "/logs/x", 405, "GET", WRONG_METHOD),
        ("GET", "/run/default/web/app", 405, "POST", WRONG_METHOD),
        ("PUT", "/exec/default/web/app", 405, "GET, POST", WRONG_METHOD),
        ("POST", "/manifests/web", 405, "GET, PUT, DELETE", WRONG_METHOD),
        ("GET", "/checkpoint/default/web/app", 405, "POST", WRONG_METHOD),
    ] {
        let answer = ask(&router, method, target, &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{method} {target}");
        assert_eq!(answer.header("allow"), allow, "{method} {target}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8", "{method} {target}");
        let guess = if body == NO_PAGE { "nosniff" } else { "" };
        assert_eq!(answer.header("x-content-type-options"), guess, "{method} {target}");
    }
}

#[tokio::test]
async fn paths_are_cleaned_and_completed_by_redirects() {
    let router = router(open()).await;
    for (target, location) in [
        ("//pods", "/pods"),
        ("/../pods", "/pods"),
        ("/pods/../logs/?a=b", "/logs/?a=b"),
        ("/a/./b/", "/a/b/"),
        ("/logs", "/logs/"),
        ("/logs?query=x", "/logs/?query=x"),
        ("/logs/..", "/"),
        ("/runningpods", "/runningpods/"),
        ("/checkpoint", "/checkpoint/"),
        ("/debug/pprof", "/debug/pprof/"),
        ("/stats", "/stats/"),
    ] {
        let answer = ask(&router, "GET", target, &[], "").await;
        assert_eq!((answer.status, answer.header("location")), (307, location), "{target}");
        let body = format!("<a href=\"{location}\">Temporary Redirect</a>.\n\n");
        assert_eq!(answer.text(), body, "{target}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        let posted = ask(&router, "POST", target, &[], "").await;
        assert_eq!((posted.status, posted.text().as_str(), posted.header("content-type")), (307, "", ""));
    }
    // An encoded path is the path; one slash at its end is none.
    for target in ["/pods", "/pods/", "/%70ods", "/pod%73/"] {
        assert_eq!(ask(&router, "GET", target, &[], "").await.status, 200, "{target}");
    }
    assert_eq!(ask(&router, "POST", "/run/default%2Fweb/app/", &[], "").await.text(), " [\"\"]");
}

#[tokio::test]
async fn what_is_not_accepted_is_not_sent() {
    let router = router(open()).await;
    let text = |available: &str| format!("406: Not Acceptable\n\nAvailable representations: {available}");
    for (method, target, accept, expected) in [
        ("GET", "/pods", "text/html", Err("application/json")),
        ("GET", "/pods", "application/*", Err("application/json")),
        ("GET", "/pods", "text/html;q=1, application/json;q=0.1", Ok(200)),
        ("GET", "/runningpods/", "*/*", Ok(200)),
        ("POST", "/run/default/web/app", "application/json", Err("")),
        ("GET", "/logs/", "text/html", Err("")),
        ("GET", "/manifests", "application/json", Ok(200)),
        ("GET", "/configz", "text/html", Ok(200)),
    ] {
        let answer = ask(&router, method, target, &[&format!("Accept: {accept}")], "").await;
        match expected {
            Ok(status) => assert_eq!(answer.status, status, "{target} {accept}"),
            Err(available) => {
                assert_eq!((answer.status, answer.text()), (406, text(available)), "{target} {accept}");
            }
        }
    }
}

#[tokio::test]
async fn containers_are_run_in_and_checkpointed() {
    let router = router(open()).await;
    for (method, target, status, kind, body) in [
        ("GET", "/runningpods/", 200, "application/json", "{}\n"),
        ("POST", "/run/default/web/app?cmd=ls%20-l++x", 200, "application/json", r#" ["ls", "-l", "", "x"]"#),
        ("POST", "/run/default/web/u1/app?cmd=id", 200, "application/json", r#"u1 ["id"]"#),
        ("POST", "/run/default/web/app?cmd=silent", 200, "", ""),
        ("POST", "/run/default/nope/app", 404, "text/plain; charset=utf-8", "pod does not exist"),
        ("POST", "/run/default/web/no", 500, "text/plain; charset=utf-8", "container not found (\"no\")"),
        (
            "POST",
            "/checkpoint/default/web/app?timeout=3&timeout=5",
            200,
            "application/json",
            r#"{"items":["/x/checkpoint-5.tar"]}"#,
        ),
        (
            "POST",
            "/checkpoint/default/web/app",
            200,
            "application/json",
            r#"{"items":["/x/checkpoint-0.tar"]}"#,
        ),
        (
            "POST",
            "/checkpoint/default/web/app?timeout=x",
            404,
            "text/plain; charset=utf-8",
            "cannot parse value of timeout parameter",
        ),
        (
            "POST",
            "/checkpoint/default/web/app?timeout=7",
            500,
            "text/plain; charset=utf-8",
            "checkpointing of default/web/app failed (boom)",
        ),
        (
            "POST",
            "/checkpoint/default/web/no",
            404,
            "text/plain; charset=utf-8",
            "container no does not exist",
        ),
        ("POST", "/checkpoint/default/no/app", 404, "text/plain; charset=utf-8", "pod does not exist"),
    ] {
        let answer = ask(&router, method, target, &[], "").await;
        let found = (answer.status, answer.header("content-type"), answer.text());
        assert_eq!(found, (status, kind, body.to_owned()), "{method} {target}");
    }
    let idle = build_around(open(), |ports| KubeletServerPorts {
        containers: Arc::new(Runtime { idle: true }),
        ..ports
    });
    let idle = idle.await.expect("a server").into_router();
    let answer = ask(&idle, "GET", "/runningpods/", &[], "").await;
    assert_eq!((answer.status, answer.text().as_str()), (500, "the runtime is gone"));
}

#[tokio::test]
async fn gates_and_switches_take_endpoints_away() {
    let settings = KubeletServerSettings {
        checkpoint: false,
        flagz: false,
        statusz: false,
        system_logs: false,
        profiling_handler: false,
        debug_flags_handler: false,
        ..open()
    };
    let router = router(settings).await;
    for (method, target, status, body) in [
        ("POST", "/checkpoint/default/web/app", 404, NO_PAGE),
        ("GET", "/flagz", 404, NO_PAGE),
        ("GET", "/statusz", 404, NO_PAGE),
        ("GET", "/logs/", 405, "logs endpoint is disabled.\n"),
        ("DELETE", "/logs/a/b", 405, "logs endpoint is disabled.\n"),
        ("GET", "/debug/pprof/", 405, "profiling endpoint is disabled.\n"),
        ("POST", "/debug/pprof/heap", 405, "profiling endpoint is disabled.\n"),
        ("PUT", "/debug/flags/v", 405, "flags endpoint is disabled.\n"),
        ("GET", "/configz", 200, r#"{"kubeletconfig":{}}"#),
    ] {
        let answer = ask(&router, method, target, &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{method} {target}");
    }
}

#[tokio::test]
async fn without_debugging_handlers_there_is_little_left() {
    let router = router(KubeletServerSettings { debugging_handlers: false, ..open() }).await;
    for path in
        ["run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs"]
    {
        for below in ["", "a", "a/b/c"] {
            let answer = ask(&router, "POST", &format!("/{path}/{below}"), &[], "").await;
            assert_eq!((answer.status, answer.text()), (405, "Debug endpoints are disabled.\n".to_owned()));
        }
        let short = ask(&router, "GET", &format!("/{path}"), &[], "").await;
        assert_eq!((short.status, short.header("location")), (307, format!("/{path}/").as_str()));
    }
    for path in ["/configz", "/flagz", "/statusz", "/debug/flags/v", "/checkpoint/a/b/c", "/checkpoint"] {
        let answer = ask(&router, "GET", path, &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (404, NO_PAGE), "{path}");
    }
    for path in ["/pods", "/healthz", "/manifests"] {
        assert_eq!(ask(&router, "GET", path, &[], "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn verbosity_is_set_by_a_number_and_nothing_else() {
    let loudness = Arc::new(Loudness::default());
    let verbosity = loudness.clone();
    let server = build_around(open(), |ports| KubeletServerPorts { verbosity, ..ports });
    let router = server.await.expect("a server").into_router();
    for (method, body, status, text) in [
        ("PUT", "4", 200, "successfully set klog.logging.verbosity to 4\n"),
        ("GET", "", 406, "unsupported http method\n"),
        ("POST", "4", 406, "unsupported http method\n"),
        ("PUT", "", 400, "strconv.ParseUint: parsing \"\": invalid syntax\n"),
        ("PUT", "4\n", 400, "strconv.ParseUint: parsing \"4\\n\": invalid syntax\n"),
        ("PUT", "-1", 400, "strconv.ParseUint: parsing \"-1\": invalid syntax\n"),
        ("PUT", "4294967296", 400, "strconv.ParseUint: parsing \"4294967296\": value out of range\n"),
        (
            "PUT",
            "4294967295",
            400,
            "failed set klog.logging.verbosity 4294967295: strconv.ParseInt: parsing \"4294967295\": value out of range\n",
        ),
    ] {
        let answer = ask(&router, method, "/debug/flags/v", &[], body).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, text), "{method} {body:?}");
        assert_eq!(answer.header("content-type"), "text/plain");
    }
    let long = ask(&router, "PUT", "/debug/flags/v", &[], &"1".repeat(1 << 20)).await;
    assert_eq!(long.status, 400);
    assert_eq!(*loudness.0.lock().expect("a lock"), [4]);
}

#[tokio::test]
async fn profiles_are_gos_and_the_command_line_is_ours() {
    let router = router(open()).await;
    let line = ask(&router, "GET", "/debug/pprof/cmdline", &[], "").await;
    let first = std::env::args().next().expect("a program");
    assert_eq!((line.status, line.text().split('\0').next()), (200, Some(first.as_str())));
    let heap = ask(&router, "GET", "/debug/pprof/heap", &[], "").await;
    assert_eq!(heap.status, 404);
    assert!(heap.text().contains("Go's runtime"), "{}", heap.text());
    let nothing = ask(&router, "GET", "/debug/pprof/nothing", &[], "").await;
    assert_eq!((nothing.status, nothing.text().as_str()), (404, "Unknown profile\n"));
}

#[tokio::test]
async fn pages_about_the_program_come_as_text_or_as_versioned_objects() {
    let router = router(open()).await;
    let flagz = async |accept: &str, agent: &str| {
        let heads = [format!("Accept: {accept}"), format!("User-Agent: {agent}")];
        ask(&router, "GET", "/flagz", &heads.each_ref().map(String::as_str), "").await
    };
    let text = ask(&router, "POST", "/flagz", &[], "").await;
    assert_eq!((text.status, text.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(text.text().starts_with("\nkubelet flagz\nWarning: This endpoint is not meant to be"));
    assert!(text.text().contains("\na: 1\nb: x<y\n"), "{}", text.text());
    for accept in ["*/*", "text/plain", "text/*, application/json;q=0.5"] {
        assert_eq!(flagz(accept, "x").await.text(), text.text(), "{accept}");
    }

    let wanted = |media: &str, version: &str| format!("{media};as=Flagz;v={version};g=config.k8s.io");
    let json = flagz(&wanted("application/json", "v1beta1"), "x").await;
    assert_eq!(
        json.text(),
        "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"kubelet\"},\
         \"flags\":{\"a\":\"1\",\"b\":\"x\\u003cy\"}}\n"
    );
    assert_eq!(json.header("content-type"), "application/json;g=config.k8s.io;v=v1beta1;as=Flagz");
    assert_eq!(json.header("warning"), "");
    let old = flagz(&wanted("*/*", "v1alpha1"), "x").await;
    let warning = "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\"";
    assert_eq!((old.status, old.header("warning")), (200, warning));
    let yaml = flagz(&wanted("application/yaml", "v1beta1"), "x").await;
    let expected = "apiVersion: config.k8s.io/v1beta1\nflags:\n  a: \"1\"\n  b: x<y\nkind: Flagz\nmetadata:\n  name: kubelet\n";
    assert_eq!(yaml.text(), expected);
    let pretty = flagz(&wanted("application/json", "v1beta1"), "curl/8").await;
    assert!(pretty.text().starts_with("{\n  \"kind\": \"Flagz\","), "{}", pretty.text());

    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    for (accept, begin) in [
        ("application/json", "{\"kind\":\"Status\""),
        ("text/html", "{\n  \"kind\": \"Status\""),
        ("text/plain;as=Flagz", "{\n  \"kind\": \"Status\""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "{\n  \"kind\": \"Status\""),
        ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io", "{\n  \"kind\": \"Status\""),
        ("nonsense", "{\n  \"kind\": \"Status\""),
    ] {
        let refused = flagz(accept, "x").await;
        assert_eq!((refused.status, refused.header("content-type")), (406, "application/json"), "{accept}");
        assert!(refused.text().starts_with(begin), "{accept}: {}", refused.text());
        let status: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
        assert_eq!((&status["message"], &status["code"]), (&message.into(), &406.into()));
    }
}

#[tokio::test]
async fn the_status_page_tells_versions_and_where_to_look_further() {
    let router = router(open()).await;
    let heads = ["Accept: application/json;as=Statusz;v=v1beta1;g=config.k8s.io"];
    let answer = ask(&router, "GET", "/statusz", &heads, "").await;
    let status: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(status["kind"], "Statusz");
    assert_eq!(status["startTime"], "2024-01-02T03:04:05Z");
    assert_eq!((&status["binaryVersion"], &status["emulationVersion"]), (&"1.36.4".into(), &"1.36".into()));
    assert!(status["uptimeSeconds"].as_i64().expect("a number") > 0);
    assert_eq!(status["paths"], serde_json::json!(["/configz", "/debug", "/flagz", "/healthz", "/metrics"]));
    let text = ask(&router, "GET", "/statusz", &[], "").await.text();
    for line in
        ["Started: Tue Jan  2 03:04:05 UTC 2024\n", "Binary version: 1.36.4\n", "Emulation version: 1.36\n"]
    {
        let bare = |text: &str| text.replace([':', '=', ' '], "");
        assert!(bare(&text).contains(&bare(line)), "{line} in {text}");
    }
}

#[tokio::test]
async fn manifests_are_kept_through_the_main_port_too() {
    let router = router(open()).await;
    for (method, target, body, status, expected) in [
        ("GET", "/manifests", "", 200, "{\"manifests\":[]}\n"),
        ("PUT", "/manifests/web", "kind: Pod", 201, "{\"name\":\"web\",\"warnings\":[\"odd\"]}\n"),
        ("GET", "/manifests/web", "", 200, "kind: Pod"),
        ("PUT", "/manifests/%2e%2e", "kind: Pod", 400, ""),
        ("PUT", "/manifests/a%2Fb", "kind: Pod", 404, NO_ROUTE),
        ("DELETE", "/manifests/web", "", 200, "{\"name\":\"web\"}\n"),
    ] {
        let answer = ask(&router, method, target, &[], body).await;
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        assert!(expected.is_empty() || answer.text() == expected, "{method} {target}: {}", answer.text());
    }
}

#[tokio::test]
async fn no_pods_are_null_as_upstream_writes_them() {
    struct Empty(common::World);
    impl PodView for Empty {
        fn pods_json(&self) -> Vec<bytes::Bytes> {
            Vec::new()
        }
        fn summary_json(&self) -> bytes::Bytes {
            self.0.summary_json()
        }
        fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
            self.0.changes()
        }
        fn explain_json(&self, _: &str, _: &str) -> Option<bytes::Bytes> {
            None
        }
        fn health(&self) -> Result<(), String> {
            Ok(())
        }
    }
    let pods = Arc::new(Empty(common::World::default()));
    let server = build_around(open(), |ports| KubeletServerPorts { pods, ..ports }).await.expect("a server");
    let answer = ask(&server.into_router(), "GET", "/pods", &[], "").await;
    assert_eq!(
        answer.text(),
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":null}\n"
    );
}

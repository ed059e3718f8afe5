//! What is said instead of opening anything.

use tokio::io::AsyncWriteExt;

use super::kubelet::{Kubelet, header, soon};
use super::runtime::Runtime;
use crate::ports::Refusal;

const SPDY: &str = "Connection: Upgrade\nUpgrade: SPDY/3.1";
const WEBSOCKET: &str = "Connection: keep-alive, Upgrade\nUpgrade: WebSocket\nSec-WebSocket-Version: 13\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

#[tokio::test]
async fn requests_are_refused_in_upstreams_words() {
    let kubelet = Kubelet::start("https://127.0.0.1:1/exec/token").await;
    let required = r#"query parameter "port" is required"#;
    let port = |value: &str, why: &str| {
        format!("unable to parse {value:?} as a port: strconv.ParseUint: parsing {why}")
    };
    let cases = [
        ("/exec/default/web/app", SPDY, 400, "you must specify at least 1 of stdin, stdout, stderr".to_owned()),
        ("/exec/default/web/app?output=true&error=yes", SPDY, 400, "you must specify at least 1 of stdin, stdout, stderr".to_owned()),
        ("/attach/default/web/app?tty=1&error=1", SPDY, 400, "you must specify at least 1 of stdin, stdout, stderr".to_owned()),
        ("/exec/default/none/app?output=1", SPDY, 404, "pod does not exist".to_owned()),
        ("/attach/other/web/app?output=1", SPDY, 404, "pod does not exist".to_owned()),
        ("/portForward/default/none", SPDY, 404, "pod does not exist".to_owned()),
        ("/portForward/default/web/u2", SPDY, 404, "pod not found".to_owned()),
        ("/exec/default/web/app?output=1", "X-A: b", 500, "Upgrade request required\n".to_owned()),
        ("/portForward/default/none", WEBSOCKET, 400, required.to_owned()),
        ("/portForward/default/web?port=", WEBSOCKET, 400, r#"query parameter "port" cannot be empty"#.to_owned()),
        ("/portForward/default/web?port=0", WEBSOCKET, 400, r#"port "0" must be > 0"#.to_owned()),
        ("/portForward/default/web?port=80,x", WEBSOCKET, 400, port("80,x", r#""x": invalid syntax"#)),
        ("/portForward/default/web?port=65536", WEBSOCKET, 400, port("65536", r#""65536": value out of range"#)),
        (
            "/exec/default/web/app?output=1",
            SPDY,
            500,
            "the container runtime's streaming address is bad: unknown scheme: https: only `http` is supported\n"
                .to_owned(),
        ),
    ];
    for (target, headers, status, text) in cases {
        let (head, body) = kubelet.refusal(&format!("GET {target} HTTP/1.1\n{headers}")).await;
        assert_eq!((head.split(' ').nth(1), body), (Some(status.to_string().as_str()), text), "{target}");
        assert_eq!(header(&head, "content-type"), Some("text/plain; charset=utf-8"), "{target}");
    }
    kubelet.rests().await;
}

#[tokio::test]
async fn a_websocket_handshake_that_is_wrong_is_refused() {
    let kubelet = Kubelet::start("http://127.0.0.1:1/exec/token").await;
    let v5 = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Protocol: v5.channel.k8s.io";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let cases = [
        ("POST", format!("{v5}\n{key}\nSec-WebSocket-Version: 13"), "405", "bad method"),
        ("GET", format!("{v5}\nSec-WebSocket-Version: 13"), "400", "mismatch challenge/response"),
        ("GET", format!("{v5}\n{key}\nSec-WebSocket-Version: 8"), "400", "missing or bad WebSocket Version"),
    ];
    for (method, headers, status, text) in cases {
        let (head, body) =
            kubelet.refusal(&format!("{method} /exec/default/web/app?output=1 HTTP/1.1\n{headers}")).await;
        assert_eq!((head.split(' ').nth(1), body.as_str()), (Some(status), text));
        assert_eq!(header(&head, "content-type"), None);
    }
    kubelet.rests().await;
}

#[tokio::test]
async fn the_runtimes_refusals_have_codes() {
    let cases = [
        (Refusal::NotFound("no such container".to_owned()), "404", "no such container", None),
        (Refusal::Exhausted("too many".to_owned()), "429", "too many", Some("60")),
        (
            Refusal::Failed("container not found (\"app\")".to_owned()),
            "500",
            "container not found (\"app\")",
            None,
        ),
    ];
    for (refusal, status, text, retry) in cases {
        let kubelet = Kubelet::with(Err(refusal), true).await;
        for path in
            ["exec/default/web/app?output=1", "attach/default/web/app?output=1", "portForward/default/web"]
        {
            // Asked before anybody looks whether it is an upgrade at all.
            let (head, body) = kubelet.refusal(&format!("POST /{path} HTTP/1.1")).await;
            assert_eq!((head.split(' ').nth(1), body.as_str()), (Some(status), text));
            assert_eq!(header(&head, "retry-after"), retry);
        }
    }
}

#[tokio::test]
async fn the_runtime_is_asked_for_what_the_query_says() {
    let kubelet = Kubelet::with(Err(Refusal::Failed("no".to_owned())), false).await;
    for target in [
        "/exec/default/web/app?command=sh&command=-c&command=echo+a%20b&output=1&error=1",
        "/exec/default/web/u1/app?input=1&tty=1&error=1",
        "/attach/default/web/app?input=1&output=1&tty=1",
    ] {
        kubelet.refusal(&format!("POST {target} HTTP/1.1\n{SPDY}")).await;
    }
    kubelet
        .refusal(&format!("GET /portForward/default/web?port=80,443&port=8080 HTTP/1.1\n{WEBSOCKET}"))
        .await;
    kubelet.refusal(&format!("GET /portForward/default/web/u1?port=80 HTTP/1.1\n{SPDY}")).await;
    let asked = [
        r#"exec app None ["sh", "-c", "echo a b"] stdout+stderr"#,
        r#"exec app Some("u1") [] stdin+tty"#,
        "attach app None stdin+stdout+tty",
        "forward default/web [80, 443, 8080]",
        "forward default/web []",
    ];
    assert_eq!(kubelet.asked(), asked);
}

#[tokio::test]
async fn answers_of_the_runtime_that_are_no_connection() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let cases = [
        ("HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 6\r\n\r\nno one", "404", "no one"),
        ("HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", "403", "no"),
        ("HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\nbroken", "500", "broken"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "500",
            "invalid upgrade response: status code 200\n",
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
            "500",
            "invalid upgrade response: status code 302\n",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "500", "error sending request: "),
        ("", "500", "error sending request: "),
    ];
    for (answer, status, text) in cases {
        let answering = async {
            let (_, mut stream) = runtime.answer(answer).await;
            stream.shutdown().await.expect("an end");
            stream
        };
        let asking = kubelet
            .refusal("POST /exec/default/web/app?output=1 HTTP/1.1\nConnection: Upgrade\nUpgrade: SPDY/3.1");
        let (_stream, (head, body)) = soon(async { tokio::join!(answering, asking) }).await;
        assert_eq!(head.split(' ').nth(1), Some(status), "{answer}");
        assert!(body.starts_with(text), "{answer}: {body}");
        if status == "404" {
            assert_eq!(header(&head, "x-a"), Some("b"));
        }
    }
    kubelet.rests().await;
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_named() {
    let kubelet = Kubelet::start("http://127.0.0.1:1/exec/token").await;
    let (head, body) =
        kubelet.refusal(&format!("POST /exec/default/web/app?output=1 HTTP/1.1\n{SPDY}")).await;
    assert_eq!(head.split(' ').nth(1), Some("500"));
    assert!(body.starts_with("error dialing backend: dial tcp 127.0.0.1:1: "), "{body}");
}

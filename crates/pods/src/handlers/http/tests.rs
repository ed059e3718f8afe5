use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers one connection after the other with what it is given, and returns what it was sent.
struct Server {
    port: u16,
    heads: JoinHandle<Vec<String>>,
}

impl Server {
    async fn answering(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = tokio::spawn(async move {
            let mut heads = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                heads.push(read_head(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.unwrap();
                // Until the asker has gone: what it does not read must not reset the connection.
                let _ = stream.read(&mut [0; 1]).await;
            }
            heads
        });
        Self { port, heads }
    }

    async fn heads(self) -> Vec<String> {
        self.heads.await.unwrap()
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn get_of(get: Value, port: u16) -> HttpAsk {
    get_for(get, port, Purpose::Probe)
}

fn get_for(mut get: Value, port: u16, purpose: Purpose) -> HttpAsk {
    get["port"] = json!(port);
    let get: api::HTTPGetAction = serde_json::from_value(get).unwrap();
    HttpAsk::of(&get, &api::Container::default(), "127.0.0.1", purpose).unwrap()
}

#[tokio::test]
async fn a_request_carries_what_upstreams_does() {
    let server = Server::answering(vec![response("200 OK", "", "fine")]).await;
    let port = server.port;
    let answer = ask(&get_of(json!({"path": "/healthz?deep=1"}), port), PATIENCE).await;
    assert_eq!(answer, Ok(Answer::Success("fine".to_owned())));
    let mut lines: Vec<_> = server.heads().await[0].trim_end().lines().map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "GET /healthz?deep=1 HTTP/1.1");
    lines.sort();
    let host = format!("Host: 127.0.0.1:{port}");
    assert_eq!(lines, ["Accept: */*", "Connection: close", &host, "User-Agent: kube-probe/1.36"]);
}

#[tokio::test]
async fn a_hooks_request_is_that_of_gos_usual_client() {
    let server = Server::answering(vec![response("200 OK", "", "")]).await;
    let port = server.port;
    call(&get_for(json!({"path": "//up"}), port, Purpose::Lifecycle)).await.unwrap();
    let mut lines: Vec<_> = server.heads().await[0].trim_end().lines().map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "GET / HTTP/1.1");
    lines.sort();
    let host = format!("Host: 127.0.0.1:{port}");
    assert_eq!(lines, ["Accept-Encoding: gzip", "Accept: */*", &host, "User-Agent: kube-lifecycle/1.36"]);
}

#[tokio::test]
async fn a_hook_does_not_mind_how_the_body_ends() {
    // The second says that its body is long, and is not waited for.
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nab");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut cut, _) = listener.accept().await.unwrap();
        read_head(&mut cut).await;
        cut.write_all(head(10).as_bytes()).await.unwrap();
        drop(cut);
        let (mut stalls, _) = listener.accept().await.unwrap();
        read_head(&mut stalls).await;
        stalls.write_all(head(MOST_OF_AN_ANSWER + 1).as_bytes()).await.unwrap();
        let _ = stalls.read(&mut [0; 1]).await;
    });
    let asked = get_for(json!({}), port, Purpose::Lifecycle);
    assert_eq!(call(&asked).await, Ok(()));
    assert_eq!(call(&asked).await, Ok(()));
    server.await.unwrap();
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_a_failure() {
    let asked = |name: &str, value: &str| {
        get_of(json!({"path": "/a", "httpHeaders": [{"name": name, "value": value}]}), 80)
    };
    let cases = [
        (asked("x-LONG-name", "a\n"), "invalid header field value for \"X-Long-Name\""),
        (asked("a b", "c"), "invalid header field name \"a b\""),
    ];
    for (asked, why) in cases {
        let failure = format!("Get \"http://127.0.0.1:80/a\": net/http: {why}");
        assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Failure(failure)));
    }
}

#[tokio::test]
async fn headers_of_the_specification_win() {
    let server = Server::answering(vec![response("204 No Content", "", "")]).await;
    let headers = json!([
        {"name": "host", "value": "example.org"},
        {"name": "accept", "value": ""},
        {"name": "User-Agent", "value": "me"},
        {"name": "X-Twice", "value": "1"},
        {"name": "x-twice", "value": "2"},
    ]);
    let answer = ask(&get_of(json!({"path": "/", "httpHeaders": headers}), server.port), PATIENCE).await;
    assert_eq!(answer, Ok(Answer::Success(String::new())));
    let mut lines: Vec<_> = server.heads().await[0].trim_end().lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [
        "Connection: close",
        "GET / HTTP/1.1",
        "Host: example.org",
        "User-Agent: me",
        "X-Twice: 1",
        "X-Twice: 2",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn the_status_decides_and_the_body_of_a_failure_stays_private() {
    let cases = [
        ("200 OK", Answer::Success("body".to_owned())),
        ("299 Odd", Answer::Success("body".to_owned())),
        ("300 Many", Answer::Warning("Probe terminated redirects, Response body: body".to_owned())),
        // A redirect that leads nowhere is an answer.
        ("302 Found", Answer::Warning("Probe terminated redirects, Response body: body".to_owned())),
        ("404 Not Found", Answer::Failure("HTTP probe failed with statuscode: 404".to_owned())),
        ("503 Busy", Answer::Failure("HTTP probe failed with statuscode: 503".to_owned())),
    ];
    let server =
        Server::answering(cases.iter().map(|(status, _)| response(status, "", "body")).collect()).await;
    for (status, expected) in cases {
        assert_eq!(ask(&get_of(json!({}), server.port), PATIENCE).await, Ok(expected), "{status}");
    }
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let elsewhere = response("302 Found", "Location: http://192.0.2.1/\r\n", "go away");
    let here = response("307 Go", "Location: next?x=y\r\n", "");
    let server = Server::answering(vec![here, response("200 OK", "", "arrived"), elsewhere]).await;
    let named = json!({"path": "/a/first", "httpHeaders": [{"name": "Host", "value": "example.org"}]});
    let port = server.port;
    let asked = get_of(named, port);
    assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Success("arrived".to_owned())));
    let warning = "Probe terminated redirects, Response body: go away".to_owned();
    assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Warning(warning)));
    let heads = server.heads().await;
    assert!(heads[1].starts_with("GET /a/next?x=y HTTP/1.1\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("Host: example.org\r\n"), "{}", heads[1]);
    let referer = format!("Referer: http://127.0.0.1:{port}/a/first\r\n");
    assert!(!heads[0].contains("Referer") && heads[1].contains(&referer), "{heads:?}");
}

#[tokio::test]
async fn a_redirect_that_cannot_be_followed_on_this_host_is_a_failure() {
    let cases = [
        (
            "http://127.0.0.1:notaport/",
            "URL",
            "failed to parse Location header \"http://127.0.0.1:notaport/\": \
             parse \"http://127.0.0.1:notaport/\": invalid port \":notaport\" after host",
        ),
        ("ftp://127.0.0.1/x", "ftp://127.0.0.1/x", "unsupported protocol scheme \"ftp\""),
    ];
    let to = |(location, _, _): &(&str, &str, &str)| {
        response("302 Found", &format!("Location: {location}\r\n"), "")
    };
    let elsewhere = response("302 Found", "Location: ftp://192.0.2.1/\r\n", "gone");
    let answers = cases.iter().map(to).chain([elsewhere]).collect();
    let server = Server::answering(answers).await;
    let asked = get_of(json!({}), server.port);
    let here = format!("http://127.0.0.1:{}/", server.port);
    for (_, url, why) in cases {
        let failure = format!("Get {:?}: {why}", url.replace("URL", &here));
        assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Failure(failure)));
    }
    let warning = "Probe terminated redirects, Response body: gone".to_owned();
    assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Warning(warning)));
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let round = response("302 Found", "Location: /again\r\n", "");
    let server = Server::answering(vec![round; MOST_REDIRECTS]).await;
    let failure = "Get \"/again\": stopped after 10 redirects".to_owned();
    assert_eq!(ask(&get_of(json!({}), server.port), PATIENCE).await, Ok(Answer::Failure(failure)));
}

#[tokio::test]
async fn no_more_than_ten_kibibytes_of_a_body_are_read() {
    let body = "x".repeat(3 * MOST_OF_AN_ANSWER);
    let server = Server::answering(vec![response("200 OK", "", &body)]).await;
    let answer = get(&get_of(json!({}), server.port), PATIENCE).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, MOST_OF_AN_ANSWER));
}

#[tokio::test]
async fn failures_are_told_in_gos_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/");
    let asked = get_of(json!({}), port);

    // Taken, and never answered: the connection waits in the listener's queue.
    let silent = ask(&asked, Duration::from_millis(200)).await;
    let timeout = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(silent, Ok(Answer::Failure(format!("Get {url:?}: {timeout}"))));

    drop(listener);
    let refused = format!("Get {url:?}: dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(ask(&asked, PATIENCE).await, Ok(Answer::Failure(refused)));

    let server = Server::answering(vec![String::new()]).await;
    let asked = get_of(json!({}), server.port);
    server.heads.abort();
    let closed = ask(&asked, PATIENCE).await;
    assert!(matches!(closed, Ok(Answer::Failure(_))), "{closed:?}");
}

#[tokio::test]
async fn a_reset_connection_is_told_with_both_its_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, from) = listener.accept().await.unwrap();
        // Closed with something unread, it is reset.
        stream.readable().await.unwrap();
        from
    });
    let answer = ask(&get_of(json!({}), port), PATIENCE).await;
    let from = server.await.unwrap();
    let failure = format!(
        "Get \"http://127.0.0.1:{port}/\": read tcp {from}->127.0.0.1:{port}: read: connection reset by peer"
    );
    assert_eq!(answer, Ok(Answer::Failure(failure)));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_no_answer_at_all() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_owned();
    let server = Server::answering(vec![half]).await;
    let trouble = ask(&get_of(json!({}), server.port), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(trouble.state, "failure");
    assert!(trouble.message.contains("while reading body"), "{}", trouble.message);
}

#[tokio::test]
async fn ports_without_a_number_cannot_be_asked() {
    let get: api::HTTPGetAction = serde_json::from_value(json!({"port": "web"})).unwrap();
    let error = HttpAsk::of(&get, &api::Container::default(), "", Purpose::Probe).unwrap_err();
    assert_eq!(error, "strconv.Atoi: parsing \"web\": invalid syntax");
}

#[tokio::test]
async fn a_host_of_the_specification_is_asked_instead_of_the_pod() {
    let get = |host: Value| -> api::HTTPGetAction {
        serde_json::from_value(json!({"port": 80, "host": host})).unwrap()
    };
    let asked = |get: &api::HTTPGetAction| {
        HttpAsk::of(get, &api::Container::default(), "", Purpose::Lifecycle).unwrap().at("10.1.2.3")
    };
    assert_eq!(asked(&get(Value::Null)).host_and_port(), "10.1.2.3:80");
    assert_eq!(asked(&get(json!("10.9.9.9"))).host_and_port(), "10.9.9.9:80");
    assert_eq!(asked(&get(json!("fd00::1"))).host_and_port(), "[fd00::1]:80");
}

mod over_tls {
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    fn acceptor(protocols: &[&[u8]]) -> TlsAcceptor {
        let made = rcgen::generate_simple_self_signed(["somebody.else".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn whoever_answers_is_believed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor(&[]).accept(stream).await.unwrap();
            stream.write_all(response("200 OK", "", "secret").as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
        });
        let answer = ask(&get_of(json!({"scheme": "HTTPS"}), port), PATIENCE).await;
        assert_eq!(answer, Ok(Answer::Success("secret".to_owned())));
        server.await.unwrap();
    }

    #[tokio::test]
    async fn http2_is_spoken_where_the_other_side_likes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor(&[b"h2"]).accept(stream).await.unwrap();
            let service = service_fn(async |request: http::Request<_>| {
                let _: &hyper::body::Incoming = request.body();
                let seen = format!("{:?} {}", request.version(), request.uri().path());
                Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(seen))))
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
        let answer = ask(&get_of(json!({"scheme": "HTTPS", "path": "/two"}), port), PATIENCE).await;
        assert_eq!(answer, Ok(Answer::Success("HTTP/2.0 /two".to_owned())));
        server.await.unwrap();
    }

    #[tokio::test]
    async fn plain_http_is_recognised() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 512]).await;
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
        });
        let headers = json!([{"name": "Authorization", "value": "Basic c2VjcmV0"}]);
        let asked = get_of(json!({"scheme": "HTTPS", "httpHeaders": headers}), port);
        let error = get(&asked, PATIENCE).await.unwrap_err();
        let url = format!("https://127.0.0.1:{port}/");
        assert_eq!(error.message, format!("Get {url:?}: http: server gave HTTP response to HTTPS client"));
        assert!(error.plain_http_answer);
        server.await.unwrap();

        let server = Server::answering(vec![response("200 OK", "", "")]).await;
        let mut plain = asked.over_plain_http();
        plain.target.port = Some(server.port);
        assert_eq!(get(&plain, PATIENCE).await.unwrap().status, 200);
        let heads = server.heads().await;
        assert!(!heads[0].contains("Authorization"), "{}", heads[0]);
    }
}

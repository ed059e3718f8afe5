use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A web server that answers each path as `route` says, and keeps the requests.
struct Server {
    base: String,
    requests: Arc<Mutex<Vec<String>>>,
    _task: tokio::task::JoinSet<()>,
}

async fn serve(route: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let mut task = tokio::task::JoinSet::new();
    let (kept, own) = (requests.clone(), base.clone());
    task.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            // What does not begin like a GET is TLS, and is not waited for.
            while !request.ends_with(b"\r\n\r\n") && request.first().is_none_or(|first| *first == b'G') {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            kept.lock().unwrap().push(request);
            match route(&path, &own) {
                Some(response) => drop(stream.write_all(response.as_bytes()).await),
                // Keeps the connection, and says nothing.
                None => std::mem::forget(stream),
            }
        }
    });
    Server { base, requests, _task: task }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn moved(status: u16, target: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
}

async fn get(url: &str) -> Result<Fetched, FetchError> {
    get_with(url, &[]).await
}

async fn get_with(url: &str, headers: &[(&str, &str)]) -> Result<Fetched, FetchError> {
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    HyperFetch::default().get(url, &headers, 100, Duration::from_secs(5)).await
}

#[tokio::test]
async fn status_and_body_come_back() {
    let server = serve(|path, _| {
        Some(match path {
            "/good" => ok("pods"),
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".to_owned(),
        })
    })
    .await;
    let fetched = get(&format!("{}/good", server.base)).await.unwrap();
    assert_eq!(fetched, Fetched { status: 200, status_line: "200 OK".to_owned(), body: b"pods".to_vec() });
    let fetched = get(&format!("{}/bad", server.base)).await.unwrap();
    assert_eq!(
        fetched,
        Fetched { status: 404, status_line: "404 Not Found".to_owned(), body: b"no".to_vec() }
    );
}

#[tokio::test]
async fn headers_are_sent_and_the_host_is_the_urls() {
    let server = serve(|_, _| Some(ok(""))).await;
    get_with(&server.base, &[("x-key", "1"), ("X-Key", "2"), ("Host", "elsewhere")]).await.unwrap();
    let request = server.requests.lock().unwrap()[0].to_lowercase();
    assert!(request.contains("x-key: 1\r\nx-key: 2\r\n"), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", &server.base["http://".len()..])), "{request}");
    assert!(!request.contains("elsewhere"), "{request}");
    assert_eq!(
        get_with(&server.base, &[("bad name", "1")]).await,
        Err(FetchError::BadHeader("bad name".to_owned()))
    );
}

#[tokio::test]
async fn redirects_are_followed_ten_times() {
    let server = serve(|path, own| {
        let steps: usize = path.trim_start_matches("/a/").parse().unwrap();
        Some(match steps {
            0 => ok("end"),
            // Each form of a target in turn.
            n if n % 3 == 0 => moved(301, &format!("{own}/a/{}", n - 1)),
            n if n % 3 == 1 => moved(307, &format!("/a/{}", n - 1)),
            n => moved(302, &format!("{}#part", n - 1)),
        })
    })
    .await;
    assert_eq!(get(&format!("{}/a/10", server.base)).await.unwrap().body, b"end");
    assert_eq!(get(&format!("{}/a/11", server.base)).await, Err(FetchError::Redirects(10)));
}

#[tokio::test]
async fn secrets_stay_with_the_host_that_they_are_for() {
    let server = serve(|path, own| {
        let port = own.rsplit_once(':').unwrap().1.to_owned();
        Some(match path {
            "/same" => moved(302, "/end"),
            "/other" => moved(302, &format!("http://localhost:{port}/end")),
            _ => ok(""),
        })
    })
    .await;
    for (path, is_sent) in [("same", true), ("other", false)] {
        get_with(&format!("{}/{path}", server.base), &[("Authorization", "Bearer x"), ("X-Key", "1")])
            .await
            .unwrap();
        let request = server.requests.lock().unwrap().pop().unwrap().to_lowercase();
        assert!(request.starts_with("get /end "), "{request}");
        assert_eq!(request.contains("authorization"), is_sent, "{request}");
        assert!(request.contains("x-key"), "{request}");
    }
}

#[tokio::test]
async fn what_is_too_large_too_slow_or_not_there_is_an_error() {
    let server = serve(|path, _| match path {
        "/large" => Some(ok(&"x".repeat(101))),
        "/limit" => Some(ok(&"x".repeat(100))),
        _ => None,
    })
    .await;
    assert_eq!(get(&format!("{}/large", server.base)).await, Err(FetchError::TooLarge(100)));
    assert_eq!(get(&format!("{}/limit", server.base)).await.unwrap().body.len(), 100);
    let timeout = Duration::from_millis(50);
    let silent = HyperFetch::default().get(&format!("{}/silent", server.base), &[], 100, timeout).await;
    assert_eq!(silent, Err(FetchError::Timeout(timeout)));

    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused = get(&format!("http://127.0.0.1:{port}/")).await.unwrap_err();
    assert!(refused.to_string().contains("refused"), "{refused}");
    for bad in ["/pods", "ftp://host/", "http://", "http://a b/"] {
        assert!(matches!(get(bad).await, Err(FetchError::BadUrl(_))), "{bad}");
    }
}

#[tokio::test]
async fn https_is_spoken_to_an_https_url() {
    // The server does not speak TLS: what matters is that we try, with certificates or a clear word about them.
    let server = serve(|_, _| Some(ok(""))).await;
    let url = server.base.replace("http://", "https://");
    let error = get(&url).await.unwrap_err();
    assert!(matches!(error, FetchError::Connection(_) | FetchError::NoRoots(_)), "{error:?}");
}

#[test]
fn redirect_targets_are_resolved_like_links() {
    let base: Uri = "https://host:8443/a/b?q=1".parse().unwrap();
    for (target, expected) in [
        ("http://other/x", "http://other/x"),
        ("//other/x", "https://other/x"),
        ("/x?y", "https://host:8443/x?y"),
        ("x", "https://host:8443/a/x"),
        ("?y", "https://host:8443/a/b?y"),
        ("#part", "https://host:8443/a/b?q=1"),
    ] {
        assert_eq!(resolve(&base, target).unwrap().to_string(), expected, "{target}");
    }
    assert!(resolve(&base, "javascript:alert(1)").is_err());
}

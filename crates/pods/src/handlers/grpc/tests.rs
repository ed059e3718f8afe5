use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a server says: a state, or a code and a message.
#[derive(Clone, Copy)]
enum Says {
    State(i32),
    Code(u8, &'static str),
    Nothing,
}

/// A server for one connection. Returns the asked path, service and user agent.
async fn serving(says: Says) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(move |request: http::Request<Incoming>| {
            let seen = seen.clone();
            async move {
                let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let service = HealthCheckRequest::decode(&body[5..]).unwrap().service;
                let _ = seen.send(format!("{path} {service:?} {agent}"));
                if matches!(says, Says::Nothing) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer(says))
            }
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        let mut all = Vec::new();
        while let Ok(one) = asked.try_recv() {
            all.push(one);
        }
        all
    });
    (port, server)
}

type Frames = futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>;

fn answer(says: Says) -> Response<StreamBody<Frames>> {
    let mut trailers = HeaderMap::new();
    let mut frames = Vec::new();
    match says {
        Says::State(status) => {
            let message = HealthCheckResponse { status }.encode_to_vec();
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(message.len().try_into().unwrap());
            framed.extend_from_slice(&message);
            frames.push(Ok(Frame::data(framed.freeze())));
            trailers.insert("grpc-status", 0.into());
        }
        Says::Code(code, message) => {
            trailers.insert("grpc-status", u16::from(code).into());
            trailers.insert("grpc-message", message.parse().unwrap());
        }
        Says::Nothing => {}
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)));
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    response
}

#[tokio::test]
async fn the_state_of_the_service_decides() {
    let cases = [
        (Says::State(1), Answer::Success("service healthy".to_owned())),
        (Says::State(2), failure("service unhealthy (responded with \"NOT_SERVING\")")),
        (Says::State(0), failure("service unhealthy (responded with \"UNKNOWN\")")),
        (Says::State(9), failure("service unhealthy (responded with \"9\")")),
        (
            Says::Code(5, "unknown service"),
            failure("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
        ),
        (
            Says::Code(1, "on second thoughts"),
            failure("error: health rpc probe failed: rpc error: code = Canceled desc = on second thoughts"),
        ),
        (
            Says::Code(12, "no such thing"),
            failure(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such thing",
            ),
        ),
    ];
    for (says, expected) in cases {
        let (port, server) = serving(says).await;
        assert_eq!(ask("127.0.0.1", port, "the.Service", PATIENCE).await, expected);
        let seen = server.await.unwrap();
        let begin = "/grpc.health.v1.Health/Check \"the.Service\" kube-probe/1.36 ";
        assert!(seen[0].starts_with(begin), "{seen:?}");
    }
}

#[tokio::test]
async fn too_late_is_a_failure() {
    let (port, server) = serving(Says::Nothing).await;
    let late = ask("127.0.0.1", port, "", Duration::from_millis(500)).await;
    assert_eq!(late, failure("timeout: health rpc did not complete within 500ms"));
    server.abort();
    let _ = server.await;
    let refused = ask("127.0.0.1", port, "", Duration::from_millis(100)).await;
    let expected = format!(
        "timeout: failed to connect service \"127.0.0.1:{port}\" within 100ms: context deadline exceeded"
    );
    assert_eq!(refused, failure(&expected));
}

#[tokio::test]
async fn a_server_that_does_not_speak_http2_lets_nobody_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let told = ask("127.0.0.1", port, "", Duration::from_millis(300)).await;
    let expected = format!(
        "timeout: failed to connect service \"127.0.0.1:{port}\" within 300ms: context deadline exceeded"
    );
    assert_eq!(told, failure(&expected));
    server.abort();
}

fn failure(text: &str) -> Answer {
    Answer::Failure(text.to_owned())
}

//! Without rules, both sides see what they would see without the proxy.

use std::time::Duration;

use crablet_cri::client::{CriClient, Timeouts};
use crablet_cri::{ErrorKind, Runtime};
use crablet_protos::cri::runtime_service_client::RuntimeServiceClient;
use crablet_protos::cri::{ContainerEventResponse, GetEventsRequest, VersionRequest, VersionResponse};
use crablet_proxy::{CriOptions, CriProxy, Error, Outcome};
use h2::Reason;
use hyper_util::rt::TokioIo;
use prost::Message;
use tonic::transport::{Channel, Endpoint, Uri};

use super::support::*;

/// An ordinary gRPC client, such as Crablet's.
async fn tonic(bed: &Bed) -> RuntimeServiceClient<Channel> {
    let path = bed.socket();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
    RuntimeServiceClient::new(channel)
}

#[tokio::test]
async fn bytes_headers_and_trailers_arrive_unchanged() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    // A field that nobody knows, and a message that is no protobuf at all.
    for message in [&[0xa0, 0x38, 5][..], &[0xff, 0xff]] {
        let sent = headers([("grpc-timeout", "7S"), ("x-trace", "1"), ("x-data-bin", "AAEC")]);
        let call = client.send_with(VERSION, frame(message), sent.clone()).await;
        let seen = bed.runtime.next().await;
        assert_eq!((seen.path.as_str(), &seen.body[..]), (VERSION, &frame(message)[..]));
        for (name, value) in &sent {
            assert_eq!(seen.headers.get(name), Some(value));
        }
        assert_eq!(
            (&seen.headers["te"], &seen.headers["content-type"]),
            (&"trailers".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
        seen.answer(&[0xa0, 0x38, 6]).await;
        let reply = call.reply().await.unwrap();
        assert_eq!(reply.body, frame(&[0xa0, 0x38, 6]));
        assert_eq!(reply.headers["x-from"], "runtime");
        assert_eq!((reply.code(), &reply.trailers["x-trailer"]), ("0", &"kept".parse().unwrap()));
    }
}

#[tokio::test]
async fn errors_keep_their_details() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let call = client.send(RUN, &[]).await;
    let details = [("grpc-status", "5"), ("grpc-message", "no%20such"), ("grpc-status-details-bin", "CAUS")];
    bed.runtime.next().await.fail(headers(details));
    let reply = call.reply().await.unwrap();
    for (name, value) in details {
        assert_eq!(reply.headers[name], value);
    }
    let line = soon(bed.record.next(|_| true)).await;
    assert_eq!((line.code, line.message.as_deref()), (Some(5), Some("no such")));

    // After a part of the answer, and as a reset.
    let call = client.send(EVENTS, &[]).await;
    let mut seen = bed.runtime.next().await;
    let mut stream = seen.begin();
    stream.send(b"").await;
    stream.0.send_trailers(headers([("grpc-status", "13"), ("grpc-status-details-bin", "CA0")])).unwrap();
    let reply = call.reply().await.unwrap();
    assert_eq!((reply.code(), &reply.trailers["grpc-status-details-bin"]), ("13", &"CA0".parse().unwrap()));
    let call = client.send(RUN, &[]).await;
    bed.runtime.next().await.respond.send_reset(Reason::ENHANCE_YOUR_CALM);
    assert_eq!(call.reply().await.unwrap_err().reason(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn streams_flow_live() {
    let mut bed = Bed::start();
    let mut client = tonic(&bed).await;
    let call = tokio::spawn(async move { client.get_container_events(GetEventsRequest {}).await });
    let mut seen = bed.runtime.next().await;
    let mut stream = seen.begin();
    let mut events = soon(call).await.unwrap().unwrap().into_inner();
    for id in ["a", "b", "c"] {
        let event = ContainerEventResponse { container_id: id.into(), ..Default::default() };
        stream.send(&event.encode_to_vec()).await;
        // The next one is not even sent yet.
        assert_eq!(soon(events.message()).await.unwrap().unwrap().container_id, id);
    }
    stream.end();
    assert!(soon(events.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_call_that_is_given_up_is_given_up_at_the_runtime() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let call = client.send(RUN, &[]).await;
    let mut seen = bed.runtime.next().await;
    call.cancel();
    assert_eq!(seen.cancelled().await, Reason::CANCEL);
    let line = soon(bed.record.next(|line| line.method == "RunPodSandbox")).await;
    assert_eq!((line.outcome, line.code), (Some(Outcome::GivenUp), None));

    // In the middle of a stream.
    let mut call = client.send(EVENTS, &[]).await;
    let mut seen = bed.runtime.next().await;
    let mut stream = seen.begin();
    stream.send(b"").await;
    assert!(call.piece().await.unwrap().is_some());
    call.cancel();
    assert_eq!(stream.cancelled().await, Reason::CANCEL);

    // Other calls of the same connection do not notice.
    let call = client.send(VERSION, &[]).await;
    bed.runtime.next().await.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}

#[tokio::test]
async fn a_client_that_dies_gives_up_all_its_calls() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let other = bed.client().await;
    let _calls = (client.send(RUN, &[]).await, client.send(RUN, &[]).await);
    let mut seen = (bed.runtime.next().await, bed.runtime.next().await);
    client.die();
    // The connection to the runtime ends, as the client's did.
    for seen in [&mut seen.0, &mut seen.1] {
        let gone = soon(std::future::poll_fn(|cx| seen.respond.poll_reset(cx))).await;
        assert!(gone.is_err() || gone.is_ok_and(|reason| reason == Reason::CANCEL));
    }
    let call = other.send(VERSION, &[]).await;
    bed.runtime.next().await.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
}

#[tokio::test]
async fn deadlines_are_told_and_kept() {
    let mut bed = Bed::start();
    let client = tonic(&bed).await;
    let mut request = tonic::Request::new(VersionRequest::default());
    request.set_timeout(Duration::from_millis(50));
    let mut caller = client.clone();
    let call = tokio::spawn(async move { caller.version(request).await });
    let mut seen = bed.runtime.next().await;
    assert_eq!(seen.headers["grpc-timeout"], "50000000n");
    assert_eq!(seen.cancelled().await, Reason::CANCEL);
    assert!(soon(call).await.unwrap().is_err());
}

#[tokio::test]
async fn the_biggest_messages_pass_in_both_directions() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let name = "x".repeat(15 << 20);
    let request = VersionRequest { version: name.clone() }.encode_to_vec();
    let answer = VersionResponse { runtime_name: name, ..Default::default() }.encode_to_vec();
    let (call, seen) = tokio::join!(client.send(VERSION, &request), bed.runtime.next());
    assert!(seen.body == frame(&request));
    let (reply, ()) = tokio::join!(call.reply(), seen.answer(&answer));
    assert!(reply.unwrap().body == frame(&answer));
    let line = soon(bed.record.next(|_| true)).await;
    assert_eq!(line.response.as_ref().unwrap()["not_decoded"], format!("{} bytes", answer.len()));
}

#[tokio::test]
async fn a_hundred_calls_run_at_once() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let calls: Vec<_> = (0..100u8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { (number, client.call(VERSION, &[0x0a, 1, number]).await) })
        })
        .collect();
    // None is answered before all are there.
    let mut seen = Vec::new();
    for _ in 0..100 {
        seen.push(bed.runtime.next().await);
    }
    for call in seen.into_iter().rev() {
        let echo = call.body[5..].to_vec();
        call.answer(&echo).await;
    }
    for call in calls {
        let (number, reply) = soon(call).await.unwrap();
        assert_eq!(reply.body, frame(&[0x0a, 1, number]));
    }
    assert_eq!(bed.record.counts()["Version"], 100);
}

#[tokio::test]
async fn a_runtime_that_is_restarted_is_found_again() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let mut events = client.send(EVENTS, &[]).await;
    let mut stream = bed.runtime.next().await.begin();
    stream.send(b"").await;
    assert!(events.piece().await.unwrap().is_some());
    let call = client.send(RUN, &[]).await;
    let _seen = bed.runtime.next().await;
    bed.runtime.die().await;
    // As without a proxy: the connection breaks, with no answer to the calls.
    let errors = (call.reply().await.unwrap_err(), events.piece().await.unwrap_err());
    assert!(!errors.0.is_reset() && !errors.1.is_reset(), "{errors:?}");
    client.closed().await;
    let line = soon(bed.record.next(|line| line.method == "RunPodSandbox")).await;
    assert_eq!(line.outcome, Some(Outcome::Broken));

    bed.runtime.start_again();
    let mut client = tonic(&bed).await;
    let call = tokio::spawn(async move { client.version(VersionRequest::default()).await });
    bed.runtime.next().await.answer(b"").await;
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_runtime_said_before_it_went_still_arrives() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let call = client.send(RUN, &[]).await;
    bed.runtime.next().await.answer(&[8, 1]).await;
    // It flushes what it has, and closes the connection.
    bed.runtime.close().await;
    assert_eq!(call.reply().await.unwrap().body, frame(&[8, 1]));
    client.closed().await;
}

#[tokio::test]
async fn without_a_runtime_nobody_answers() {
    let mut bed = Bed::start();
    bed.runtime.die().await;
    let client = CriClient::new(&bed.socket().display().to_string(), Timeouts::default(), None).unwrap();
    let error = soon(client.version()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn calls_that_nobody_knows_pass_too() {
    let mut bed = Bed::start();
    let client = bed.client().await;
    let call = client.send("/runtime.v2.Future/Call", &[0x08, 1]).await;
    let seen = bed.runtime.next().await;
    assert_eq!(seen.path, "/runtime.v2.Future/Call");
    seen.answer(&[0x08, 2]).await;
    assert_eq!(call.reply().await.unwrap().body, frame(&[0x08, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_synchronous_face_stops_when_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let mut runtime = FakeRuntime::start(folder.path());
    let path = |name: &str| folder.path().join(name);
    let proxy = CriProxy::start(&path("proxy.sock"), &path("runtime.sock"), &path("log")).unwrap();
    assert_eq!(proxy.endpoint(), format!("unix://{}", path("proxy.sock").display()));
    let options = CriOptions::new(path("proxy.sock"), path("runtime.sock"), path("log"));
    assert!(matches!(CriProxy::start_with(&options), Err(Error::InUse { .. })));

    let client = Client::connect(&path("proxy.sock")).await;
    let call = client.send(VERSION, &[]).await;
    runtime.next().await.answer(b"").await;
    assert_eq!(call.reply().await.unwrap().code(), "0");
    let line = proxy.record().wait("a version call", SOON, |line| line.method == "Version").unwrap();
    assert_eq!(line.code, Some(0));
    assert!(proxy.record().wait("a stop", Duration::ZERO, |line| line.method == "StopContainer").is_err());

    let call = client.send(RUN, &[]).await;
    let _seen = runtime.next().await;
    drop(proxy);
    assert!(!path("proxy.sock").exists());
    assert!(call.reply().await.is_err());
    let log = std::fs::read_to_string(path("log")).unwrap();
    assert!(log.lines().last().unwrap().contains("given-up"), "{log}");
    // A socket that was left behind is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(path("proxy.sock")).unwrap());
    CriProxy::start_with(&options).unwrap();
}

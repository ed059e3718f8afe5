//! SPDY inside a WebSocket, for port-forward.

use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::kubelet::{Kubelet, header, soon};
use super::runtime::{Runtime, drain, take};
use super::watched::{fill, vanish};

const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n";
const TARGET: &str = "/portForward/default/web";
const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

#[tokio::test]
async fn the_runtime_gets_a_request_for_spdy_and_then_what_is_inside() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("portforward")).await;
    let answer = format!("{ANSWER}early");
    let (mut client, (head, mut server)) =
        tokio::join!(kubelet.websocket(TARGET, PROTOCOL), runtime.answer(&answer));
    assert!(head.starts_with("POST /portforward/token HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("SPDY/3.1"));
    assert_eq!(header(&head, "x-stream-protocol-version"), Some("portforward.k8s.io"));
    assert!(!head.to_lowercase().contains("sec-websocket"), "{head}");
    assert_eq!(kubelet.asked(), ["forward default/web []"]);

    assert_eq!(
        soon(client.next()).await.expect("a message").expect("a good one"),
        Message::binary(&b"early"[..])
    );
    soon(client.send(Message::binary(&b"there"[..]))).await.expect("a message's way");
    assert_eq!(take(&mut server, 5).await, b"there");
    server.write_all(b"and back").await.expect("bytes");
    assert_eq!(
        soon(client.next()).await.expect("a message").expect("a good one"),
        Message::binary(&b"and back"[..])
    );
    soon(client.send(Message::Ping(b"x".as_slice().into()))).await.expect("a ping");
    let pong = soon(client.next()).await.expect("an answer").expect("a good one");
    assert_eq!(pong, Message::Pong(b"x".as_slice().into()));

    drop(server);
    match soon(client.next()).await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(frame.code, CloseCode::Normal),
        other => panic!("{other:?}"),
    }
    kubelet.rests().await;
}

#[tokio::test]
async fn a_client_that_leaves_or_misbehaves_ends_the_tunnel() {
    for message in [Message::Close(None), Message::text("no text here")] {
        let runtime = Runtime::start().await;
        let kubelet = Kubelet::start(runtime.url("portforward")).await;
        let (mut client, (_, mut server)) =
            tokio::join!(kubelet.websocket(TARGET, PROTOCOL), runtime.answer(ANSWER));
        soon(client.send(message)).await.expect("a message's way");
        assert_eq!(drain(&mut server).await, b"");
        kubelet.rests().await;
    }
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_while_the_runtime_does_not_read() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("portforward")).await;
    let (client, (_, server)) = tokio::join!(kubelet.websocket(TARGET, PROTOCOL), runtime.answer(ANSWER));
    fill(client.get_ref(), &[[0x82, 0xfe, 0xea, 0x60, 0, 0, 0, 0].as_slice(), &[0; 60000]].concat()).await;
    vanish(client.get_ref());
    drop(client);
    kubelet.rests().await;
    drop(server);
}

#[tokio::test]
async fn answers_that_open_no_tunnel() {
    let request = format!(
        "GET {TARGET} HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: {PROTOCOL}"
    );
    let cases = [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403", "no"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "500",
            "invalid upgrade response: status code 200\n",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "500",
            "unable to upgrade: missing upgrade headers in response\n",
        ),
    ];
    for (answer, status, text) in cases {
        let runtime = Runtime::start().await;
        let kubelet = Kubelet::start(runtime.url("portforward")).await;
        let ((head, body), _server) = tokio::join!(kubelet.refusal(&request), runtime.answer(answer));
        assert_eq!((head.split(' ').nth(1), body.as_str()), (Some(status), text));
        kubelet.rests().await;
    }
}

#[tokio::test]
async fn a_tunnel_is_asked_for_with_get() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("portforward")).await;
    let request = format!(
        "POST {TARGET} HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Protocol: {PROTOCOL}"
    );
    let ((head, body), _server) = tokio::join!(kubelet.refusal(&request), runtime.answer(ANSWER));
    assert_eq!((head.split(' ').nth(1), body.as_str()), (Some("405"), "Method Not Allowed\n"));
    assert_eq!(header(&head, "x-content-type-options"), Some("nosniff"));
}

//! WebSocket v5 on one side, SPDY on the other.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

use super::kubelet::{Kubelet, header, soon};
use super::runtime::{Runtime, SPDY, drain};
use super::spdy_server::{Heard, SpdyServer};
use super::watched::fill;

const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

struct World {
    kubelet: Kubelet,
    client: WebSocketStream<TcpStream>,
    runtime: SpdyServer,
}

impl World {
    /// With everything open, and the message that says so taken.
    async fn start(query: &str, streams: usize) -> Self {
        let runtime = Runtime::start().await;
        let kubelet = Kubelet::start(runtime.url("exec")).await;
        let target = format!("/exec/default/web/app?{query}");
        let opening = async {
            let (head, stream) = runtime.answer(SPDY).await;
            assert!(head.starts_with("POST /exec/token HTTP/1.1\r\n"), "{head}");
            SpdyServer::open(stream, streams).await
        };
        let (mut client, runtime) = tokio::join!(kubelet.websocket(&target, "v5.channel.k8s.io"), opening);
        let first = hear(&mut client).await;
        assert!(matches!(first.as_slice(), [1..=3]), "{first:?}");
        Self { kubelet, client, runtime }
    }

    async fn say(&mut self, bytes: &[u8]) {
        soon(self.client.send(Message::binary(bytes.to_vec()))).await.expect("a message's way");
    }

    /// The runtime ends, and the client hears this status and nothing after it.
    async fn ends(mut self, status: &str, expected: &str) {
        let _stream = self.runtime.finish(status).await;
        assert_eq!(
            String::from_utf8(hear(&mut self.client).await).expect("UTF-8"),
            format!("\u{3}{expected}")
        );
        closes(&mut self.client).await;
        self.kubelet.rests().await;
    }
}

async fn hear(client: &mut WebSocketStream<TcpStream>) -> Vec<u8> {
    loop {
        match soon(client.next()).await.expect("a message").expect("a good message") {
            Message::Binary(bytes) => return bytes.to_vec(),
            Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn closes(client: &mut WebSocketStream<TcpStream>) {
    match soon(client.next()).await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(frame.code, CloseCode::Normal),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn input_outputs_and_a_status() {
    let mut world = World::start("input=1&output=1&error=1", 4).await;
    let kinds: Vec<_> = world.runtime.opened.iter().map(|(kind, id)| (kind.as_str(), *id)).collect();
    assert_eq!(kinds, [("error", 1), ("stdin", 3), ("stdout", 5), ("stderr", 7)]);

    world.say(b"\0hello").await;
    let stdin = world.runtime.id("stdin");
    assert_eq!(
        world.runtime.hear().await,
        Heard::Data { stream: stdin, last: false, bytes: b"hello".to_vec() }
    );
    world.runtime.say("stdout", b"out").await;
    assert_eq!(hear(&mut world.client).await, b"\x01out");
    world.runtime.say("stderr", b"err").await;
    assert_eq!(hear(&mut world.client).await, b"\x02err");

    // Half-closed, and still there for what the command has to say.
    world.say(&[255, 0]).await;
    assert_eq!(world.runtime.hear_all(stdin).await, b"");
    world.say(b"\0too late").await;
    world.runtime.say("stdout", b"more").await;
    assert_eq!(hear(&mut world.client).await, b"\x01more");
    world.ends(r#"{"status":"Success"}"#, SUCCESS).await;
}

#[tokio::test]
async fn statuses_are_those_of_upstream() {
    let cases = [
        (r#"{"metadata":{},"status":"Success"}"#, SUCCESS),
        ("", SUCCESS),
        (
            r#"{"status":"Failure","message":"command terminated with non-zero exit code: exit 42","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#,
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 42","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#,
        ),
        (
            r#"{"status":"Failure","message":"no such file","reason":"InternalError","code":500}"#,
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no such file","reason":"InternalError","details":{"causes":[{"message":"no such file"}]},"code":500}"#,
        ),
        (
            r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: error stream protocol error: details must be set","reason":"InternalError","details":{"causes":[{"message":"error stream protocol error: details must be set"}]},"code":500}"#,
        ),
    ];
    for (said, expected) in cases {
        World::start("output=1", 2).await.ends(said, expected).await;
    }
}

#[tokio::test]
async fn a_terminal_has_a_size() {
    let mut world = World::start("input=1&output=1&error=1&tty=1", 4).await;
    let kinds: Vec<_> = world.runtime.opened.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["error", "stdin", "stdout", "resize"]);
    let size = b"{\"Width\":80,\"Height\":24}\n";
    world.say(&[&[4], &size[..]].concat()).await;
    let stream = world.runtime.id("resize");
    assert_eq!(world.runtime.hear().await, Heard::Data { stream, last: false, bytes: size.to_vec() });
    world.ends("", SUCCESS).await;
}

#[tokio::test]
async fn pings_are_answered_on_both_sides() {
    let mut world = World::start("output=1", 2).await;
    soon(world.client.send(Message::Ping(b"there?".as_slice().into()))).await.expect("a ping");
    let answer = soon(world.client.next()).await.expect("an answer").expect("a good answer");
    assert_eq!(answer, Message::Pong(b"there?".as_slice().into()));
    world.runtime.ping(2).await;
    assert_eq!(world.runtime.hear().await, Heard::Ping(2));
    world.ends("", SUCCESS).await;
}

#[tokio::test]
async fn messages_of_any_length_and_in_parts_are_one_stream() {
    let mut world = World::start("input=1&output=1", 3).await;
    let much: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
    let stdin = world.runtime.id("stdin");
    let said = async {
        let client = &mut world.client;
        soon(client.send(Message::binary([&[0], much.as_slice()].concat()))).await.expect("a long message");
        let part = |opcode, fin, bytes: &[u8]| {
            let mut frame = Frame::message(bytes.to_vec(), OpCode::Data(opcode), fin);
            *frame.header_mut() = FrameHeader { is_final: fin, ..frame.header().clone() };
            Message::Frame(frame)
        };
        for message in [
            part(Data::Text, false, b"\0in "),
            part(Data::Continue, false, b""),
            part(Data::Continue, false, b"parts "),
            part(Data::Continue, true, b"of text"),
            Message::binary(Vec::new()),
            Message::binary(vec![9, 1, 2]),
            Message::binary(vec![255, 0]),
        ] {
            soon(client.send(message)).await.expect("a message");
        }
    };
    let ((), heard) = tokio::join!(said, world.runtime.hear_all(stdin));
    assert!(heard == [much.as_slice(), b"in parts of text"].concat());
    world.ends("", SUCCESS).await;
}

#[tokio::test]
async fn long_outputs_come_whole_and_in_order() {
    let mut world = World::start("output=1", 2).await;
    let much: Vec<u8> = (0..2_000_000u32).map(|number| (number % 241) as u8).collect();
    let saying = async {
        for part in much.chunks(100_000) {
            world.runtime.say("stdout", part).await;
        }
    };
    let hearing = async {
        let mut all = Vec::new();
        while all.len() < much.len() {
            let message = hear(&mut world.client).await;
            assert_eq!(message[0], 1);
            all.extend_from_slice(&message[1..]);
        }
        all
    };
    let ((), heard) = soon(async { tokio::join!(saying, hearing) }).await;
    assert!(heard == much);
    world.ends("", SUCCESS).await;
}

#[tokio::test]
async fn a_runtime_that_refuses_is_quoted() {
    let internal = |why: &str| {
        format!(
            "\u{3}{{\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"Internal error occurred: {why}\",\
             \"reason\":\"InternalError\",\"details\":{{\"causes\":[{{\"message\":\"{why}\"}}]}},\"code\":500}}"
        )
    };
    let cases = [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n nope \n", "unable to upgrade connection: nope"),
        (
            "HTTP/1.1 500 X\r\nContent-Length: 17\r\n\r\n{\"message\":\"bad\"}",
            "unable to upgrade connection: bad",
        ),
        (
            "HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n",
            "unable to upgrade connection: empty server response",
        ),
        (
            "HTTP/1.1 302 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
            "error sending request: redirect not allowed",
        ),
    ];
    for (answer, why) in cases {
        let runtime = Runtime::start().await;
        let kubelet = Kubelet::start(runtime.url("exec")).await;
        let target = "/attach/default/web/app?input=1";
        let (mut client, _stream) =
            tokio::join!(kubelet.websocket(target, "v5.channel.k8s.io"), runtime.answer(answer));
        assert_eq!(hear(&mut client).await, [3]);
        assert_eq!(String::from_utf8(hear(&mut client).await).expect("UTF-8"), internal(why));
        closes(&mut client).await;
        kubelet.rests().await;
    }
}

#[tokio::test]
async fn the_runtime_is_offered_all_protocols() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let opening = kubelet.websocket("/exec/default/web/app?output=1", "v5.channel.k8s.io");
    let (_client, (head, _)) = tokio::join!(opening, runtime.request());
    let offered = head.lines().filter_map(|line| line.strip_prefix("x-stream-protocol-version: "));
    let all = [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
        "v3.channel.k8s.io",
        "v2.channel.k8s.io",
        "channel.k8s.io",
    ];
    assert_eq!(offered.collect::<Vec<_>>(), all);
    assert_eq!((header(&head, "upgrade"), header(&head, "connection")), (Some("SPDY/3.1"), Some("Upgrade")));
}

#[tokio::test]
async fn a_runtime_that_vanishes_is_no_success() {
    let mut world = World::start("output=1", 2).await;
    world.runtime.say("stdout", b"half of ").await;
    drop(world.runtime);
    assert_eq!(hear(&mut world.client).await, b"\x01half of ");
    let status = String::from_utf8(hear(&mut world.client).await).expect("UTF-8");
    assert!(status.contains(r#""status":"Failure""#) && status.contains("closed the connection"), "{status}");
    closes(&mut world.client).await;
    world.kubelet.rests().await;
}

#[tokio::test]
async fn a_runtime_that_speaks_something_else_is_no_success() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let answer = format!("{SPDY}\u{7f}\u{7f}GET / HTTP/1.1\r\n\r\n");
    let target = "/exec/default/web/app?output=1";
    let (mut client, (_, stream)) =
        tokio::join!(kubelet.websocket(target, "v5.channel.k8s.io"), runtime.answer(&answer));
    drop(stream);
    assert_eq!(hear(&mut client).await, [1]);
    let status = String::from_utf8(hear(&mut client).await).expect("UTF-8");
    assert!(status.contains(r#""reason":"InternalError""#), "{status}");
    kubelet.rests().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_session() {
    let World { kubelet, client, mut runtime } = World::start("input=1&output=1", 3).await;
    drop(client);
    assert_eq!(drain(&mut runtime.stream).await, b"");
    kubelet.rests().await;

    let World { kubelet, mut client, mut runtime } = World::start("input=1&output=1", 3).await;
    soon(client.close(None)).await.expect("goodbye");
    closes(&mut client).await;
    assert_eq!(drain(&mut runtime.stream).await, b"");
    kubelet.rests().await;
}

#[tokio::test]
async fn a_close_marker_that_makes_no_sense_ends_the_session() {
    for marker in [&[255][..], &[255, 0, 0], &[255, 5]] {
        let mut world = World::start("input=1&output=1", 3).await;
        world.say(marker).await;
        closes(&mut world.client).await;
        assert_eq!(drain(&mut world.runtime.stream).await, b"");
        world.kubelet.rests().await;
    }
}

#[tokio::test]
async fn who_writes_to_a_slow_reader_waits() {
    let world = World::start("input=1&output=1", 3).await;
    // A data frame that is longer than all that will ever be sent of it.
    let stdout = world.runtime.id("stdout");
    let head = [&stdout.to_be_bytes()[..], &0x00ff_ffffu32.to_be_bytes()].concat();
    let frame = [head, vec![7; 0x00ff_ffff]].concat();
    let written = fill(&world.runtime.stream, &frame).await;
    assert!(written < 48 << 20);
    // The other way, the same.
    let message = [[0x82, 0xfe, 0xea, 0x60, 0, 0, 0, 0].as_slice(), &[0; 60000]].concat();
    fill(world.client.get_ref(), &message).await;
    drop(world.client);
    world.kubelet.rests().await;
}

//! Clients that speak to the runtime itself.

use tokio::io::AsyncWriteExt;

use super::kubelet::{Kubelet, header, soon};
use super::runtime::{Runtime, SPDY, drain, take};
use super::watched::{fill, vanish};

const REQUEST: &str = "POST /exec/default/web/app?output=1 HTTP/1.1\nConnection: Upgrade\nUpgrade: SPDY/3.1\n\
                       X-Stream-Protocol-Version: v4.channel.k8s.io\nX-Stream-Protocol-Version: v3.channel.k8s.io\n\
                       X-Forwarded-For: 10.0.0.1\nAuthorization: Bearer secret\nContent-Length: 0";

/// A client and the runtime, connected.
async fn connected(kubelet: &Kubelet, runtime: &Runtime) -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let (client, server) = tokio::join!(kubelet.ask(REQUEST), runtime.answer(SPDY));
    assert!(client.0.starts_with("HTTP/1.1 101 "), "{}", client.0);
    (client.1, server.1)
}

#[tokio::test]
async fn the_runtime_hears_what_the_client_said_but_not_its_token() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (client, server) = tokio::join!(kubelet.ask(REQUEST), runtime.answer(SPDY));
    let heard = server.0.to_lowercase();
    assert!(heard.starts_with("post /exec/token http/1.1\r\n"), "{heard}");
    for line in [
        "connection: upgrade\r\n",
        "upgrade: spdy/3.1\r\n",
        "x-stream-protocol-version: v4.channel.k8s.io\r\n",
        "x-stream-protocol-version: v3.channel.k8s.io\r\n",
        "x-forwarded-for: 10.0.0.1, 127.0.0.1\r\n",
        "host: node-1\r\n",
    ] {
        assert!(heard.contains(line), "{line:?} is not in {heard}");
    }
    assert!(!heard.contains("secret"), "{heard}");
    assert_eq!(header(&client.0, "x-stream-protocol-version"), Some("v4.channel.k8s.io"));
    assert_eq!(header(&client.0, "upgrade"), Some("SPDY/3.1"));
}

#[tokio::test]
async fn a_token_among_the_websocket_protocols_stays_here() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let request = "GET /exec/default/web/app?output=1 HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\n\
                   Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io";
    let (_, (heard, _)) = tokio::join!(kubelet.ask(request), runtime.answer(SPDY));
    assert_eq!(header(&heard, "sec-websocket-protocol"), Some("v4.channel.k8s.io"));
}

#[tokio::test]
async fn v5_and_tunnels_go_to_the_runtime_where_websockets_are_off() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::with(Ok(runtime.url("exec")), false).await;
    let websocket = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Protocol:";
    for (target, protocol) in [
        ("/exec/default/web/app?output=1", "v5.channel.k8s.io"),
        ("/portForward/default/web?port=80", "SPDY/3.1+portforward.k8s.io"),
    ] {
        let request = format!("GET {target} HTTP/1.1\n{websocket} {protocol}");
        let (_, (heard, _)) = tokio::join!(kubelet.ask(&request), runtime.answer(SPDY));
        assert_eq!(header(&heard, "sec-websocket-protocol"), Some(protocol));
    }
}

#[tokio::test]
async fn bytes_go_both_ways_also_those_that_come_early() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let answer = format!("{SPDY}early from the runtime");
    let (client, server) =
        tokio::join!(kubelet.ask_with(REQUEST, b"early from the client"), runtime.answer(&answer));
    let (mut client, mut server) = (client.1, server.1);
    assert_eq!(take(&mut server, 21).await, b"early from the client");
    assert_eq!(take(&mut client, 22).await, b"early from the runtime");
    let much: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let (mut client_read, mut client_write) = client.split();
    let (mut server_read, mut server_write) = server.split();
    let copy = async |read: &mut tokio::net::tcp::ReadHalf<'_>| {
        let mut bytes = vec![0; much.len()];
        tokio::io::AsyncReadExt::read_exact(read, &mut bytes).await.expect("bytes");
        bytes == much
    };
    let all = async {
        tokio::join!(
            async { client_write.write_all(&much).await.is_ok() },
            async { server_write.write_all(&much).await.is_ok() },
            copy(&mut client_read),
            copy(&mut server_read),
        )
    };
    assert_eq!(soon(all).await, (true, true, true, true));
}

#[tokio::test]
async fn the_end_of_one_side_is_the_end_of_both() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (mut client, mut server) = connected(&kubelet, &runtime).await;
    server.write_all(b"the last words").await.expect("bytes");
    drop(server);
    assert_eq!(drain(&mut client).await, b"the last words");
    kubelet.rests().await;

    let (mut client, mut server) = connected(&kubelet, &runtime).await;
    client.write_all(b"goodbye").await.expect("bytes");
    drop(client);
    assert_eq!(drain(&mut server).await, b"goodbye");
    kubelet.rests().await;
}

#[tokio::test]
async fn who_writes_to_a_slow_reader_waits_and_nothing_is_lost() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (mut client, server) = connected(&kubelet, &runtime).await;
    let written = fill(&server, &[7; 64 << 10]).await;
    let reading = async { take(&mut client, written).await.iter().all(|byte| *byte == 7) };
    assert!(soon(reading).await);
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_while_the_runtime_does_not_read() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (client, _server) = connected(&kubelet, &runtime).await;
    fill(&client, &[7; 64 << 10]).await;
    vanish(&client);
    drop(client);
    kubelet.rests().await;
}

#[tokio::test]
async fn a_runtime_that_vanishes_is_noticed_while_the_client_does_not_read() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (client, server) = connected(&kubelet, &runtime).await;
    fill(&server, &[7; 64 << 10]).await;
    drop((server, client));
    kubelet.rests().await;
}

#[tokio::test]
async fn sessions_end_with_the_server() {
    let runtime = Runtime::start().await;
    let kubelet = Kubelet::start(runtime.url("exec")).await;
    let (mut client, mut server) = connected(&kubelet, &runtime).await;
    drop(kubelet);
    assert_eq!(drain(&mut client).await, b"");
    assert_eq!(drain(&mut server).await, b"");
}

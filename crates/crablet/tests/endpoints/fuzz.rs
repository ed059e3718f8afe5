//! Thousands of requests that no client would send, byte for byte from a fixed seed. The agent lives on, takes no more
//! memory for it, and shows no file that it is not asked to show.

use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::{METHODS, PATHS};
use super::client::Door;
use super::world::{FRIEND, OURS, World};

const SEED: u64 = 7;
const THREADS: u64 = 4;
const REQUESTS: usize = 500;
/// What the agent may have more of afterwards: far less than was sent.
const MORE_KB: u64 = 96 << 10;
/// What nobody may get to see.
const CANARY: &str = "a-canary-that-nobody-may-hear";

/// How long a request that may have no answer is listened to.
const A_MOMENT: Duration = Duration::from_millis(100);

pub fn survive(world: &World) -> Result<()> {
    let side = world.sides().iter().find(|side| side.name == OURS).context("no node of ours")?;
    let node = side.node.as_ref().context("it does not run")?;
    let canary = world.folder().join("canary");
    fs::write(&canary, CANARY)?;
    let friend = world.credentials.iter().find(|one| one.name == FRIEND).context("no friend")?;
    let (door, token) = (world.door(side, friend)?, friend.token.clone().unwrap_or_default());
    let resident = || resident_kb(node.kubelet().pid());
    // Caches are filled and buffers grown once.
    storm(&door, &token, &canary.to_string_lossy(), side.name, SEED, REQUESTS / 4)?;
    let before = resident()?;
    thread::scope(|scope| {
        let storms: Vec<_> = (1..=THREADS)
            .map(|number| {
                let (door, token, canary) = (&door, &token, canary.to_string_lossy());
                scope.spawn(move || storm(door, token, &canary, side.name, SEED + number, REQUESTS))
            })
            .collect();
        storms.into_iter().try_for_each(|storm| storm.join().expect("no panic in there"))
    })?;
    hold_much(&door, &token)?;
    let mut connection = door.open()?;
    connection.send(
        format!("GET /healthz HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {token}\r\n\r\n").as_bytes(),
    )?;
    ensure!(connection.receive("GET")?.text() == "ok", "the agent is not well after all that");
    node.kubelet().check()?;
    let after = resident()?;
    eprintln!("memory of the agent: {before} kB before, {after} kB after");
    ensure!(after < before + MORE_KB, "it grew from {before} kB to {after} kB");
    Ok(())
}

fn storm(door: &Door, token: &str, canary: &str, node: &str, seed: u64, count: usize) -> Result<()> {
    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let request = request(&mut dice, token, canary, node);
        let mut connection = door.open_for(A_MOMENT)?;
        // The server may have had enough before all is sent, and may rightly say nothing.
        if connection.send(&request).is_err() {
            continue;
        }
        let mut answer = Vec::new();
        let _ = connection.take(256 << 10).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let asked = String::from_utf8_lossy(&request).replace(token, "TOKEN");
        ensure!(!answer.contains(CANARY), "{asked:?}\nshows the canary:\n{answer}");
        ensure!(!answer.contains("root:x:0:0:"), "{asked:?}\nshows a file:\n{answer}");
    }
    Ok(())
}

fn request(dice: &mut fastrand::Rng, token: &str, canary: &str, node: &str) -> Vec<u8> {
    let method = match dice.u8(..10) {
        0 => "BREW",
        1 => "CONNECT",
        _ => METHODS[dice.usize(..METHODS.len())],
    };
    let mut target = PATHS[dice.usize(..PATHS.len())].path.replace("NS", node);
    if dice.bool() {
        target = bent(dice, &target, canary);
    }
    let version = if dice.u8(..20) == 0 { "HTTP/1.0" } else { "HTTP/1.1" };
    let mut request = format!("{method} {target} {version}\r\nHost: node\r\n").into_bytes();
    if dice.u8(..10) > 0 {
        request.extend_from_slice(format!("Authorization: Bearer {token}\r\n").as_bytes());
    }
    for _ in 0..dice.usize(..6) {
        request.extend_from_slice(&header(dice));
    }
    // Otherwise the server waits for more, and this test for it.
    if dice.u8(..8) > 0 {
        request.extend_from_slice(b"Connection: close\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let body = dice.usize(..512);
    request.extend((0..body).map(|_| dice.u8(..)));
    if dice.u8(..8) == 0 {
        request.truncate(dice.usize(..request.len()));
    }
    if dice.u8(..8) == 0 {
        let place = dice.usize(..request.len().max(1));
        if let Some(byte) = request.get_mut(place) {
            *byte = dice.u8(..);
        }
    }
    request
}

/// A path with something in it that should not be there.
fn bent(dice: &mut fastrand::Rng, target: &str, canary: &str) -> String {
    let up =
        ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "..\\", "....//", "%c0%ae%c0%ae/", "..;/", "/./"];
    let ups = up[dice.usize(..up.len())].repeat(dice.usize(1..12));
    let file = if dice.bool() { canary.trim_start_matches('/') } else { "etc/passwd" };
    match dice.u8(..8) {
        0 => format!("/logs/{ups}{file}"),
        1 => format!("/logs/{}", canary.replace('/', "%2f")),
        2 => format!("/logs//{canary}"),
        3 => format!("/logs/?query={ups}{file}"),
        4 => format!("/containerLogs/{ups}{file}"),
        5 => format!("{target}/{}", "x/".repeat(dice.usize(..2000))),
        6 => format!("{target}?{}", "a=%41&".repeat(dice.usize(..20_000))),
        _ => {
            let mut bytes: Vec<char> = target.chars().collect();
            let odd = ['%', '\0', '/', '?', '#', ' ', 'ü', ';', '{', '*', '\u{7f}'];
            bytes.insert(dice.usize(..=bytes.len()), odd[dice.usize(..odd.len())]);
            bytes.into_iter().collect()
        }
    }
}

fn header(dice: &mut fastrand::Rng) -> Vec<u8> {
    const HEADERS: &[&str] = &[
        "Connection: Upgrade",
        "Connection: keep-alive, Upgrade",
        "Upgrade: SPDY/3.1",
        "Upgrade: websocket",
        "Upgrade: h2c",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Key: x",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io",
        "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA, x",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "Content-Length: 3",
        "Content-Length: 18446744073709551615",
        "Content-Length: -1",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Expect: 100-continue",
        "Range: bytes=0-10,5-",
        "Range: bytes=-99999999999999999999",
        "Accept: application/json;as=Flagz;v=v1beta1;g=config.k8s.io",
        "Accept: ;;;,,,q=9",
        "Accept-Encoding: gzip",
        "If-Modified-Since: yesterday",
        "Authorization: Basic eDp5",
        "Impersonate-User: system:admin",
        "X-Forwarded-For: 1.2.3.4",
    ];
    let mut line = match dice.u8(..12) {
        0 => format!("X-Long: {}", "y".repeat(dice.usize(..200_000))).into_bytes(),
        1 => (0..dice.usize(..64)).map(|_| dice.u8(..)).collect(),
        _ => HEADERS[dice.usize(..HEADERS.len())].as_bytes().to_vec(),
    };
    line.extend_from_slice(b"\r\n");
    line
}

/// Many large things at once, by those who say who they are and by those who do not.
fn hold_much(door: &Door, token: &str) -> Result<()> {
    let mut held = Vec::new();
    for number in 0..150 {
        let mut connection = door.open_for(A_MOMENT)?;
        let authorization =
            if number % 2 == 0 { format!("Authorization: Bearer {token}\r\n") } else { String::new() };
        let head = format!("POST /pods HTTP/1.1\r\nHost: node\r\n{authorization}X-Long: ");
        let long = "y".repeat(if number % 3 == 0 { 800_000 } else { 60_000 });
        let _ = connection.send(head.as_bytes()).and_then(|()| connection.send(long.as_bytes()));
        held.push(connection);
    }
    Ok(())
}

fn resident_kb(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no memory at all")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

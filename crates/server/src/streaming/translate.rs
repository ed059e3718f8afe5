//! A client of `v5.channel.k8s.io`: WebSocket on its side, SPDY on the runtime's.
//!
//! ```text
//!  client ── frames ──> input::run ── stdin, resize ──> runtime
//!         <── frames ── output::run <── stdout, stderr, error ──
//! ```
//!
//! Each half reads one side and writes the other, one block at a time, so that a slow reader stops whoever writes to it and
//! nobody else. What one half owes the other's reader, answers to pings, is left for it in [`Owed`].

mod input;
mod output;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use crablet_cri::Streams;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use super::client::{self, Client, Watch};
use super::relay::{IDLE, Quiet};
use super::runtime::{self, Address, Answer};
use super::sessions::Sessions;
use super::status::Outcome;
use super::websocket::{self, BadHandshake, CloseCode, Pongs};
use super::{Opened, failed, head, proxy, spdy};

/// Most wanted first. The runtimes of today choose v4.
const PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// How long a status may take to reach the client.
const STATUS: Duration = Duration::from_secs(10);

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS_CHANNEL: u8 = 3;

/// What a stream is for. The order is the one in which they are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Error,
    Stdin,
    Stdout,
    Stderr,
    Resize,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Resize => "resize",
        }
    }

    fn of(wanted: Streams, protocol: &str) -> Vec<Self> {
        // Terminals have a size since v3.
        let resizes = matches!(protocol, "v5.channel.k8s.io" | "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let roles = [
            (Self::Error, true),
            (Self::Stdin, wanted.stdin),
            (Self::Stdout, wanted.stdout),
            (Self::Stderr, wanted.stderr),
            (Self::Resize, wanted.tty && resizes),
        ];
        roles.into_iter().filter(|(_, wanted)| *wanted).map(|(role, _)| role).collect()
    }
}

/// The stream with a role, if there is one.
fn stream_of(roles: &[Role], role: Role) -> Option<u32> {
    let position = roles.iter().position(|other| *other == role)?;
    u32::try_from(position).ok().map(|position| position * 2 + 1)
}

/// The role of a stream.
fn role_of(roles: &[Role], stream: u32) -> Option<usize> {
    let position = usize::try_from(stream / 2).ok()?;
    (stream % 2 == 1 && position < roles.len()).then_some(position)
}

/// What the reader of one side leaves for the writer of the same side.
#[derive(Default)]
struct Owed {
    pongs: Pongs,
    ping: Mutex<Option<u32>>,
    news: Notify,
    /// Goes up with everything that moves.
    moved: AtomicU64,
}

impl Owed {
    fn answer_ping(&self, id: u32) {
        *self.ping.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        self.news.notify_one();
    }

    /// Cancel-safe: nothing is awaited after the id has been taken.
    async fn ping(&self) -> u32 {
        loop {
            if let Some(id) = self.ping.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return id;
            }
            self.news.notified().await;
        }
    }

    fn moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Until nothing has moved for long.
    async fn silence(&self) {
        let mut quiet = Quiet::new();
        loop {
            tokio::time::sleep(IDLE).await;
            if quiet.is_over(self.moved.load(Ordering::Relaxed)) {
                return;
            }
        }
    }
}

pub fn serve(address: &str, mut request: Request, wanted: Streams, sessions: &Sessions) -> Opened {
    let response = websocket::accept(&request, Some(head::V5)).map_err(BadHandshake::bare)?;
    let place = sessions.place()?;
    let address = Address::parse(address).map_err(|why| failed(&why))?;
    let upgrade = proxy::take_upgrade(&mut request)?;
    sessions.begin(place, async move {
        if let Some(client) = client::upgraded(upgrade).await {
            session(client, &address, wanted).await;
        }
    });
    Ok(response)
}

async fn session(client: Client, address: &Address, wanted: Streams) {
    let watch = Watch::of(&client.socket);
    let (from_client, to_client) = tokio::io::split(client.socket);
    let mut writer = websocket::Writer::new(to_client);
    // Says that the connection stands, on the first channel that the client listens to.
    let first = match (wanted.stdout, wanted.stderr) {
        (true, _) => STDOUT,
        (false, true) => STDERR,
        (false, false) => STATUS_CHANNEL,
    };
    if !matches!(tokio::time::timeout(STATUS, writer.message(&[first], &[])).await, Ok(Ok(()))) {
        return;
    }
    let runtime = match connect(address).await {
        Ok(runtime) => runtime,
        Err(why) => return end(writer, &Outcome::Failed(why)).await,
    };
    let roles = Role::of(wanted, &runtime.protocol);
    let owed = Owed::default();
    let (open, opened) = oneshot::channel();
    let (from_runtime, to_runtime) = runtime.stream.into_split();
    let ended = {
        let output = output::Output {
            from: spdy::Reader::new(from_runtime, &runtime.early),
            to: &mut writer,
            owed: &owed,
            roles: &roles,
            protocol: &runtime.protocol,
        };
        let input = input::Input {
            from: websocket::Reader::new(from_client, &client.early),
            to: to_runtime,
            watch: &watch,
            owed: &owed,
            roles: &roles,
        };
        tokio::select! {
            biased;
            ended = output.run(open) => ended.map_err(|_| CloseCode::Normal),
            code = input.run(opened) => Err(code),
            () = owed.silence() => Err(CloseCode::Normal),
        }
    };
    match ended {
        Ok(outcome) => end(writer, &outcome).await,
        Err(code) => writer.end(code).await,
    }
}

type ToClient = websocket::Writer<tokio::io::WriteHalf<client::Socket>>;

async fn end(mut writer: ToClient, outcome: &Outcome) {
    let status = outcome.to_json();
    let _ = tokio::time::timeout(STATUS, writer.message(&[STATUS_CHANNEL], &status)).await;
    writer.end(CloseCode::Normal).await;
}

struct Runtime {
    stream: TcpStream,
    early: Bytes,
    /// The one that it chose.
    protocol: String,
}

async fn connect(address: &Address) -> Result<Runtime, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    for protocol in PROTOCOLS {
        headers.append(head::PROTOCOL_VERSION, HeaderValue::from_static(protocol));
    }
    match runtime::ask(address, Method::POST, headers).await? {
        Answer::Switched { head, stream, early } => {
            if !is_spdy(&head.headers) {
                return Err("unable to upgrade connection: empty server response".to_owned());
            }
            let protocol = head.headers.get(head::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
            Ok(Runtime { stream, early, protocol: protocol.unwrap_or_default().trim().to_owned() })
        }
        Answer::Other { head, .. } if head.status.is_redirection() => {
            Err("error sending request: redirect not allowed".to_owned())
        }
        Answer::Other { body, .. } => Err(format!("unable to upgrade connection: {}", message_of(&body))),
    }
}

/// Whether an answer's head says that SPDY follows.
pub fn is_spdy(headers: &HeaderMap) -> bool {
    let says = |name, wanted: &str| {
        headers.get(name).is_some_and(|value: &HeaderValue| head::contains(value.as_bytes(), wanted))
    };
    says(header::CONNECTION, "upgrade") && says(header::UPGRADE, "spdy/3.1")
}

/// What an answer that is no connection has to say: as JSON, or as a text.
fn message_of(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Said {
        #[serde(default)]
        message: String,
        #[serde(default)]
        error: String,
    }
    let said = serde_json::from_slice::<Said>(body).ok();
    let said = said.into_iter().flat_map(|said| [said.message, said.error]);
    let text = String::from_utf8_lossy(body).into_owned();
    let said = said.chain([text]).map(|text| text.trim().to_owned()).find(|text| !text.is_empty());
    said.unwrap_or_else(|| "empty server response".to_owned())
}

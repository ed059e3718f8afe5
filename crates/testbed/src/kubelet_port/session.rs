//! One session: bytes to the program, bytes from it, and how it ended.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::Mutex;

use super::wanted::{Channel, Protocol, Wanted};
use super::{spdy, websocket};

pub(super) type Stream = TokioIo<Upgraded>;
pub(super) type Input = ReadHalf<Stream>;
pub(super) type Output = WriteHalf<Stream>;

/// How a session ended, and all that it said.
#[derive(Default)]
pub struct Outcome {
    pub output: Vec<u8>,
    pub error: Vec<u8>,
    /// A `Status` object in JSON; empty if the connection ended before it came.
    status: Vec<u8>,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        let (output, error, status) = (text(&self.output), text(&self.error), text(&self.status));
        write!(f, "output {output:?}, error {error:?}, status {status}")
    }
}

impl Outcome {
    /// What the program returned, or what went wrong instead.
    pub fn exit_code(&self) -> Result<i32> {
        let status: Value = serde_json::from_slice(&self.status)
            .with_context(|| format!("no status: `{}`", String::from_utf8_lossy(&self.status)))?;
        if status["status"] == "Success" {
            return Ok(0);
        }
        let code = &status["details"]["causes"][0]["message"];
        match (status["reason"].as_str(), code.as_str().and_then(|code| code.parse().ok())) {
            (Some("NonZeroExitCode"), Some(code)) => Ok(code),
            _ => bail!("it failed: {status}"),
        }
    }

    pub fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.error).into_owned()
    }
}

/// A session under way. Dropping both halves closes the connection.
pub struct Session {
    pub talker: Talker,
    pub listener: Listener,
}

/// What is said on one channel; `None` for a message that is only of use to the wire.
pub(super) enum Event {
    Data(Channel, Bytes),
    Closed(Channel),
    Nothing,
    End,
}

pub(super) enum Wire<S, W> {
    Spdy(S),
    WebSocket(W),
}

/// The half that speaks to the program.
#[derive(Clone)]
pub struct Talker(Arc<Mutex<Wire<spdy::Writer, websocket::Writer>>>);

/// The half that hears it.
pub struct Listener {
    wire: Wire<spdy::Reader, websocket::Reader>,
    talker: Talker,
    /// Ways out that the program has not closed yet, as far as the wire tells.
    open: Vec<Channel>,
    outcome: Outcome,
}

impl Session {
    pub(super) async fn begin(protocol: Protocol, stream: Stream, wanted: &Wanted) -> Result<Session> {
        let (input, output) = tokio::io::split(stream);
        let (reader, writer) = match protocol {
            Protocol::Spdy => {
                let mut writer = spdy::Writer::new(output);
                let streams = writer.open(wanted.channels()).await?;
                (Wire::Spdy(spdy::Reader::new(input, streams)), Wire::Spdy(writer))
            }
            Protocol::WebSocketV4 | Protocol::WebSocketV5 => (
                Wire::WebSocket(websocket::Reader::new(input)),
                Wire::WebSocket(websocket::Writer::new(output, protocol == Protocol::WebSocketV5)),
            ),
        };
        let talker = Talker(Arc::new(Mutex::new(writer)));
        let open = wanted
            .channels()
            .filter(|channel| !matches!(channel, Channel::Input | Channel::Resize))
            .collect();
        let listener = Listener { wire: reader, talker: talker.clone(), open, outcome: Outcome::default() };
        Ok(Session { talker, listener })
    }

    /// All of it, from here to the end.
    pub async fn finish(self) -> Result<Outcome> {
        self.listener.until_its_end().await
    }
}

impl Talker {
    pub async fn send(&self, bytes: &[u8]) -> Result<()> {
        self.send_to(Channel::Input, bytes).await
    }

    pub async fn resize(&self, width: u16, height: u16) -> Result<()> {
        self.send_to(Channel::Resize, format!("{{\"Width\":{width},\"Height\":{height}}}").as_bytes()).await
    }

    async fn send_to(&self, channel: Channel, bytes: &[u8]) -> Result<()> {
        match &mut *self.0.lock().await {
            Wire::Spdy(wire) => wire.send(channel, bytes).await,
            Wire::WebSocket(wire) => wire.send(channel, bytes).await,
        }
    }

    /// The program sees the end of its input; its output goes on.
    pub async fn close_input(&self) -> Result<()> {
        match &mut *self.0.lock().await {
            Wire::Spdy(wire) => wire.close(Channel::Input).await,
            Wire::WebSocket(wire) => wire.close(Channel::Input).await,
        }
    }

    /// Whatever the wire needs to have said for itself.
    async fn answer(&self, pong: Pong) -> Result<()> {
        match (&mut *self.0.lock().await, pong) {
            (Wire::Spdy(wire), Pong::Spdy(id)) => wire.pong(id).await,
            (Wire::WebSocket(wire), Pong::WebSocket(bytes)) => wire.pong(&bytes).await,
            _ => Ok(()),
        }
    }
}

/// An answer that the wire owes to the other side.
pub(super) enum Pong {
    Spdy(u32),
    WebSocket(Bytes),
}

impl Listener {
    /// Waits until the program has said this much on its standard output, and gives all that it said so far.
    pub async fn until(&mut self, done: impl Fn(&[u8]) -> bool) -> Result<&[u8]> {
        while !done(&self.outcome.output) {
            if !self.step().await? {
                bail!("the session ended after {:?}", self.outcome);
            }
        }
        Ok(&self.outcome.output)
    }

    pub async fn until_its_end(mut self) -> Result<Outcome> {
        while self.step().await? {}
        Ok(self.outcome)
    }

    /// Counts what comes on standard output and forgets it: for transfers that nobody looks at.
    pub async fn count(mut self, mut tell: impl FnMut(usize)) -> Result<Outcome> {
        while self.step().await? {
            tell(self.outcome.output.len());
            self.outcome.output.clear();
        }
        Ok(self.outcome)
    }

    /// Takes one message; `false` at the end.
    async fn step(&mut self) -> Result<bool> {
        if self.open.is_empty() {
            return Ok(false);
        }
        let (event, pong) = match &mut self.wire {
            Wire::Spdy(wire) => wire.next().await?,
            Wire::WebSocket(wire) => wire.next().await?,
        };
        if let Some(pong) = pong {
            // Not waited for: the other half may be in the middle of words that are only taken once we have listened.
            // Who has gone already needs no answer.
            let talker = self.talker.clone();
            tokio::spawn(async move { talker.answer(pong).await });
        }
        match event {
            Event::End => return Ok(false),
            Event::Nothing => {}
            Event::Closed(channel) => self.open.retain(|open| *open != channel),
            Event::Data(Channel::Output, bytes) => self.outcome.output.extend_from_slice(&bytes),
            Event::Data(Channel::Error, bytes) => self.outcome.error.extend_from_slice(&bytes),
            Event::Data(Channel::Status, bytes) => self.outcome.status.extend_from_slice(&bytes),
            Event::Data(Channel::Input | Channel::Resize, _) => bail!("the kubelet speaks on a way in"),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_an_exit_code() {
        let code = |text: &str| Outcome { status: text.into(), ..Outcome::default() }.exit_code();
        assert_eq!(code(r#"{"metadata":{},"status":"Success"}"#).unwrap(), 0);
        let failure = r#"{"status":"Failure","reason":"NonZeroExitCode",
                          "details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#;
        assert_eq!(code(failure).unwrap(), 42);
        assert!(code("").is_err());
    }
}

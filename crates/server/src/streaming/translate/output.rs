//! From the runtime to the client: outputs as they come, and how the command ended once they have ended.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::oneshot;

use super::{Owed, Role, STDERR, STDOUT, ToClient, role_of};
use crate::streaming::spdy::{Frame, Reader};
use crate::streaming::status::Outcome;

/// How long the runtime may take to take the streams.
const OPENING: Duration = Duration::from_secs(30);
/// A status is a few hundred bytes.
const MAX_STATUS_BYTES: usize = 64 << 10;

pub struct Output<'a> {
    pub from: Reader<OwnedReadHalf>,
    pub to: &'a mut ToClient,
    pub owed: &'a Owed,
    pub roles: &'a [Role],
    pub protocol: &'a str,
}

/// What is known of the streams.
struct Seen {
    replied: Vec<bool>,
    /// The runtime sends nothing on it any more.
    ended: Vec<bool>,
    status: Vec<u8>,
}

impl Output<'_> {
    /// Until the command has ended. `Err`: the client does not take any more.
    pub async fn run(mut self, open: oneshot::Sender<()>) -> io::Result<Outcome> {
        let count = self.roles.len();
        let mut seen = Seen { replied: vec![false; count], ended: vec![false; count], status: Vec::new() };
        let mut open = Some(open);
        let late = tokio::time::sleep(OPENING);
        tokio::pin!(late);
        loop {
            if seen.replied.iter().all(|replied| *replied)
                && let Some(open) = open.take()
            {
                let _ = open.send(());
            }
            if self.is_over(&seen) {
                return Ok(Outcome::of_error_stream(self.protocol, &seen.status));
            }
            // Every arm is cancel-safe: see there.
            let frame = tokio::select! {
                biased;
                payload = self.owed.pongs.owed() => {
                    self.to.pong(&payload).await?;
                    continue;
                }
                () = &mut late, if open.is_some() => {
                    return Ok(Outcome::Failed("Timeout occurred".to_owned()));
                }
                frame = self.from.next() => frame,
            };
            self.owed.moved();
            match frame {
                Err(bad) => return Ok(Outcome::Failed(format!("the container runtime's SPDY: {bad}"))),
                Ok(None) => return Ok(self.lost(&seen)),
                Ok(Some(frame)) => {
                    if let Some(outcome) = self.frame(frame, &mut seen).await? {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    async fn frame(&mut self, frame: Frame, seen: &mut Seen) -> io::Result<Option<Outcome>> {
        match frame {
            Frame::Data { stream, last, bytes } => {
                if let Some(position) = role_of(self.roles, stream) {
                    self.data(self.roles[position], bytes, seen).await?;
                    seen.ended[position] |= last;
                }
            }
            Frame::Reply { stream, last } => {
                if let Some(position) = role_of(self.roles, stream) {
                    seen.replied[position] = true;
                    seen.ended[position] |= last;
                }
            }
            Frame::Reset { stream } => {
                if let Some(position) = role_of(self.roles, stream) {
                    if !seen.replied[position] {
                        return Ok(Some(Outcome::Failed("Stream reset".to_owned())));
                    }
                    seen.ended[position] = true;
                }
            }
            Frame::Ping { id } => self.owed.answer_ping(id),
            Frame::GoAway => seen.ended.fill(true),
            Frame::Other => {}
        }
        Ok(None)
    }

    async fn data(&mut self, role: Role, bytes: Bytes, seen: &mut Seen) -> io::Result<()> {
        match role {
            _ if bytes.is_empty() => Ok(()),
            Role::Stdout => self.to.message(&[STDOUT], &bytes).await,
            Role::Stderr => self.to.message(&[STDERR], &bytes).await,
            Role::Error => {
                let room = MAX_STATUS_BYTES - seen.status.len();
                seen.status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                Ok(())
            }
            Role::Stdin | Role::Resize => Ok(()),
        }
    }

    /// Outputs first: what the command said comes before how it ended.
    fn is_over(&self, seen: &Seen) -> bool {
        let counts = |role: &Role| matches!(role, Role::Error | Role::Stdout | Role::Stderr);
        self.roles.iter().zip(&seen.ended).all(|(role, ended)| *ended || !counts(role))
    }

    /// The connection is over. Upstream calls that a success where nothing was said; here nobody is told that a command
    /// went well of which nobody knows.
    fn lost(&self, seen: &Seen) -> Outcome {
        if seen.status.is_empty() {
            return Outcome::Failed(
                "the container runtime closed the connection before it said how the command ended".to_owned(),
            );
        }
        Outcome::of_error_stream(self.protocol, &seen.status)
    }
}

//! From the client to the runtime: stdin, the terminal's size, and the end of stdin.

use bytes::{Buf, Bytes};
use tokio::io::AsyncRead;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;

use super::{Owed, Role, spdy, stream_of};
use crate::streaming::client::{Unwritten, Watch};
use crate::streaming::websocket::{CloseCode, Event, Reader};

const STDIN: u8 = 0;
const RESIZE: u8 = 4;
const CHANNELS: u8 = 5;
/// Followed by the channel that is closed.
const CLOSE: u8 = 255;

pub struct Input<'a, R> {
    pub from: Reader<R>,
    pub to: OwnedWriteHalf,
    pub watch: &'a Watch,
    pub owed: &'a Owed,
    pub roles: &'a [Role],
}

/// Where a message goes, which its first byte says.
#[derive(Default)]
struct Message {
    channel: Option<u8>,
    /// Of a close marker: how many bytes followed, and the first of them.
    closing: (usize, u8),
}

/// The client said something after which there is no going on, or goodbye.
struct Over;

impl<R: AsyncRead + Unpin> Input<'_, R> {
    /// Until the client has gone, one way or another. Nothing of it is read before the runtime has taken all streams: it drops
    /// what comes too early.
    pub async fn run(mut self, opened: oneshot::Receiver<()>) -> CloseCode {
        let names: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
        if self.write(&spdy::open_streams("streamtype", &names)).await.is_err() {
            return CloseCode::Normal;
        }
        if opened.await.is_err() {
            // The other half is at its end, and says why.
            return std::future::pending().await;
        }
        let mut stdin = stream_of(self.roles, Role::Stdin);
        let mut resize = stream_of(self.roles, Role::Resize);
        let mut message = Message::default();
        loop {
            // Both arms are cancel-safe: see there.
            let event = tokio::select! {
                biased;
                id = self.owed.ping() => {
                    if self.write(&spdy::ping(id)).await.is_err() {
                        return CloseCode::Normal;
                    }
                    continue;
                }
                event = self.from.next() => event,
            };
            self.owed.moved();
            let handled = match event {
                Err(_) => return CloseCode::Protocol,
                Ok(None | Some(Event::Close)) => return CloseCode::Normal,
                Ok(Some(Event::Pong)) => Ok(()),
                Ok(Some(Event::Ping(payload))) => {
                    self.owed.pongs.owe(payload);
                    Ok(())
                }
                Ok(Some(Event::Data { first, last, bytes, .. })) => {
                    self.data(&mut message, first, last, bytes, &mut stdin, &mut resize).await
                }
            };
            if handled.is_err() {
                return CloseCode::Normal;
            }
        }
    }

    async fn data(
        &mut self,
        message: &mut Message,
        first: bool,
        last: bool,
        mut bytes: Bytes,
        stdin: &mut Option<u32>,
        resize: &mut Option<u32>,
    ) -> Result<(), Over> {
        if first {
            let channel = (!bytes.is_empty()).then(|| bytes.get_u8());
            *message = Message { channel, closing: (0, 0) };
        }
        match message.channel {
            Some(STDIN) => self.send(stdin, &bytes).await,
            Some(RESIZE) => self.send(resize, &bytes).await,
            Some(CLOSE) => {
                if let ((0, _), Some(channel)) = (message.closing, bytes.first()) {
                    message.closing.1 = *channel;
                }
                message.closing.0 += bytes.len();
                if last { self.close(message.closing, stdin).await } else { Ok(()) }
            }
            // Clients have nothing to say on the others, and upstream passes over it.
            _ => Ok(()),
        }
    }

    async fn close(&mut self, (length, channel): (usize, u8), stdin: &mut Option<u32>) -> Result<(), Over> {
        if length != 1 || channel >= CHANNELS {
            return Err(Over);
        }
        if channel == STDIN
            && let Some(stream) = stdin.take()
        {
            return self.write(&spdy::data(stream, true, &[])).await;
        }
        Ok(())
    }

    async fn send(&mut self, stream: &Option<u32>, bytes: &[u8]) -> Result<(), Over> {
        match stream {
            Some(stream) if !bytes.is_empty() => self.write(&spdy::data(*stream, false, bytes)).await,
            _ => Ok(()),
        }
    }

    async fn write(&mut self, frame: &[u8]) -> Result<(), Over> {
        match self.watch.write(&mut self.to, frame).await {
            Err(Unwritten::ClientGone) => Err(Over),
            // The other half will see it too, and perhaps how the command ended before.
            Ok(()) | Err(Unwritten::RuntimeGone) => Ok(()),
        }
    }
}

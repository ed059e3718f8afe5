//! As much of WebSocket as a client of a kubelet needs. A message is one byte for the channel, and its data.

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::session::{Event, Input, Output, Pong};
use super::wanted::Channel;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The channel on which the fifth version tells that another one is closed.
const CLOSES: u8 = 255;
const CHUNK: usize = 32 * 1024;
/// More than a kubelet ever puts into a message.
const LONGEST: u64 = 16 * 1024 * 1024;

pub struct Writer {
    output: Output,
    can_close: bool,
}

impl Writer {
    pub fn new(output: Output, can_close: bool) -> Writer {
        Writer { output, can_close }
    }

    pub async fn send(&mut self, channel: Channel, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            self.frame(BINARY, &[&[channel as u8], chunk].concat()).await?;
        }
        Ok(())
    }

    pub async fn close(&mut self, channel: Channel) -> Result<()> {
        if !self.can_close {
            bail!("this version of the protocol cannot close a channel");
        }
        self.frame(BINARY, &[CLOSES, channel as u8]).await
    }

    pub async fn pong(&mut self, bytes: &[u8]) -> Result<()> {
        self.frame(PONG, bytes).await
    }

    /// Clients must mask what they send. Zeros are a mask, and leave the data as it is.
    async fn frame(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        let mut frame = vec![LAST | kind];
        match body.len() {
            short @ 0..126 => frame.push(MASKED | short as u8),
            length => {
                let Ok(length) = u16::try_from(length) else { bail!("a frame of {length} bytes") };
                frame.push(MASKED | 126);
                frame.extend(length.to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(body);
        self.output.write_all(&frame).await?;
        Ok(self.output.flush().await?)
    }
}

pub struct Reader {
    input: Input,
    /// A message whose end is still to come.
    message: BytesMut,
}

impl Reader {
    pub fn new(input: Input) -> Reader {
        Reader { input, message: BytesMut::new() }
    }

    pub async fn next(&mut self) -> Result<(Event, Option<Pong>)> {
        let mut head = [0; 2];
        if self.input.read_exact(&mut head).await.is_err() {
            return Ok((Event::End, None));
        }
        if head[1] & MASKED != 0 {
            bail!("the kubelet masks its messages");
        }
        let length = match head[1] {
            126 => u64::from(self.input.read_u16().await?),
            127 => self.input.read_u64().await?,
            short => u64::from(short),
        };
        if length > LONGEST {
            bail!("a message of {length} bytes");
        }
        let mut body = vec![0; length as usize];
        self.input.read_exact(&mut body).await?;
        match head[0] & 0x0f {
            CLOSE => Ok((Event::End, None)),
            PING => Ok((Event::Nothing, Some(Pong::WebSocket(Bytes::from(body))))),
            PONG => Ok((Event::Nothing, None)),
            CONTINUATION | TEXT | BINARY => {
                self.message.extend_from_slice(&body);
                if head[0] & LAST == 0 {
                    return Ok((Event::Nothing, None));
                }
                Ok((event(self.message.split().freeze())?, None))
            }
            other => bail!("a message of the unknown kind {other}"),
        }
    }
}

fn event(mut message: Bytes) -> Result<Event> {
    if message.is_empty() {
        bail!("a message without a channel");
    }
    let channel = message.split_to(1)[0];
    if channel == CLOSES {
        let closed = message.first().copied().and_then(Channel::of);
        return Ok(closed.map_or(Event::Nothing, Event::Closed));
    }
    match Channel::of(channel) {
        // Servers send an empty message first.
        Some(_) if message.is_empty() => Ok(Event::Nothing),
        Some(channel) => Ok(Event::Data(channel, message)),
        None => bail!("a message on the unknown channel {channel}"),
    }
}

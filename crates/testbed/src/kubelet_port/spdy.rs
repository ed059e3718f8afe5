//! As much of SPDY/3.1 as a client of a kubelet needs: it opens streams, reads and writes their data, answers pings.
//!
//! Headers are compressed with one zlib stream for the whole connection and a dictionary that both sides know. Ours are
//! put into stored blocks, which need no compressor: the dictionary is only named. Those of the answers are of no use to
//! a client and are not looked at, so nothing has to be expanded either.

use anyhow::{Result, bail};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::session::{Event, Input, Output, Pong};
use super::wanted::Channel;

/// A zlib header that names SPDY's dictionary by its checksum.
const ZLIB_WITH_DICTIONARY: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];
/// An empty stored block: what came before it is whole.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

const SYN_STREAM: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const FIN: u8 = 1;

/// Data frames carry at most this much of ours.
const CHUNK: usize = 32 * 1024;

/// Which stream is which channel.
type Streams = Vec<(u32, Channel)>;

pub struct Writer {
    output: Output,
    streams: Streams,
}

impl Writer {
    pub fn new(output: Output) -> Writer {
        Writer { output, streams: Streams::new() }
    }

    /// Opens a stream for each channel, in this order.
    pub async fn open(&mut self, channels: impl Iterator<Item = Channel>) -> Result<Streams> {
        let mut bytes = Vec::new();
        for (index, channel) in channels.enumerate() {
            let id = 2 * index as u32 + 1;
            self.streams.push((id, channel));
            let kind = match channel {
                Channel::Input => "stdin",
                Channel::Output => "stdout",
                Channel::Error => "stderr",
                Channel::Status => "error",
                Channel::Resize => "resize",
            };
            // Stream, associated stream, priority and slot; then the headers.
            let mut body = [id.to_be_bytes(), [0; 4]].concat();
            body.extend([0, 0]);
            if index == 0 {
                body.extend(ZLIB_WITH_DICTIONARY);
            }
            body.extend(stored(&headers(&[("streamtype", kind)])));
            bytes.extend(control(SYN_STREAM, &body));
        }
        self.output.write_all(&bytes).await?;
        self.output.flush().await?;
        Ok(self.streams.clone())
    }

    pub async fn send(&mut self, channel: Channel, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            self.data(channel, 0, chunk).await?;
        }
        Ok(())
    }

    pub async fn close(&mut self, channel: Channel) -> Result<()> {
        self.data(channel, FIN, &[]).await
    }

    pub async fn pong(&mut self, id: u32) -> Result<()> {
        self.output.write_all(&control(PING, &id.to_be_bytes())).await?;
        Ok(self.output.flush().await?)
    }

    async fn data(&mut self, channel: Channel, flags: u8, bytes: &[u8]) -> Result<()> {
        let Some((id, _)) = self.streams.iter().find(|(_, known)| *known == channel) else {
            bail!("{channel:?} was not asked for");
        };
        let mut frame = id.to_be_bytes().to_vec();
        frame.push(flags);
        frame.extend(&(bytes.len() as u32).to_be_bytes()[1..]);
        frame.extend(bytes);
        self.output.write_all(&frame).await?;
        Ok(self.output.flush().await?)
    }
}

fn control(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3, 0, kind, 0];
    frame.extend(&(body.len() as u32).to_be_bytes()[1..]);
    frame.extend(body);
    frame
}

fn headers(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = (pairs.len() as u32).to_be_bytes().to_vec();
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend((text.len() as u32).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// A stored block of a deflate stream, flushed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u16;
    let mut block = vec![0];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend(bytes);
    block.extend(FLUSH);
    block
}

pub struct Reader {
    input: Input,
    streams: Streams,
    /// The end of a stream that came with its last data.
    ended: Option<Channel>,
}

impl Reader {
    pub fn new(input: Input, streams: Streams) -> Reader {
        Reader { input, streams, ended: None }
    }

    pub async fn next(&mut self) -> Result<(Event, Option<Pong>)> {
        if let Some(channel) = self.ended.take() {
            return Ok((Event::Closed(channel), None));
        }
        let mut head = [0; 8];
        if self.input.read_exact(&mut head).await.is_err() {
            return Ok((Event::End, None));
        }
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut body = vec![0; length];
        self.input.read_exact(&mut body).await?;
        if head[0] & 0x80 == 0 {
            return Ok((
                self.data(u32::from_be_bytes([head[0], head[1], head[2], head[3]]), flags, body)?,
                None,
            ));
        }
        match head[3] {
            GOAWAY => Ok((Event::End, None)),
            RST_STREAM => {
                let Some(bytes) = body.first_chunk() else { bail!("a reset without a stream") };
                let id = u32::from_be_bytes(*bytes);
                Ok((self.channel(id).map_or(Event::Nothing, Event::Closed), None))
            }
            PING => {
                let Some(bytes) = body.first_chunk() else { bail!("a ping without a number") };
                let id = u32::from_be_bytes(*bytes);
                // Odd ones are ours and come back; we send none.
                Ok((Event::Nothing, id.is_multiple_of(2).then_some(Pong::Spdy(id))))
            }
            // Replies, settings, window updates: nothing that this client has to act on.
            _ => Ok((Event::Nothing, None)),
        }
    }

    fn data(&mut self, id: u32, flags: u8, body: Vec<u8>) -> Result<Event> {
        let Some(channel) = self.channel(id) else { bail!("data of stream {id}, which nobody opened") };
        let ends = flags & FIN != 0;
        if body.is_empty() {
            return Ok(if ends { Event::Closed(channel) } else { Event::Nothing });
        }
        self.ended = ends.then_some(channel);
        Ok(Event::Data(channel, Bytes::from(body)))
    }

    fn channel(&self, id: u32) -> Option<Channel> {
        self.streams.iter().find(|(known, _)| *known == id).map(|(_, channel)| *channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_the_protocol_wants_it() {
        assert_eq!(control(PING, &[0, 0, 0, 2]), [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2]);
        assert_eq!(stored(b"ab"), [0, 2, 0, 0xfd, 0xff, b'a', b'b', 0, 0, 0, 0xff, 0xff]);
        assert_eq!(headers(&[("a", "bc")]), [0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 2, b'b', b'c']);
    }
}

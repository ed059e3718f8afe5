//! Frames of SPDY/3.1, decoded from whatever has come so far.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A block of a stream. With `last`, the stream has ended in this direction.
    Data {
        stream: u32,
        last: bool,
        bytes: Bytes,
    },
    /// The other side has taken a stream. With `last`, it will send nothing on it.
    Reply {
        stream: u32,
        last: bool,
    },
    /// The stream is over in both directions.
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    /// Nothing follows.
    GoAway,
    /// Something that a client has no use for.
    Other,
}

/// The other side does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("unsupported SPDY version {0}")]
    Version(u16),
    #[error("unknown frame type {0}")]
    Kind(u16),
    #[error("invalid control frame")]
    Length,
    #[error("stream id zero is disallowed")]
    ZeroStream,
}

#[derive(Default)]
pub struct Decoder(State);

#[derive(Default)]
enum State {
    #[default]
    Head,
    Data {
        stream: u32,
        last: bool,
        remaining: usize,
    },
    /// The rest of a frame that has said all that matters.
    Skip(usize),
}

const HEAD: usize = 8;

impl Decoder {
    /// `None`: more bytes are needed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, BadFrame> {
        loop {
            match &mut self.0 {
                State::Head => {
                    let Some(head) = buffer.first_chunk::<HEAD>() else { return Ok(None) };
                    let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
                    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
                    let last = head[4] & super::FIN != 0;
                    if word >> 31 != 0 {
                        return self.control(buffer, word, length, last);
                    }
                    if word == 0 {
                        return Err(BadFrame::ZeroStream);
                    }
                    buffer.advance(HEAD);
                    self.0 = State::Data { stream: word, last, remaining: length };
                }
                State::Data { stream, last, remaining } => {
                    let here = buffer.len().min(*remaining);
                    if here == 0 && *remaining > 0 {
                        return Ok(None);
                    }
                    let bytes = buffer.split_to(here).freeze();
                    *remaining -= here;
                    let ends = *remaining == 0;
                    let frame = Frame::Data { stream: *stream, last: *last && ends, bytes };
                    if ends {
                        self.0 = State::Head;
                    }
                    return Ok(Some(frame));
                }
                State::Skip(remaining) => {
                    let here = buffer.len().min(*remaining);
                    buffer.advance(here);
                    *remaining -= here;
                    if *remaining > 0 {
                        return Ok(None);
                    }
                    self.0 = State::Head;
                }
            }
        }
    }

    fn control(
        &mut self,
        buffer: &mut BytesMut,
        word: u32,
        length: usize,
        last: bool,
    ) -> Result<Option<Frame>, BadFrame> {
        let (version, kind) = ((word >> 16 & 0x7fff) as u16, word as u16);
        if version != 3 {
            return Err(BadFrame::Version(version));
        }
        // How long it must be at least, and whether it may be longer.
        let (needed, fixed) = match kind {
            1 => (10, false),
            2 | 8 | 4 => (4, false),
            6 => (4, true),
            3 | 7 | 9 => (8, true),
            kind => return Err(BadFrame::Kind(kind)),
        };
        if length < needed || (fixed && length != needed) {
            return Err(BadFrame::Length);
        }
        let Some(number) = buffer.get(HEAD..).and_then(|payload| payload.first_chunk()) else {
            return Ok(None);
        };
        let number = u32::from_be_bytes(*number);
        let stream = number & 0x7fff_ffff;
        if matches!(kind, 1..=3 | 8) && stream == 0 {
            return Err(BadFrame::ZeroStream);
        }
        buffer.advance(HEAD + 4);
        self.0 = State::Skip(length - 4);
        Ok(Some(match kind {
            2 => Frame::Reply { stream, last },
            3 => Frame::Reset { stream },
            6 => Frame::Ping { id: number },
            7 => Frame::GoAway,
            // Header blocks are not opened. Neither settings nor windows mean anything to runtimes.
            _ => Frame::Other,
        }))
    }
}

//! Frames of a WebSocket client (RFC 6455), decoded from whatever has come so far.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text = 1,
    Binary = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block of a message. `first` and `last` say where in the message; a block is empty only where it is the last.
    Data {
        kind: Kind,
        first: bool,
        last: bool,
        bytes: Bytes,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// The client does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame that is not masked")]
    Unmasked,
    #[error("a reserved bit or kind of frame")]
    Reserved,
    #[error("a control frame that is too long or in parts")]
    BadControl,
    #[error("a part of a message that was not begun, or a message within a message")]
    BadSequence,
    #[error("a frame of an impossible length")]
    BadLength,
}

#[derive(Default)]
pub struct Decoder {
    /// The message that has begun.
    message: Option<Message>,
    /// The frame of it whose payload is under way.
    frame: Option<Frame>,
}

struct Message {
    kind: Kind,
    /// Nothing of it has been handed out.
    fresh: bool,
}

struct Frame {
    remaining: u64,
    mask: [u8; 4],
    /// The frame ends its message.
    last: bool,
}

struct Head {
    fin: bool,
    opcode: u8,
    mask: [u8; 4],
    length: u64,
    /// Of the head itself.
    size: usize,
}

impl Decoder {
    /// `None`: more bytes are needed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Violation> {
        loop {
            if self.frame.is_some() {
                return Ok(self.payload(buffer));
            }
            let Some(head) = parse_head(buffer)? else { return Ok(None) };
            if head.opcode & 0x8 != 0 {
                return control(&head, buffer);
            }
            self.begin(&head)?;
            buffer.advance(head.size);
        }
    }

    fn begin(&mut self, head: &Head) -> Result<(), Violation> {
        let kind = match head.opcode {
            0 => None,
            1 => Some(Kind::Text),
            2 => Some(Kind::Binary),
            _ => return Err(Violation::Reserved),
        };
        match (kind, &self.message) {
            (Some(kind), None) => self.message = Some(Message { kind, fresh: true }),
            (None, Some(_)) => {}
            _ => return Err(Violation::BadSequence),
        }
        // An empty part in the middle of a message says nothing.
        if head.length > 0 || head.fin {
            self.frame = Some(Frame { remaining: head.length, mask: head.mask, last: head.fin });
        }
        Ok(())
    }

    fn payload(&mut self, buffer: &mut BytesMut) -> Option<Event> {
        let (frame, message) = (self.frame.as_mut()?, self.message.as_mut()?);
        let here = usize::try_from(frame.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if here == 0 && frame.remaining > 0 {
            return None;
        }
        let mut block = buffer.split_to(here);
        unmask(&mut block, frame.mask);
        frame.mask.rotate_left(here % 4);
        frame.remaining -= here as u64;
        let ends = frame.remaining == 0;
        let last = ends && frame.last;
        let event = Event::Data { kind: message.kind, first: message.fresh, last, bytes: block.freeze() };
        message.fresh = false;
        if ends {
            self.frame = None;
        }
        if last {
            self.message = None;
        }
        Some(event)
    }
}

fn parse_head(buffer: &[u8]) -> Result<Option<Head>, Violation> {
    let [first, second, rest @ ..] = buffer else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(Violation::Reserved);
    }
    if second & 0x80 == 0 {
        return Err(Violation::Unmasked);
    }
    let (length, extended) = match second & 0x7f {
        126 => match rest.first_chunk() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 8),
            None => return Ok(None),
        },
        short => (u64::from(short), 0),
    };
    if length >> 63 != 0 {
        return Err(Violation::BadLength);
    }
    let Some(mask) = rest.get(extended..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
    Ok(Some(Head { fin: first & 0x80 != 0, opcode: first & 0xf, mask: *mask, length, size: 6 + extended }))
}

/// Control frames are short, so they are taken whole.
fn control(head: &Head, buffer: &mut BytesMut) -> Result<Option<Event>, Violation> {
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if !head.fin || length > 125 {
        return Err(Violation::BadControl);
    }
    if buffer.len() < head.size + length {
        return Ok(None);
    }
    buffer.advance(head.size);
    let mut payload = buffer.split_to(length);
    unmask(&mut payload, head.mask);
    match head.opcode {
        0x8 => Ok(Some(Event::Close)),
        // A copy, so that the block that it came in is free for the next one.
        0x9 => Ok(Some(Event::Ping(Bytes::copy_from_slice(&payload)))),
        0xa => Ok(Some(Event::Pong)),
        _ => Err(Violation::Reserved),
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

//! SPDY/3.1 as a client: as much of it as container runtimes speak.
//!
//! Runtimes use Go's `spdystream`, which has no flow control: it neither sends `WINDOW_UPDATE` nor looks at it. A client
//! that kept to windows would stop for ever after 64 KiB of input, and one that announced its own would only fill the
//! runtime's queues. So, as everywhere with `spdystream`, who reads slowly stops the connection: frames are decoded in
//! blocks, and the next one is read when this one has been passed on.
//!
//! Header blocks that the runtime sends are passed over unread: nothing in them is of use to a client. Those that are sent
//! are in zlib's format with SPDY's dictionary, but stored, which spares a compressor of a quarter of a megabyte for each
//! session.

mod decoder;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

pub use decoder::{BadFrame, Decoder, Frame};

/// Blocks are at most as long as this.
const BLOCK: usize = 8 << 10;
const VERSION: u16 = 0x8003;
const FIN: u8 = 1;

/// How zlib's stream begins: its format, with a dictionary, and which one that is.
const ZLIB_HEAD: [u8; 6] = [0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2];

/// What the runtime sends.
pub struct Reader<R> {
    io: R,
    decoder: Decoder,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// `early` is read before anything else.
    pub fn new(io: R, early: &[u8]) -> Self {
        Self { io, decoder: Decoder::default(), buffer: BytesMut::from(early) }
    }

    /// `None`: the connection has ended. Cancel-safe: what has been read stays in the buffer.
    pub async fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(BLOCK.saturating_sub(self.buffer.len()).max(1));
            match self.io.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

/// Opens streams, each with one header. Ids are odd and count up from 1.
pub fn open_streams(name: &str, values: &[&str]) -> Vec<u8> {
    let mut frames = Vec::new();
    for (id, value) in (1u32..).step_by(2).zip(values) {
        let mut block = Vec::new();
        if id == 1 {
            block.extend_from_slice(&ZLIB_HEAD);
        }
        stored(&header_block(name, value), &mut block);
        control_head(&mut frames, 1, 10 + block.len());
        frames.extend_from_slice(&id.to_be_bytes());
        // Associated with no stream, of the highest priority, without a credential.
        frames.extend_from_slice(&[0; 6]);
        frames.extend_from_slice(&block);
    }
    frames
}

/// A block of data. With `last`, nothing follows on the stream.
pub fn data(stream: u32, last: bool, block: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + block.len());
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame[4] = if last { FIN } else { 0 };
    frame.extend_from_slice(block);
    frame
}

pub fn ping(id: u32) -> Vec<u8> {
    let mut frame = Vec::with_capacity(12);
    control_head(&mut frame, 6, 4);
    frame.extend_from_slice(&id.to_be_bytes());
    frame
}

fn control_head(frame: &mut Vec<u8>, kind: u16, length: usize) {
    frame.extend_from_slice(&VERSION.to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn header_block(name: &str, value: &str) -> Vec<u8> {
    let mut block = 1u32.to_be_bytes().to_vec();
    for text in [name, value] {
        block.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        block.extend_from_slice(text.as_bytes());
    }
    block
}

/// Deflate's way to say something as it is. The empty block at the end is what a flush leaves: Go's reader hands out what
/// it has only when it comes to one.
fn stored(bytes: &[u8], block: &mut Vec<u8>) {
    for part in bytes.chunks(usize::from(u16::MAX)) {
        let length = part.len() as u16;
        block.push(0);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(part);
    }
    block.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
}

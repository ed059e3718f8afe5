//! gRPC's frames: one byte that says whether the message is compressed, its length in four, and the message.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub compressed: bool,
    pub message: Bytes,
    /// Where in the last piece that was pushed the frame ends.
    pub ends_at: usize,
}

/// Puts frames together from the pieces that HTTP/2 made of them.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: BytesMut,
}

impl Frames {
    /// The frames that are complete with this piece.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Frame> {
        let before = self.buffer.len();
        self.buffer.extend_from_slice(piece);
        let (mut frames, mut taken) = (Vec::new(), 0);
        while let Some(head) = self.buffer.first_chunk::<5>() {
            let [flag, length @ ..] = *head;
            let length = u32::from_be_bytes(length) as usize;
            if self.buffer.len() < 5 + length {
                break;
            }
            self.buffer.advance(5);
            let message = self.buffer.split_to(length).freeze();
            taken += 5 + length;
            frames.push(Frame { compressed: flag & 1 == 1, message, ends_at: taken - before });
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_they_went_in() {
        let stream = [0, 0, 0, 0, 2, 7, 8, 1, 0, 0, 0, 1, 9, 0, 0, 0, 0, 0];
        let expected = [(false, vec![7, 8]), (true, vec![9]), (false, vec![])];
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            let mut ends = Vec::new();
            for (index, piece) in stream.chunks(size).enumerate() {
                for frame in frames.push(piece) {
                    seen.push((frame.compressed, frame.message.to_vec()));
                    ends.push(index * size + frame.ends_at);
                }
            }
            assert_eq!(seen, expected, "pieces of {size}");
            assert_eq!(ends, [7, 13, 18], "pieces of {size}");
        }
    }
}

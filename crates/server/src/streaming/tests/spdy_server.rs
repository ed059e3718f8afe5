//! SPDY/3.1 as a runtime speaks it, written apart from the client's side of it, with a real zlib.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::kubelet::soon;

const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

pub struct SpdyServer {
    pub stream: TcpStream,
    inflate: Decompress,
    deflate: Compress,
    /// What the client has opened, in its order: the kind, and the number.
    pub opened: Vec<(String, u32)>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Data {
        stream: u32,
        last: bool,
        bytes: Vec<u8>,
    },
    Ping(u32),
    /// A control frame of another kind.
    Control(u16),
    End,
}

impl SpdyServer {
    /// Takes `count` streams, each with a reply.
    pub async fn open(stream: TcpStream, count: usize) -> Self {
        let mut deflate = Compress::new(Compression::best(), true);
        deflate.set_dictionary(DICTIONARY).expect("a dictionary");
        let mut server = Self { stream, inflate: Decompress::new(true), deflate, opened: Vec::new() };
        for _ in 0..count {
            server.take_stream().await;
        }
        for (_, id) in server.opened.clone() {
            let headers = server.compress(&[0; 4]);
            server.control(2, 0, &[&id.to_be_bytes()[..], &headers].concat()).await;
        }
        server
    }

    pub fn id(&self, kind: &str) -> u32 {
        let found = self.opened.iter().find(|(name, _)| name == kind);
        found.unwrap_or_else(|| panic!("no {kind} among {:?}", self.opened)).1
    }

    async fn take_stream(&mut self) {
        let (head, payload) = self.frame().await.expect("a frame");
        assert_eq!(head[..4], [0x80, 3, 0, 1], "a stream is opened");
        let id = u32::from_be_bytes(*payload.first_chunk().expect("an id"));
        let headers = self.decompress(&payload[10..]);
        let mut rest = &headers[4..];
        let mut texts = Vec::new();
        while let Some(length) = rest.first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            texts.push(String::from_utf8(rest[4..4 + length].to_vec()).expect("UTF-8"));
            rest = &rest[4 + length..];
        }
        assert_eq!(
            (headers[..4].to_vec(), texts.len(), texts[0].as_str()),
            (vec![0, 0, 0, 1], 2, "streamtype")
        );
        self.opened.push((texts[1].clone(), id));
    }

    pub async fn hear(&mut self) -> Heard {
        let Some((head, bytes)) = self.frame().await else { return Heard::End };
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        match (word >> 31, word as u16) {
            (0, _) => Heard::Data { stream: word, last: head[4] == 1, bytes },
            (_, 6) => Heard::Ping(u32::from_be_bytes(*bytes.first_chunk().expect("an id"))),
            (_, kind) => Heard::Control(kind),
        }
    }

    /// All data of a stream until its end.
    pub async fn hear_all(&mut self, wanted: u32) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.hear().await {
                Heard::Data { stream, last, bytes } if stream == wanted => {
                    all.extend_from_slice(&bytes);
                    if last {
                        return all;
                    }
                }
                other => panic!("{other:?} while stream {wanted} was under way"),
            }
        }
    }

    pub async fn say(&mut self, kind: &str, bytes: &[u8]) {
        let id = self.id(kind);
        self.data(id, false, bytes).await;
    }

    pub async fn data(&mut self, stream: u32, last: bool, bytes: &[u8]) {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.extend_from_slice(&(bytes.len() as u32 | u32::from(last) << 24).to_be_bytes());
        frame.extend_from_slice(bytes);
        self.write(&frame).await;
    }

    pub async fn ping(&mut self, id: u32) {
        self.control(6, 0, &id.to_be_bytes()).await;
    }

    /// The way in which Go's server ends: a status, resets, goodbye.
    pub async fn finish(mut self, status: &str) -> TcpStream {
        self.say("error", status.as_bytes()).await;
        for (_, id) in self.opened.clone() {
            self.control(3, 0, &[id.to_be_bytes(), 5u32.to_be_bytes()].concat()).await;
        }
        self.control(7, 0, &[0; 8]).await;
        self.stream.shutdown().await.expect("an end");
        self.stream
    }

    async fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) {
        let length = payload.len() as u32 | u32::from(flags) << 24;
        let head = [&[0x80, 3][..], &kind.to_be_bytes(), &length.to_be_bytes()].concat();
        self.write(&[&head, payload].concat()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.expect("a frame's way");
    }

    async fn frame(&mut self) -> Option<([u8; 8], Vec<u8>)> {
        let mut head = [0; 8];
        soon(self.stream.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut payload = vec![0; length];
        soon(self.stream.read_exact(&mut payload)).await.ok()?;
        Some((head, payload))
    }

    fn compress(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(256);
        self.deflate.compress_vec(bytes, &mut block, FlushCompress::Sync).expect("compression");
        block
    }

    fn decompress(&mut self, block: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4096);
        let before = self.inflate.total_in();
        let result = self.inflate.decompress_vec(block, &mut bytes, FlushDecompress::Sync);
        if result.is_err_and(|error| error.needs_dictionary().is_some()) {
            self.inflate.set_dictionary(DICTIONARY).expect("SPDY's dictionary");
            let taken = (self.inflate.total_in() - before) as usize;
            let rest = &block[taken..];
            self.inflate.decompress_vec(rest, &mut bytes, FlushDecompress::Sync).expect("a block");
        }
        assert_eq!(self.inflate.total_in() - before, block.len() as u64, "all of the block");
        bytes
    }
}

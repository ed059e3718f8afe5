//! A file's bytes as the body of an answer: the next block is read when the client has taken the last.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use ring::rand::{SecureRandom, SystemRandom};

use super::ranges::Piece;
use super::root::Refusal;
use crate::reply;

const BLOCK: usize = 32 << 10;

enum Part {
    Text(Bytes),
    Piece(Piece),
}

/// One piece, which may be all of it.
pub fn whole(file: File, piece: Piece, kind: &'static str) -> Response {
    answer(file, vec![Part::Piece(piece)], HeaderValue::from_static(kind), StatusCode::OK)
}

/// Several pieces, each with a head of its own.
pub fn in_parts(file: File, pieces: Vec<Piece>, kind: &str, size: u64) -> Result<Response, Refusal> {
    let boundary = boundary()?;
    let mut parts = Vec::with_capacity(pieces.len() * 2 + 1);
    let mut line_before = "";
    for piece in pieces {
        let range = piece.content_range(size);
        let head =
            format!("{line_before}--{boundary}\r\nContent-Range: {range}\r\nContent-Type: {kind}\r\n\r\n");
        parts.push(Part::Text(head.into()));
        parts.push(Part::Piece(piece));
        line_before = "\r\n";
    }
    parts.push(Part::Text(format!("\r\n--{boundary}--\r\n").into()));
    let kind = format!("multipart/byteranges; boundary={boundary}");
    let kind = HeaderValue::from_str(&kind).map_err(io::Error::other)?;
    Ok(answer(file, parts, kind, StatusCode::PARTIAL_CONTENT))
}

/// Nobody who writes a file can guess it.
fn boundary() -> io::Result<String> {
    let mut bytes = [0; 30];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn answer(file: File, parts: Vec<Part>, kind: HeaderValue, status: StatusCode) -> Response {
    let length = parts.iter().fold(0, |sum: u64, part| {
        sum + match part {
            Part::Text(text) => text.len() as u64,
            Part::Piece(piece) => piece.length,
        }
    });
    let mut response = reply::of(status, kind, Body::from_stream(read(file, parts.into())));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// Ends early, and so the connection, where the file turns out to be shorter than it was.
fn read(file: File, parts: VecDeque<Part>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((Arc::new(file), parts), |(file, mut parts)| async move {
        while let Some(part) = parts.pop_front() {
            let piece = match part {
                Part::Text(text) => return Ok(Some((text, (file, parts)))),
                Part::Piece(Piece { length: 0, .. }) => continue,
                Part::Piece(piece) => piece,
            };
            let reader = file.clone();
            let block = tokio::task::spawn_blocking(move || block(&reader, piece)).await;
            let block = block.map_err(io::Error::other)??;
            let count = block.len() as u64;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            parts.push_front(Part::Piece(Piece { start: piece.start + count, length: piece.length - count }));
            return Ok(Some((block, (file, parts))));
        }
        Ok(None)
    })
}

fn block(file: &File, piece: Piece) -> io::Result<Bytes> {
    let wanted = usize::try_from(piece.length).unwrap_or(BLOCK).min(BLOCK);
    let mut block = vec![0; wanted];
    let count = file.read_at(&mut block, piece.start)?;
    block.truncate(count);
    Ok(block.into())
}

//! The body of an answer, written piece by piece. What is not taken is waited for; nothing piles up.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio::sync::mpsc;

const BLOCK: usize = 32 << 10;

pub struct Output {
    sender: mpsc::Sender<Bytes>,
    zip: Option<GzEncoder<Vec<u8>>>,
}

pub fn begin(zipped: bool) -> (Output, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let zip = zipped.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let pieces = stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((Ok::<_, Infallible>(piece), receiver))
    });
    (Output { sender, zip }, Body::from_stream(pieces))
}

impl Output {
    /// When the client is gone.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let sender = self.sender.clone();
        async move { sender.closed().await }
    }

    /// `None`: the client is gone.
    pub async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        let ready = match &mut self.zip {
            None => bytes.to_vec(),
            Some(zip) => {
                // Into memory, which does not fail.
                zip.write_all(bytes).ok()?;
                match zip.get_ref().len() {
                    0..BLOCK => return Some(()),
                    _ => std::mem::take(zip.get_mut()),
                }
            }
        };
        self.sender.send(ready.into()).await.ok()
    }

    /// The outer `None`: the client is gone.
    pub async fn copy(&mut self, file: File) -> Option<io::Result<()>> {
        let file = Arc::new(file);
        loop {
            let reader = file.clone();
            let block = tokio::task::spawn_blocking(move || {
                let mut block = Vec::with_capacity(BLOCK);
                (&*reader).take(BLOCK as u64).read_to_end(&mut block).map(|_| block)
            });
            match block.await.map_err(io::Error::other).and_then(|read| read) {
                Ok(block) if block.is_empty() => return Some(Ok(())),
                Ok(block) => self.write(&block).await?,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    pub async fn finish(self) {
        if let Some(Ok(rest)) = self.zip.map(GzEncoder::finish) {
            let _ = self.sender.send(rest.into()).await;
        }
    }
}

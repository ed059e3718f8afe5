//! The runtime's answer on its way to the client.

use std::future::{pending, poll_fn};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};

use super::LINGER;
use super::call::Signals;
use super::entry::Entry;
use super::framing::Frames;
use super::streams::{self, unless_reset};
use crate::gate::Gate;
use crate::record::Outcome;
use crate::rules::{Cut, Failure};

/// What is done with the runtime's answer.
pub enum Answer {
    Pass(Option<Cut>),
    Hold(Gate),
    Replace(Failure),
}

/// A whole answer.
#[derive(Default)]
struct Whole {
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
}

pub struct Answering<'a, 'b> {
    pub entry: &'a mut Entry<'b>,
    pub respond: &'a mut SendResponse<Bytes>,
    pub signals: &'a Signals,
}

impl Answering<'_, '_> {
    pub async fn run(&mut self, response: ResponseFuture, answer: Answer) {
        let response = match unless_reset(self.respond, response).await {
            None => return,
            Some(Err(error)) => return self.broken(&error).await,
            Some(Ok(response)) => response,
        };
        match answer {
            Answer::Pass(cut) => self.pass(response, cut).await,
            Answer::Hold(gate) => {
                let Some((head, whole)) = self.collect(response).await else { return };
                if unless_reset(self.respond, gate.pass()).await.is_some() {
                    self.replay(head, whole).await;
                }
            }
            Answer::Replace(failure) => {
                if self.collect(response).await.is_none() {
                    return;
                }
                let (code, message) = (failure.code, failure.message.clone());
                self.entry.finish(Outcome::FailedAfter, Some(code), Some(message));
                let _ = self.respond.send_response(streams::failure(&failure), true);
            }
        }
    }

    /// Piece by piece, as it comes.
    async fn pass(&mut self, response: Response<RecvStream>, cut: Option<Cut>) {
        let (head, body) = response.into_parts();
        let ended = body.is_end_stream();
        if ended {
            let (code, message) = streams::status(&head.headers);
            self.entry.finish(Outcome::Answered, code, message);
        }
        let Ok(out) = self.respond.send_response(Response::from_parts(head, ()), ended) else { return };
        if !ended {
            self.pass_body(body, out, cut).await;
        }
    }

    async fn pass_body(&mut self, mut body: RecvStream, mut out: SendStream<Bytes>, cut: Option<Cut>) {
        let mut meter = Meter { cut, frames: Frames::default(), bytes: 0, events: 0 };
        loop {
            let piece = tokio::select! {
                biased;
                _ = poll_fn(|cx| out.poll_reset(cx)) => return,
                // Nothing is lost if it is dropped: a piece stays where it is until it is taken.
                piece = body.data() => piece,
            };
            let mut piece = match piece {
                None => break,
                Some(Err(error)) => return self.broken(&error).await,
                Some(Ok(piece)) => piece,
            };
            let length = piece.len();
            let cut_at = meter.take(&piece, self.entry);
            piece.truncate(cut_at.unwrap_or(length));
            if streams::send(&mut out, piece, false).await.is_err() {
                return;
            }
            if cut_at.is_some() {
                return self.cut().await;
            }
            // Only now, so that a slow client slows the runtime down, as it would without the proxy.
            let _ = body.flow_control().release_capacity(length);
        }
        match body.trailers().await {
            Err(error) => self.broken(&error).await,
            Ok(trailers) => self.end(&mut out, trailers),
        }
    }

    async fn collect(&mut self, response: Response<RecvStream>) -> Option<(http::response::Parts, Whole)> {
        let (head, mut body) = response.into_parts();
        let (mut whole, mut frames) = (Whole::default(), Frames::default());
        let collecting = async {
            while let Some(piece) = streams::next_piece(&mut body).await? {
                whole.pieces.push(piece);
            }
            whole.trailers = body.trailers().await?;
            Ok(whole)
        };
        match unless_reset(self.respond, collecting).await? {
            Ok(whole) => {
                for frame in whole.pieces.iter().flat_map(|piece| frames.push(piece)) {
                    self.entry.answer(&frame);
                }
                Some((head, whole))
            }
            Err(error) => {
                self.broken(&error).await;
                None
            }
        }
    }

    async fn replay(&mut self, head: http::response::Parts, whole: Whole) {
        let ended = whole.pieces.is_empty() && whole.trailers.is_none();
        if ended {
            let (code, message) = streams::status(&head.headers);
            self.entry.finish(Outcome::Answered, code, message);
        }
        let Ok(mut out) = self.respond.send_response(Response::from_parts(head, ()), ended) else { return };
        for piece in whole.pieces {
            if streams::send(&mut out, piece, false).await.is_err() {
                return;
            }
        }
        if !ended {
            self.end(&mut out, whole.trailers);
        }
    }

    /// The record is written first: who has the answer finds it there.
    fn end(&mut self, out: &mut SendStream<Bytes>, trailers: Option<HeaderMap>) {
        let (code, message) = trailers.as_ref().map(streams::status).unwrap_or_default();
        self.entry.finish(Outcome::Answered, code, message);
        let _ = match trailers {
            Some(trailers) => out.send_trailers(trailers),
            None => out.send_data(Bytes::new(), true),
        };
    }

    async fn cut(&mut self) {
        // What was let through leaves first.
        tokio::time::sleep(LINGER).await;
        self.entry.finish(Outcome::Cut, None, None);
        self.signals.cut.notify_one();
        pending().await
    }

    /// A reset is passed on. A broken connection breaks the client's connection too, in a moment, and until then the
    /// client must not hear anything else.
    async fn broken(&mut self, error: &h2::Error) {
        self.entry.finish(Outcome::Broken, None, Some(error.to_string()));
        let reason = error.reason();
        if error.is_go_away() && reason == Some(Reason::NO_ERROR) {
            // The runtime is about to stop and has not begun with this call.
            self.respond.send_reset(Reason::REFUSED_STREAM);
            self.signals.refused.notify_one();
        } else if error.is_io() || error.is_go_away() {
            let _waiting = Waiting::new(self.signals);
            pending().await
        } else {
            self.respond.send_reset(reason.unwrap_or(Reason::INTERNAL_ERROR));
        }
    }
}

/// Counts one who waits for the connection to be closed.
struct Waiting<'a>(&'a Signals);

impl<'a> Waiting<'a> {
    fn new(signals: &'a Signals) -> Waiting<'a> {
        signals.broken.fetch_add(1, Ordering::SeqCst);
        signals.one_more_broken.notify_one();
        Waiting(signals)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.broken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Watches an answer go by, and says where to cut it.
struct Meter {
    cut: Option<Cut>,
    frames: Frames,
    bytes: u64,
    events: u64,
}

impl Meter {
    /// Records the messages that are complete with this piece. `Some`: the answer is cut after so much of it.
    fn take(&mut self, piece: &[u8], entry: &mut Entry<'_>) -> Option<usize> {
        let mut cut_at = None;
        if let Some(Cut::AfterBytes(limit)) = self.cut
            && self.bytes + piece.len() as u64 >= limit
        {
            cut_at = Some((limit - self.bytes) as usize);
        }
        self.bytes += piece.len() as u64;
        for frame in self.frames.push(piece) {
            if cut_at.is_some_and(|cut| frame.ends_at > cut) {
                break;
            }
            entry.answer(&frame);
            self.events += 1;
            if self.cut == Some(Cut::AfterEvents(self.events)) {
                cut_at = Some(frame.ends_at);
            }
        }
        cut_at
    }
}

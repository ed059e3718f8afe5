//! One call on its way through the proxy.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use tokio::sync::Notify;

use super::Context;
use super::answer::{Answer, Answering};
use super::decode::Decoder;
use super::entry::Entry;
use super::schema::Schema;
use super::streams::{self, Beginning, unless_reset};
use crate::record::Outcome;
use crate::rules::{Action, Cut, Facts};

/// What calls tell the connection that they came over.
#[derive(Debug, Default)]
pub struct Signals {
    /// A rule wants the connection closed.
    pub cut: Notify,
    /// The runtime takes no new calls on its connection.
    pub refused: Notify,
    /// How many calls wait for the connection to be closed, because the runtime's has broken.
    pub broken: AtomicUsize,
    /// There is one more.
    pub one_more_broken: Notify,
}

pub struct Call {
    pub context: Arc<Context>,
    pub signals: Arc<Signals>,
    pub request: Request<RecvStream>,
    pub respond: SendResponse<Bytes>,
    pub runtime: SendRequest<Bytes>,
}

impl Call {
    /// Runs the call to its end. Dropping the future gives the call up on both sides, which the runtime sees as a
    /// cancellation, as it would without the proxy.
    pub async fn run(self) {
        let Call { context, signals, request, mut respond, runtime } = self;
        let (parts, mut body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let mut entry = Entry::new(&context.recorder, &context.limits, &path);
        let Ok(beginning) = streams::beginning(&mut body).await else { return };
        let action = decide(&context, &path, &beginning, &mut entry);
        let Some(answer) = before(action, &mut entry, &mut respond, &signals).await else { return };

        let Some(ready) = unless_reset(&mut respond, runtime.ready()).await else { return };
        let Ok(mut runtime) = ready else {
            entry.finish(Outcome::Broken, None, None);
            // The client may safely try again on another connection, and gRPC does.
            respond.send_reset(Reason::REFUSED_STREAM);
            signals.refused.notify_one();
            return;
        };
        let ends_with_headers = beginning.pieces.is_empty() && body.is_end_stream();
        let sent = runtime.send_request(Request::from_parts(parts, ()), ends_with_headers);
        let Ok((response, stream)) = sent else {
            entry.finish(Outcome::Broken, None, None);
            respond.send_reset(Reason::INTERNAL_ERROR);
            return;
        };
        let request = async {
            if !ends_with_headers {
                // A failure shows on the answer's side too, where it is dealt with.
                let _ = pass_request(beginning, &mut body, stream).await;
            }
            pending::<Infallible>().await
        };
        let mut answering = Answering { entry: &mut entry, respond: &mut respond, signals: &signals };
        tokio::select! {
            biased;
            never = request => match never {},
            () = answering.run(response, answer) => {}
        }
    }
}

/// What happens before the runtime hears of the call. `None`: it never will.
async fn before(
    action: Option<Action>,
    entry: &mut Entry<'_>,
    respond: &mut SendResponse<Bytes>,
    signals: &Signals,
) -> Option<Answer> {
    match action {
        None => Some(Answer::Pass(None)),
        Some(Action::Delay(time)) => {
            unless_reset(respond, tokio::time::sleep(time)).await?;
            Some(Answer::Pass(None))
        }
        Some(Action::Hold(gate)) => {
            unless_reset(respond, gate.pass()).await?;
            Some(Answer::Pass(None))
        }
        Some(Action::HoldAnswer(gate)) => Some(Answer::Hold(gate)),
        Some(Action::Fail(failure)) => {
            entry.finish(Outcome::Failed, Some(failure.code), Some(failure.message.clone()));
            // An error means that the client is gone.
            let _ = respond.send_response(streams::failure(&failure), true);
            None
        }
        Some(Action::FailAfter(failure)) => Some(Answer::Replace(failure)),
        Some(Action::Drop) => unless_reset(respond, pending()).await,
        Some(Action::Cut(Cut::Now)) => {
            entry.finish(Outcome::Cut, None, None);
            signals.cut.notify_one();
            pending().await
        }
        Some(Action::Cut(cut)) => Some(Answer::Pass(Some(cut))),
    }
}

fn decide(context: &Context, path: &str, beginning: &Beginning, entry: &mut Entry<'_>) -> Option<Action> {
    let known = Schema::cri().method(path);
    let request_type = known.map_or("", |method| &method.request);
    let message = beginning.message.as_ref();
    let plain = message.filter(|frame| !frame.compressed);
    let plain = plain.map(|frame| Decoder::plain().message(request_type, &frame.message));
    let facts = Facts { path, verb: "", user: "", request: plain.as_ref() };
    let fired = context.rules.decide(&facts);
    let (rule, action) = fired.map(|fired| (fired.rule, fired.action)).unzip();
    entry.asked(request_type, message, rule);
    action
}

/// The request's pieces as they came, and what comes after them.
async fn pass_request(
    beginning: Beginning,
    body: &mut RecvStream,
    mut stream: SendStream<Bytes>,
) -> Result<(), h2::Error> {
    let ended = body.is_end_stream();
    let count = beginning.pieces.len();
    for (index, piece) in beginning.pieces.into_iter().enumerate() {
        streams::send(&mut stream, piece, ended && index + 1 == count).await?;
    }
    if ended {
        return Ok(());
    }
    while let Some(piece) = streams::next_piece(body).await? {
        streams::send(&mut stream, piece, false).await?;
    }
    match body.trailers().await? {
        Some(trailers) => stream.send_trailers(trailers),
        None => stream.send_data(Bytes::new(), true),
    }
}

//! One request on its way through the proxy.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::body::{Body, BoxError, Counted, Meter, Recording, full};
use super::entry::{BodyInfo, Book, Entry};
use super::headers;
use super::identity::{self, Certified};
use super::request_info::RequestInfo;
use super::tunnel;
use crate::gate::Gate;
use crate::record::Outcome;
use crate::rules::{Action, Cut, Facts, Failure, Rules};

pub type HttpClient = Client<HttpsConnector<HttpConnector>, Body>;

/// What all connections share.
pub struct Context {
    pub rules: Rules,
    pub book: Arc<Book>,
    pub upstream: Authority,
    /// As the front proxy, for clients with a certificate.
    pub front_proxy: HttpClient,
    /// As nobody, for clients with a token, or nothing.
    pub nobody: HttpClient,
    /// Upgraded connections, which outlive the HTTP connections that they were.
    pub tunnels: Mutex<JoinSet<()>>,
}

/// One client's connection.
pub struct Connection {
    pub certified: Option<Certified>,
    /// It is to be closed, whatever is under way.
    pub cut: Notify,
}

impl Connection {
    /// Closes it. The caller is dropped with it.
    async fn close(&self) -> Infallible {
        self.cut.notify_one();
        pending().await
    }
}

/// What is done with the API server's answer.
enum Answer {
    Pass(Option<Cut>),
    Hold(Gate),
    Replace(Failure),
}

/// What comes of a rule before the API server hears of the request.
enum Before {
    Ask(Answer),
    Fail(Failure),
}

/// Runs a request until its answer begins. Dropping the future gives it up, and the API server notices.
pub async fn handle(
    context: Arc<Context>,
    connection: Arc<Connection>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let upgraded = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let certified = connection.certified.as_ref();
    let user = identity::user(certified, &parts.headers);
    let info = RequestInfo::of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    let mut entry = Entry::new(Arc::clone(&context.book), user, info, &parts);
    let (body, json) = read_request(body, &parts, &entry).await?;

    let action = decide(&context, &mut entry, json);
    let answer = match before(action, &mut entry, &connection).await {
        Before::Ask(answer) => answer,
        Before::Fail(failure) => return failed(&failure),
    };

    let upgrade = headers::is_upgrade(&parts);
    headers::remove_hop_by_hop(&mut parts.headers, upgrade);
    headers::readdress(&mut parts, &context.upstream);
    identity::speak_for(certified, &mut parts.headers);
    let client = if certified.is_some() { &context.front_proxy } else { &context.nobody };
    let response = match client.request(Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(error) => {
            entry.broken(&error);
            // Without the proxy, there would be no connection now.
            match connection.close().await {}
        }
    };
    match answer {
        Answer::Pass(_) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Ok(begin_tunnel(&context, entry, response, upgraded))
        }
        Answer::Hold(gate) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            gate.pass().await;
            Ok(begin_tunnel(&context, entry, response, upgraded))
        }
        answer => pass_answer(connection, entry, response, answer).await,
    }
}

async fn before(action: Option<Action>, entry: &mut Entry, connection: &Connection) -> Before {
    match action {
        None => Before::Ask(Answer::Pass(None)),
        Some(Action::Delay(time)) => {
            tokio::time::sleep(time).await;
            Before::Ask(Answer::Pass(None))
        }
        Some(Action::Hold(gate)) => {
            gate.pass().await;
            Before::Ask(Answer::Pass(None))
        }
        Some(Action::HoldAnswer(gate)) => Before::Ask(Answer::Hold(gate)),
        Some(Action::Fail(failure)) => {
            entry.replaced(failure.code);
            entry.finish(Outcome::Failed);
            Before::Fail(failure)
        }
        Some(Action::FailAfter(failure)) => Before::Ask(Answer::Replace(failure)),
        Some(Action::Drop) => pending().await,
        Some(Action::Cut(Cut::Now)) => {
            entry.finish(Outcome::Cut);
            match connection.close().await {}
        }
        Some(Action::Cut(cut)) => Before::Ask(Answer::Pass(Some(cut))),
    }
}

/// A body that is short is read whole, for rules and the record; any other is passed on as it comes.
async fn read_request(
    body: Incoming,
    parts: &Parts,
    entry: &Entry,
) -> Result<(Body, Option<Value>), BoxError> {
    let bytes = entry.request_bytes();
    let short = body.size_hint().exact().filter(|length| *length <= entry.book().body_limit as u64);
    let Some(length) = short else {
        return Ok((Counted { inner: body, bytes }.boxed_unsync(), None));
    };
    bytes.store(length, std::sync::atomic::Ordering::Relaxed);
    let whole = body.collect().await?.to_bytes();
    let json = BodyInfo::of(&parts.headers).is_json().then(|| serde_json::from_slice(&whole).ok());
    Ok((full(whole), json.flatten()))
}

fn decide(context: &Context, entry: &mut Entry, json: Option<Value>) -> Option<Action> {
    let line = entry.line();
    let facts = Facts { path: &line.path, verb: &line.verb, user: &line.user, request: json.as_ref() };
    let (rule, action) = context.rules.decide(&facts).map(|fired| (fired.rule, fired.action)).unzip();
    entry.asked(json, rule);
    action
}

async fn pass_answer(
    connection: Arc<Connection>,
    mut entry: Entry,
    response: Response<Incoming>,
    answer: Answer,
) -> Result<Response<Body>, BoxError> {
    let (mut head, body) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers, false);
    let info = BodyInfo::of(&head.headers);
    entry.answered(head.status, &head.headers);
    match answer {
        Answer::Pass(cut) => {
            let body = Recording::new(body, &info, entry, cut, connection);
            Ok(Response::from_parts(head, body.boxed_unsync()))
        }
        Answer::Hold(gate) => {
            let whole = read_answer(&connection, &mut entry, &info, body).await;
            gate.pass().await;
            entry.finish(Outcome::Answered);
            Ok(Response::from_parts(head, full(whole)))
        }
        Answer::Replace(failure) => {
            read_answer(&connection, &mut entry, &info, body).await;
            entry.replaced(failure.code);
            entry.finish(Outcome::FailedAfter);
            failed(&failure)
        }
    }
}

async fn read_answer(connection: &Connection, entry: &mut Entry, info: &BodyInfo, body: Incoming) -> Bytes {
    let whole = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) => {
            entry.broken(&error);
            match connection.close().await {}
        }
    };
    let mut meter = Meter::new(info, entry.is_watch(), entry.book().body_limit, None);
    meter.take(&whole);
    meter.report(entry);
    whole
}

/// From here on it is bytes in both directions.
fn begin_tunnel(
    context: &Context,
    mut entry: Entry,
    mut response: Response<Incoming>,
    client: OnUpgrade,
) -> Response<Body> {
    let server = hyper::upgrade::on(&mut response);
    let (mut head, _) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers, true);
    entry.answered(head.status, &head.headers);
    let mut tunnels = context.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
    while tunnels.try_join_next().is_some() {}
    tunnels.spawn(tunnel::run(entry, client, server));
    Response::from_parts(head, full(Bytes::new()))
}

/// A rule's failure, as the API server words its own.
fn failed(failure: &Failure) -> Result<Response<Body>, BoxError> {
    let reason = match failure.code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": failure.message,
        "reason": reason,
        "code": failure.code,
    });
    let mut response = Response::new(full(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(failure.code)?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(response)
}

//! A GET, as upstream's probes and hooks send it.
//!
//! - No proxy, no kept connection; whoever answers over TLS is believed. HTTP/2 is for probes only.
//! - Redirects are followed as long as they stay on the host that was asked first. One that leads elsewhere is the answer.
//! - A body is read up to 10 KiB.

use std::time::Duration;

use crablet_model::api;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, RANGE,
    REFERER, USER_AGENT,
};
use tokio::time;

use super::{Answer, MOST_OF_AN_ANSWER, Trouble, VERSION, port};

mod exchange;
mod target;
mod tls;
mod url;

use exchange::Reply;
use target::{Astray, Target};

/// As many as Go's client follows.
const MOST_REDIRECTS: usize = 10;

/// On whose behalf: it shows in the headers, and in what is spoken over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Probe,
    Lifecycle,
}

/// A request that is ready to be sent, any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpAsk {
    target: Target,
    /// What the `Host` header says, if the specification has one.
    host: Option<String>,
    headers: HeaderMap,
    purpose: Purpose,
    /// Why it is not sent: Go's client looks at the headers first. That is a failure of whom it asks.
    refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpAnswer {
    pub status: u16,
    /// At most the first 10 KiB.
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpError {
    pub message: String,
    /// TLS was asked for, and plain HTTP came back.
    pub plain_http_answer: bool,
    /// The answer had begun already.
    pub in_body: bool,
}

impl HttpError {
    /// As Go's client tells it, with the URL that it asked for.
    fn before_answer(url: &str, why: &str) -> Self {
        Self { message: format!("Get {url:?}: {why}"), plain_http_answer: false, in_body: false }
    }

    fn in_body(message: String) -> Self {
        Self { message, plain_http_answer: false, in_body: true }
    }
}

impl HttpAsk {
    /// What the specification asks for. `pod_ip` is whom to ask if it names no host.
    pub(crate) fn of(
        get: &api::HTTPGetAction,
        container: &api::Container,
        pod_ip: &str,
        purpose: Purpose,
    ) -> Result<Self, String> {
        let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(pod_ip);
        // The API server fills in the path where it is missing.
        let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let target = Target {
            tls: get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            host: host.to_owned(),
            port: Some(port(&get.port, container)?),
            path: target::path_and_query(path),
        };
        let mut headers = HeaderMap::new();
        let mut refused = None;
        for header in get.http_headers.iter().flatten() {
            match read_header(&header.name, &header.value) {
                Ok((name, value)) => {
                    headers.append(name, value);
                }
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        let host = headers.remove(HOST).and_then(|host| host.to_str().ok().map(str::to_owned));
        add_usual(&mut headers, purpose);
        Ok(Self { target, host: host.filter(|host| !host.is_empty()), headers, purpose, refused })
    }

    /// The same question without TLS, and without credentials that were not meant for everybody to read.
    pub(crate) fn over_plain_http(&self) -> Self {
        let mut plain = self.clone();
        plain.target.tls = false;
        plain.headers.remove(AUTHORIZATION);
        plain
    }

    /// Whom it asks: `10.0.0.7:8443`.
    pub(crate) fn host_and_port(&self) -> String {
        self.target.authority()
    }

    /// The same question to this host, unless it knows already whom to ask.
    pub(crate) fn at(&self, pod_ip: &str) -> Self {
        let mut there = self.clone();
        if there.target.host.is_empty() {
            there.target.host = pod_ip.to_owned();
        }
        there
    }
}

fn read_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let known =
        HeaderName::try_from(name).map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| format!("net/http: invalid header field value for {:?}", in_go(name)))?;
    // It may be a password: nothing that prints a request shows it.
    value.set_sensitive(true);
    Ok((known, value))
}

/// As Go writes the name of a header: `X-Request-Id`.
fn in_go(name: &str) -> String {
    let mut at_the_head = true;
    let letters = name.chars().map(|letter| {
        let written = if at_the_head { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        at_the_head = letter == '-';
        written
    });
    letters.collect()
}

fn add_usual(headers: &mut HeaderMap, purpose: Purpose) {
    let agent = match purpose {
        Purpose::Probe => format!("kube-probe/{VERSION}"),
        Purpose::Lifecycle => format!("kube-lifecycle/{VERSION}"),
    };
    if !headers.contains_key(USER_AGENT)
        && let Ok(agent) = HeaderValue::try_from(agent)
    {
        headers.insert(USER_AGENT, agent);
    }
    match headers.get(ACCEPT).map(HeaderValue::is_empty) {
        None => {
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        }
        // An empty one says: none at all.
        Some(true) => {
            headers.remove(ACCEPT);
        }
        Some(false) => {}
    }
    match purpose {
        Purpose::Probe => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Upstream's client for hooks is Go's usual one.
        Purpose::Lifecycle if !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE) => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Purpose::Lifecycle => {}
    }
}

/// Asks, and reads the answer.
pub(crate) async fn get(ask: &HttpAsk, timeout: Duration) -> Result<HttpAnswer, HttpError> {
    let mut progress = Progress { target: ask.target.clone(), in_body: false };
    let asked = async {
        let reply = follow(ask, &mut progress.target).await?;
        progress.in_body = true;
        reply.read().await
    };
    match time::timeout(timeout, asked).await {
        Ok(answer) => answer,
        Err(_) if progress.in_body => Err(HttpError::in_body(
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                .to_owned(),
        )),
        Err(_) => Err(HttpError::before_answer(
            &progress.target.url(),
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        )),
    }
}

/// Asks, and is content with any answer. How its body ends does not matter.
pub(crate) async fn call(ask: &HttpAsk) -> Result<(), HttpError> {
    let reply = follow(ask, &mut ask.target.clone()).await?;
    reply.discard().await;
    Ok(())
}

/// How far a question has come, for what is said when its time is over.
struct Progress {
    target: Target,
    in_body: bool,
}

/// The first answer that leads nowhere else on the host. `target` is what is being asked.
async fn follow(ask: &HttpAsk, target: &mut Target) -> Result<Reply, HttpError> {
    if let Some(why) = &ask.refused {
        return Err(HttpError::before_answer(&target.url(), why));
    }
    let mut host = ask.host.clone();
    let mut headers = ask.headers.clone();
    let mut hops = 0;
    loop {
        let reply = exchange::send(target, host.as_deref(), headers, ask.purpose).await?;
        let Some(location) = reply.redirect().map(str::to_owned) else { return Ok(reply) };
        let Some(next) = next_target(ask, target, &location)? else { return Ok(reply) };
        hops += 1;
        if hops >= MOST_REDIRECTS {
            let why = format!("stopped after {MOST_REDIRECTS} redirects");
            return Err(HttpError::before_answer(&location, &why));
        }
        // A host that the specification made up is meant for the same place only.
        if target::is_absolute(&location) {
            host = None;
        }
        headers = ask.headers.clone();
        add_referer(&mut headers, target, &next);
        *target = next;
    }
}

/// Where to ask next. `None`: the answer counts as it is.
fn next_target(ask: &HttpAsk, target: &Target, location: &str) -> Result<Option<Target>, HttpError> {
    match target.resolve(location) {
        Ok(next) => Ok(Some(next).filter(|next| next.host == ask.target.host)),
        Err(Astray::Unaskable { host, why }) if host == ask.target.host => {
            Err(HttpError::before_answer(location, &why))
        }
        Err(Astray::Unaskable { .. } | Astray::Elsewhere) => Ok(None),
        Err(Astray::Unreadable(why)) => {
            let why = format!("failed to parse Location header {location:?}: {why}");
            Err(HttpError::before_answer(&target.url(), &why))
        }
    }
}

/// Who sent us. What was asked under cover is not told in the open.
fn add_referer(headers: &mut HeaderMap, last: &Target, next: &Target) {
    let has_one = headers.get(REFERER).is_some_and(|given| !given.is_empty());
    if has_one || (last.tls && !next.tls) {
        return;
    }
    if let Ok(url) = HeaderValue::try_from(last.url()) {
        headers.insert(REFERER, url);
    }
}

/// A probe's question.
pub(crate) async fn ask(ask: &HttpAsk, timeout: Duration) -> Result<Answer, Trouble> {
    let answer = match get(ask, timeout).await {
        Ok(answer) => answer,
        Err(error) if error.in_body => return Err(Trouble { state: "failure", message: error.message }),
        Err(error) => return Ok(Answer::Failure(error.message)),
    };
    let body = || String::from_utf8_lossy(&answer.body).into_owned();
    Ok(match answer.status {
        200..300 => Answer::Success(body()),
        300..400 => Answer::Warning(format!("Probe terminated redirects, Response body: {}", body())),
        // The body stays out of it: it may hold what is not for everybody who reads events.
        status => Answer::Failure(format!("HTTP probe failed with statuscode: {status}")),
    })
}

#[cfg(test)]
mod tests;

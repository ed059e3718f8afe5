//! A GET, as upstream's probes and hooks send it.
//!
//! - No proxy, no kept connection, no compression; whoever answers over TLS is believed.
//! - Redirects are followed as long as they stay on the host that was asked first. One that leads elsewhere is the answer.
//! - A body is read up to 10 KiB.

use std::time::Duration;

use crablet_model::api;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tokio::time;

use super::dial::host_and_port;
use super::{Answer, MOST_OF_AN_ANSWER, Trouble, VERSION, port};

mod exchange;
mod target;
mod tls;

use target::Target;

/// As many as Go's client follows.
const MOST_REDIRECTS: usize = 10;

/// On whose behalf: it shows in the `User-Agent`.
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
    fn before_answer(message: String) -> Self {
        Self { message, plain_http_answer: false, in_body: false }
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
        let target = Target {
            tls: get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            host: host.to_owned(),
            port: port(&get.port, container)?,
            path: target::path_and_query(get.path.as_deref().unwrap_or_default()),
        };
        let listed = get.http_headers.iter().flatten();
        let mut headers = HeaderMap::new();
        for header in listed {
            let (name, value) = (&header.name, &header.value);
            let name = HeaderName::try_from(name)
                .map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| format!("net/http: invalid header field value for {:?}", header.name))?;
            // It may be a password: nothing that prints a request shows it.
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let host = headers.remove(HOST).and_then(|host| host.to_str().ok().map(str::to_owned));
        add_usual(&mut headers, purpose);
        Ok(Self { target, host: host.filter(|host| !host.is_empty()), headers })
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
        host_and_port(&self.target.host, self.target.port)
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
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Asks, and reads the answer.
pub(crate) async fn get(ask: &HttpAsk, timeout: Option<Duration>) -> Result<HttpAnswer, HttpError> {
    let mut progress = Progress { target: ask.target.clone(), in_body: false };
    let Some(timeout) = timeout else { return follow(ask, &mut progress).await };
    match time::timeout(timeout, follow(ask, &mut progress)).await {
        Ok(answer) => answer,
        Err(_) if progress.in_body => Err(HttpError::in_body(
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                .to_owned(),
        )),
        Err(_) => Err(HttpError::before_answer(format!(
            "Get {:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            progress.target.url()
        ))),
    }
}

/// How far a question has come, for what is said when its time is over.
struct Progress {
    target: Target,
    in_body: bool,
}

async fn follow(ask: &HttpAsk, progress: &mut Progress) -> Result<HttpAnswer, HttpError> {
    let mut host = ask.host.clone();
    let mut hops = 0;
    loop {
        let target = progress.target.clone();
        let reply = exchange::send(&target, host.as_deref(), ask.headers.clone()).await?;
        let location = reply.redirect().map(str::to_owned);
        let next = location.as_deref().and_then(|location| target.resolve(location));
        let Some(next) = next.filter(|next| next.host == ask.target.host) else {
            progress.in_body = true;
            return reply.read().await;
        };
        hops += 1;
        if hops >= MOST_REDIRECTS {
            let message = format!("Get {:?}: stopped after {MOST_REDIRECTS} redirects", next.url());
            return Err(HttpError::before_answer(message));
        }
        // A host that the specification made up is meant for the same place only.
        if location.is_some_and(|location| target::names_a_host(&location)) {
            host = None;
        }
        progress.target = next;
    }
}

/// A probe's question.
pub(crate) async fn ask(ask: &HttpAsk, timeout: Duration) -> Result<Answer, Trouble> {
    let answer = match get(ask, Some(timeout)).await {
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

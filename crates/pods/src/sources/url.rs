//! The manifest URL as a source.

use std::time::Duration;

use async_trait::async_trait;
use crablet_model::hash::fnv1a_128;
use crablet_model::manifest::{self, Gates, MAX_MANIFEST_BYTES, Origin};
use tokio::sync::watch;
use tokio::time::sleep;

use super::control::changed;
use super::mux::Stated;
use super::outlet::{Closed, Outlet};
use super::{Source, SourceSettings};

/// For one request, redirects included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After this many failures in a row the log is spared.
const LOUD_FAILURES: u32 = 3;

/// A GET over the network, the only thing this source asks of it.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// Follows redirects. A body of more than `limit` bytes is an error, and so is no answer within `timeout`.
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
        timeout: Duration,
    ) -> Result<Fetched, FetchError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub status: u16,
    /// `404 Not Found`
    pub status_line: String,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("not a usable URL: {0}")]
    BadUrl(String),
    #[error("not a usable header: `{0}`")]
    BadHeader(String),
    #[error("no trusted certificates: {0}")]
    NoRoots(String),
    #[error("{0}")]
    Connection(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("stopped after {0} redirects")]
    Redirects(usize),
}

pub(super) async fn run(
    url: String,
    settings: SourceSettings,
    mut pace: watch::Receiver<Duration>,
    fetch: std::sync::Arc<dyn Fetch>,
    outlet: Outlet,
) {
    let mut poll = Poll { url, node_name: settings.node_name, gates: settings.gates, seen: None };
    let mut failures: u32 = 0;
    loop {
        let fetched = fetch.get(&poll.url, &settings.url_headers, MAX_MANIFEST_BYTES, TIMEOUT).await;
        match poll.state(fetched, &outlet).await {
            Ok(Ok(())) => {
                failures = 0;
                outlet.problems().set(Source::Url, Vec::new());
            }
            Ok(Err(problem)) => {
                failures = failures.saturating_add(1);
                complain(failures, &problem);
                outlet.problems().set(Source::Url, vec![format!("cannot take manifests from {problem}")]);
            }
            Err(Closed) => return,
        }
        pause(&mut pace).await;
    }
}

/// One period, counted anew when it changes.
async fn pause(pace: &mut watch::Receiver<Duration>) {
    loop {
        let period = *pace.borrow_and_update();
        tokio::select! {
            biased;
            () = changed(pace) => {}
            () = sleep(period) => return,
        }
    }
}

fn complain(failures: u32, problem: &str) {
    if failures <= LOUD_FAILURES {
        tracing::warn!("cannot take manifests from {problem}");
    } else if failures == LOUD_FAILURES + 1 {
        tracing::warn!(
            "cannot take manifests from {problem}; further failures are logged at debug level only"
        );
    } else {
        tracing::debug!("cannot take manifests from {problem}");
    }
}

struct Poll {
    url: String,
    node_name: String,
    gates: Gates,
    /// The body that was looked at last, good or not.
    seen: Option<u128>,
}

impl Poll {
    /// States what the answer holds. The inner error names the URL and what was wrong; the pods then stay as they are.
    async fn state(
        &mut self,
        fetched: Result<Fetched, FetchError>,
        outlet: &Outlet,
    ) -> Result<Result<(), String>, Closed> {
        let url = shown(&self.url);
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return Ok(Err(format!("{url}: {error}"))),
        };
        if fetched.status != 200 {
            return Ok(Err(format!("{url}: {}", fetched.status_line)));
        }
        if fetched.body.is_empty() {
            // Upstream v1.36 would take the body from before as already known when it comes back; here it counts again.
            self.seen = None;
            outlet.set(Source::Url, &mut []).await?;
            return Ok(Err(format!("{url}: the answer is empty")));
        }
        let digest = fnv1a_128(&fetched.body);
        if self.seen.replace(digest) == Some(digest) {
            return Ok(Ok(()));
        }
        let origin = Origin::Url { url: &self.url };
        match manifest::decode_pods(&fetched.body, &origin, &self.node_name, self.gates) {
            Ok(decoded) => {
                for warning in decoded.iter().flat_map(|decoded| &decoded.warnings) {
                    tracing::warn!("manifest from {url}: {warning}");
                }
                let mut pods: Vec<_> = decoded.iter().map(|decoded| Stated::of(&decoded.pod)).collect();
                outlet.set(Source::Url, &mut pods).await?;
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(format!("{url}: {error}"))),
        }
    }
}

/// The URL without a password that it may carry.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return format!("`{url}`") };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((credentials, _)) => format!("`{scheme}://{}`", &rest[credentials.len() + 1..]),
        None => format!("`{url}`"),
    }
}

#[cfg(test)]
mod tests;

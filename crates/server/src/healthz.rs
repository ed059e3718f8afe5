//! `/healthz`, in upstream's form: `ok`, or a line per check.
//!
//! Upstream has a fourth check, `device-plugin`, about the socket where device plugins register. There is none here yet.

mod log;

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;
use tracing::debug;

use crate::mux::{Entry, Mux, dispatching};
use crate::ports::PodView;
use crate::query::Query;
use crate::reply;
use log::LogCheck;

/// The names of the checks, in the order in which they are listed. `ping` says that this program answers at all.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

pub(crate) const ENTRIES: [Entry; 4] = [
    Entry::Page("/healthz"),
    Entry::Page("/healthz/ping"),
    Entry::Page("/healthz/log"),
    Entry::Page("/healthz/syncloop"),
];

/// All that port 10248 serves: whether this program answers, and no word about pods.
pub fn router(_: Arc<dyn PodView>) -> Router {
    let ping = Health { checks: &CHECKS[..1], view: None, log: LogCheck::default() };
    Mux::new(ENTRIES[..2].to_vec()).in_front_of(dispatching(ping.routes()))
}

/// For routers that serve more.
pub(crate) fn routes(view: Arc<dyn PodView>) -> Router {
    Health { checks: &CHECKS, view: Some(view), log: LogCheck::default() }.routes()
}

#[derive(Clone)]
struct Health {
    checks: &'static [&'static str],
    view: Option<Arc<dyn PodView>>,
    log: LogCheck,
}

impl Health {
    fn routes(self) -> Router {
        let mut router = Router::new().route("/healthz", any(all));
        for check in self.checks {
            let one = move |State(health): State<Self>| async move { health.answer(check) };
            router = router.route(&format!("/healthz/{check}"), any(one));
        }
        router.with_state(self)
    }

    fn run(&self, check: &str) -> Result<(), String> {
        match (check, &self.view) {
            ("log", _) => self.log.run(),
            ("syncloop", Some(view)) => view.health(),
            _ => Ok(()),
        }
    }

    fn answer(&self, check: &str) -> Response {
        match self.run(check) {
            Ok(()) => reply::plain(StatusCode::OK, "ok"),
            Err(why) => {
                reply::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
            }
        }
    }
}

/// Upstream lets any method ask. What is wrong is told only where one check is asked for, which needs a permission of its own.
async fn all(State(health): State<Health>, RawQuery(query): RawQuery) -> Response {
    let query = Query::parse(&query.unwrap_or_default());
    let mut unknown: Vec<&str> = query.all("exclude").collect();
    let excluded = unknown.clone();
    unknown.retain(|name| !health.checks.contains(name));
    unknown.sort_unstable();
    unknown.dedup();

    let mut lines = String::new();
    let mut failed = false;
    for check in health.checks {
        // Writing to a string cannot fail.
        let _ = if excluded.contains(check) {
            writeln!(lines, "[+]{check} excluded: ok")
        } else {
            match health.run(check) {
                Ok(()) => writeln!(lines, "[+]{check} ok"),
                Err(why) => {
                    failed = true;
                    debug!(check, err = %why, "A health check failed");
                    writeln!(lines, "[-]{check} failed: reason withheld")
                }
            }
        };
    }
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let names = quoted.join(",");
        let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    if failed {
        reply::text(StatusCode::INTERNAL_SERVER_ERROR, lines + "healthz check failed\n")
    } else if query.first("verbose").is_some() {
        reply::text(StatusCode::OK, lines + "healthz check passed\n")
    } else {
        reply::text(StatusCode::OK, "ok")
    }
}

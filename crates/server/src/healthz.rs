//! `/healthz`, in upstream's form: `ok`, or a line per check.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;

use crate::ports::PodView;
use crate::reply;

/// The names of the checks, in the order in which they are listed. `ping` says that this program answers at all.
const CHECKS: [&str; 2] = ["ping", "syncloop"];

/// All that port 10248 serves.
pub fn router(view: Arc<dyn PodView>) -> Router {
    routes(view).fallback(reply::not_found)
}

/// For routers that serve more.
pub(crate) fn routes(view: Arc<dyn PodView>) -> Router {
    Router::new()
        .route("/healthz", any(all))
        .route("/healthz/", any(all))
        .route("/healthz/{check}", any(one))
        .with_state(view)
}

/// Upstream lets any method ask.
async fn all(State(view): State<Arc<dyn PodView>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let verbose = pairs().any(|(key, _)| key == "verbose");
    let excluded: Vec<&str> = pairs().filter(|(key, _)| *key == "exclude").map(|(_, value)| value).collect();

    let mut lines = String::new();
    let mut failed = false;
    for check in CHECKS {
        // Writing to a string cannot fail.
        let _ = if excluded.contains(&check) {
            writeln!(lines, "[+]{check} excluded: ok")
        } else {
            match run(check, view.as_ref()) {
                Ok(()) => writeln!(lines, "[+]{check} ok"),
                Err(why) => {
                    failed = true;
                    writeln!(lines, "[-]{check} failed: {why}")
                }
            }
        };
    }
    for name in excluded.iter().filter(|name| !CHECKS.contains(name)) {
        let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {name:?}");
    }
    if failed {
        reply::text(StatusCode::INTERNAL_SERVER_ERROR, lines + "healthz check failed\n")
    } else if verbose {
        reply::text(StatusCode::OK, lines + "healthz check passed\n")
    } else {
        reply::text(StatusCode::OK, "ok")
    }
}

async fn one(State(view): State<Arc<dyn PodView>>, Path(check): Path<String>) -> Response {
    if !CHECKS.contains(&check.as_str()) {
        return reply::not_found().await;
    }
    match run(&check, view.as_ref()) {
        Ok(()) => reply::text(StatusCode::OK, "ok"),
        Err(why) => reply::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}")),
    }
}

fn run(check: &str, view: &dyn PodView) -> Result<(), String> {
    match check {
        "syncloop" => view.health(),
        _ => Ok(()),
    }
}

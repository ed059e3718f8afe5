//! `/debug/pprof/`: profiles of Go's runtime. There is none here, and so no profiles; the command line there is.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::reply;

pub(super) fn routes() -> Router {
    Router::new()
        .route("/debug/pprof/cmdline", get(command_line))
        .route("/debug/pprof/{*profile}", get(no_profile))
}

/// With a zero byte between arguments, as upstream.
async fn command_line() -> Response {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    reply::text(StatusCode::OK, arguments.join("\0"))
}

async fn no_profile(Path(profile): Path<String>) -> Response {
    const OF_GO: [&str; 9] =
        ["allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"];
    let why = match OF_GO.contains(&profile.as_str()) {
        true => "this profile is one of Go's runtime, which this kubelet does not have",
        false => "Unknown profile",
    };
    reply::line(StatusCode::NOT_FOUND, why)
}

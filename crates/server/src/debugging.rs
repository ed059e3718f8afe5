//! What upstream serves only where `enableDebuggingHandlers` is true, which is the default.
//!
//! | module | what it is |
//! |---|---|
//! | [`containers`] | `/runningpods/`, `/run/` and `/checkpoint/` |
//! | [`files`] | `/logs/`: the node's own log files, and nothing beside them |
//! | [`query`] | the same path with a query: logs of services, from the journal or from files |
//! | [`zpages`] | `/flagz` and `/statusz` |
//! | [`verbosity`] | `/debug/flags/v` |
//! | [`pprof`] | `/debug/pprof/`: what can be said without Go's runtime |

mod containers;
mod files;
mod pprof;
mod query;
mod verbosity;
mod zpages;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;

use crate::kubelet::{KubeletServerPorts, KubeletServerSettings};
use crate::logs::{self, LogService, Watcher};
use crate::mux::{Below, Entry, Route, json_route, route};
use crate::reply;
use crate::streaming::Streaming;

const LOGS: Entry = Entry::Service("/logs/", &[route(0, &["GET"]), ANYTHING]);
const PROFILES: Entry = Entry::Service("/debug/pprof/", &[ANYTHING]);
const ANYTHING: Route = Route { below: Below::AtLeastOne, ..route(0, &["GET"]) };

const CHECKPOINT: Entry = Entry::Service("/checkpoint/", &[json_route(3, &["POST"])]);
const STREAM: &[&str] = &["GET", "POST"];

/// What is there whatever the settings say.
const ALWAYS: [Entry; 8] = [
    Entry::Page("/debug/flags/v"),
    Entry::Service("/run", &[route(3, &["POST"]), route(4, &["POST"])]),
    Entry::Service("/exec", &[route(3, STREAM), route(4, STREAM)]),
    Entry::Service("/attach", &[route(3, STREAM), route(4, STREAM)]),
    Entry::Service("/portForward", &[route(2, STREAM), route(3, STREAM)]),
    logs::ENTRY,
    Entry::Page("/configz"),
    Entry::Service("/runningpods/", &[json_route(0, &["GET"])]),
];

pub(crate) fn entries(settings: &KubeletServerSettings) -> Vec<Entry> {
    let mut entries = ALWAYS.to_vec();
    entries.push(if settings.system_logs { LOGS } else { Entry::Tree("/logs/") });
    entries.push(if settings.profiling_handler { PROFILES } else { Entry::Tree("/debug/pprof/") });
    entries.extend(settings.checkpoint.then_some(CHECKPOINT));
    entries.extend(settings.flagz.then_some(Entry::Page("/flagz")));
    entries.extend(settings.statusz.then_some(Entry::Page("/statusz")));
    entries
}

/// `listed` are the paths that `/statusz` tells of.
pub(crate) fn routes(
    settings: &KubeletServerSettings,
    ports: KubeletServerPorts,
    listed: Vec<String>,
) -> Router {
    let KubeletServerPorts { logs, containers, verbosity, configz, flags, version, started, clock, .. } =
        ports;
    let logs = LogService {
        logs,
        clock: clock.clone(),
        split_streams: settings.split_log_streams,
        watcher: Watcher::default(),
    };
    let streaming = Streaming { containers: containers.clone(), websockets: settings.websockets };
    let configz = any(|| async move {
        let mut answer = reply::json(StatusCode::OK, configz);
        answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        answer
    });
    let system_logs = match settings.system_logs {
        true => files::routes(ports.system_log_folder, settings.system_log_query.then_some(ports.journalctl)),
        false => switched_off(&["/logs/"], "logs endpoint is disabled."),
    };
    let profiles = match settings.profiling_handler {
        true => pprof::routes(),
        false => switched_off(&["/debug/pprof/"], "profiling endpoint is disabled."),
    };
    let verbosity = match settings.debug_flags_handler {
        true => verbosity::routes(verbosity),
        false => Router::new().route("/debug/flags/v", any(async || refusal("flags endpoint is disabled."))),
    };
    Router::new()
        .route("/configz", configz)
        .merge(logs.routes())
        .merge(streaming.routes())
        .merge(containers::routes(containers))
        .merge(system_logs)
        .merge(profiles)
        .merge(verbosity)
        .merge(zpages::Pages { flags, version, started, listed, clock }.routes())
}

const OFF: [&str; 8] = [
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/containerLogs/",
    "/runningpods/",
    "/debug/pprof/",
    "/logs/",
];

/// What there is to refuse where debugging handlers are off.
pub(crate) const DISABLED: [Entry; 8] = {
    let mut entries = [Entry::Tree(""); 8];
    let mut index = 0;
    while index < OFF.len() {
        entries[index] = Entry::Tree(OFF[index]);
        index += 1;
    }
    entries
};

pub(crate) fn disabled() -> Router {
    switched_off(&OFF, "Debug endpoints are disabled.")
}

fn switched_off(trees: &[&str], text: &'static str) -> Router {
    trees.iter().fold(Router::new(), |router, tree| {
        let answer = any(async move || refusal(text));
        router.route(tree.trim_end_matches('/'), answer.clone()).route(&format!("{tree}{{*rest}}"), answer)
    })
}

fn refusal(text: &str) -> Response {
    reply::line(StatusCode::METHOD_NOT_ALLOWED, text)
}

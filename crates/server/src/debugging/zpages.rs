//! `/flagz` and `/statusz`: pages about the program itself, as text for people or as objects of `config.k8s.io`.
//!
//! | module | what it is |
//! |---|---|
//! | [`negotiate`] | from the `Accept` header to the form of the answer |
//! | [`yaml`] | an object as YAML |

mod negotiate;
mod yaml;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use crablet_host::Clock;
use jiff::Timestamp;
use serde::Serialize;

use crate::query::Query;
use crate::reply;
use negotiate::{Encoding, Form, Version, negotiate};

const COMPONENT: &str = "kubelet";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";
/// What upstream's page has here, this program has not.
const GO_VERSION: &str = "none (Rust)";

pub(super) struct Pages {
    pub flags: BTreeMap<String, String>,
    pub version: String,
    pub started: Timestamp,
    /// For `/statusz`.
    pub listed: Vec<String>,
    pub clock: Arc<dyn Clock>,
}

impl Pages {
    /// Whether each is served is decided before a request comes here.
    pub fn routes(self) -> Router {
        Router::new().route("/flagz", any(flagz)).route("/statusz", any(statusz)).with_state(Arc::new(self))
    }

    /// Nobody should take the text for a format: upstream draws what stands between names and values by lot, ours depends
    /// on when the program was started.
    fn delimiter(&self) -> &'static str {
        const DELIMITERS: [&str; 4] = [":", ": ", "=", " "];
        DELIMITERS[usize::try_from(self.started.as_second().rem_euclid(4)).unwrap_or_default()]
    }

    fn uptime(&self) -> i64 {
        self.clock.now().duration_since(self.started).as_secs().max(0)
    }

    /// `1.36.4`, and of that what is emulated: `1.36`.
    fn versions(&self) -> (&str, String) {
        let binary = self.version.strip_prefix('v').unwrap_or(&self.version);
        let emulated: Vec<&str> = binary.splitn(3, '.').take(2).collect();
        (binary, emulated.join("."))
    }

    fn flags_as_text(&self) -> String {
        let delimiter = self.delimiter();
        let lines = self.flags.iter().map(|(name, value)| format!("{name}{delimiter}{value}\n"));
        format!("\n{COMPONENT} flagz\n{WARNING}\n{}", lines.collect::<String>())
    }

    fn status_as_text(&self) -> String {
        let delimiter = self.delimiter();
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let up = self.uptime();
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let (binary, emulated) = self.versions();
        let listed = self.listed.join(" ");
        format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\n\
             Started{delimiter} {started}\n\
             Up{delimiter} {hours} hr {minutes:02} min {seconds:02} sec\n\
             Go version{delimiter} {GO_VERSION}\n\
             Binary version{delimiter} {binary}\n\
             Emulation version{delimiter} {emulated}\n\
             Paths{delimiter} {listed}\n"
        )
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
struct Flags<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    flags: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    start_time: String,
    uptime_seconds: i64,
    go_version: &'static str,
    binary_version: &'a str,
    emulation_version: String,
    paths: &'a [String],
}

async fn flagz(State(pages): State<Arc<Pages>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    match form("Flagz", &headers, query) {
        Ok(Form::Text) => text(pages.flags_as_text()),
        Ok(Form::Object { version, encoding }) => {
            object("flagz", "Flagz", version, encoding, Flags { flags: &pages.flags })
        }
        Err(encoding) => not_acceptable(encoding),
    }
}

async fn statusz(State(pages): State<Arc<Pages>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    match form("Statusz", &headers, query) {
        Ok(Form::Text) => text(pages.status_as_text()),
        Ok(Form::Object { version, encoding }) => {
            let (binary_version, emulation_version) = pages.versions();
            let status = Status {
                start_time: pages.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                uptime_seconds: pages.uptime(),
                go_version: GO_VERSION,
                binary_version,
                emulation_version,
                paths: &pages.listed,
            };
            object("statusz", "Statusz", version, encoding, status)
        }
        Err(encoding) => not_acceptable(encoding),
    }
}

/// `Err` with the form of the refusal.
fn form(kind: &str, headers: &HeaderMap, query: Option<String>) -> Result<Form, Encoding> {
    let header =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    // Those whom people use directly get indented JSON.
    let pretty = match Query::parse(&query.unwrap_or_default()).first("pretty") {
        Some(said) if !said.is_empty() => matches!(said, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        _ => {
            let agent = header(header::USER_AGENT);
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
        }
    };
    negotiate(header(header::ACCEPT), kind, pretty)
}

/// Unlike other text, without a word about sniffing, as upstream.
fn text(text: String) -> Response {
    reply::of(StatusCode::OK, HeaderValue::from_static("text/plain; charset=utf-8"), Body::from(text))
}

fn object<T: Serialize>(
    endpoint: &str,
    kind: &'static str,
    version: Version,
    encoding: Encoding,
    content: T,
) -> Response {
    let (name, api_version) = match version {
        Version::V1alpha1 => ("v1alpha1", "config.k8s.io/v1alpha1"),
        Version::V1beta1 => ("v1beta1", "config.k8s.io/v1beta1"),
    };
    let object = Object { kind, api_version, metadata: Metadata { name: COMPONENT }, content };
    let Some((media, body)) = encode(&object, encoding) else {
        return reply::line(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error");
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    if let Ok(media) = HeaderValue::from_str(&format!("{media};g=config.k8s.io;v={name};as={kind}")) {
        headers.insert(header::CONTENT_TYPE, media);
    }
    let warning = format!(
        "299 - \"This version of the {endpoint} endpoint is deprecated. Please use a newer version.\""
    );
    if let (Version::V1alpha1, Ok(warning)) = (version, HeaderValue::from_str(&warning)) {
        headers.insert(header::WARNING, warning);
    }
    response
}

fn encode(object: &impl Serialize, encoding: Encoding) -> Option<(&'static str, String)> {
    Some(match encoding {
        Encoding::Json => ("application/json", as_go_escapes(&serde_json::to_string(object).ok()?) + "\n"),
        Encoding::IndentedJson => {
            ("application/json", as_go_escapes(&serde_json::to_string_pretty(object).ok()?))
        }
        Encoding::Yaml => ("application/yaml", yaml::print(&serde_json::to_value(object).ok()?)),
    })
}

/// These stand in strings only.
fn as_go_escapes(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn not_acceptable(encoding: Encoding) -> Response {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Refusal {
        kind: &'static str,
        api_version: &'static str,
        metadata: BTreeMap<String, String>,
        status: &'static str,
        message: &'static str,
        reason: &'static str,
        code: u16,
    }
    let refusal = Refusal {
        kind: "Status",
        api_version: "v1",
        metadata: BTreeMap::new(),
        status: "Failure",
        message: "only the following media types are accepted: application/json, application/yaml, text/plain",
        reason: "NotAcceptable",
        code: 406,
    };
    let (media, body) = encode(&refusal, encoding).unwrap_or_default();
    let media = HeaderValue::from_static(media);
    reply::of(StatusCode::NOT_ACCEPTABLE, media, Body::from(body))
}

//! `/logs/`: the node's log files, served as Go's file server serves a folder.
//!
//! | module | what it is |
//! |---|---|
//! | [`root`] | opens files in the folder, and nothing else |
//! | [`listing`] | a folder as a page |
//! | [`conditions`] | whether the client has the file already |
//! | [`ranges`] | which pieces of it are asked for |
//! | [`kind`] | what kind of content it has |
//! | [`body`] | the file's bytes, a block at a time |

mod body;
mod conditions;
mod kind;
mod listing;
mod ranges;
pub(super) mod root;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use jiff::Timestamp;

use super::query::{self, NodeLogs};
use crate::mux::{DecodedPath, path};
use crate::reply;
use conditions::Condition;
use ranges::{BadRange, Piece};
use root::{Refusal, Root};

/// `journalctl`: where queries are answered, too.
pub(super) fn routes(folder: PathBuf, journalctl: Option<PathBuf>) -> Router {
    let logs = Arc::new(SystemLogs { folder, journalctl });
    Router::new().route("/logs", get(answer)).route("/logs/{*path}", get(answer)).with_state(logs)
}

pub(super) struct SystemLogs {
    folder: PathBuf,
    journalctl: Option<PathBuf>,
}

async fn answer(
    State(logs): State<Arc<SystemLogs>>,
    Extension(DecodedPath(path)): Extension<DecodedPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Some(below) = path.strip_prefix(b"/logs/") else { return reply::no_page() };
    let query = query.unwrap_or_default();
    let mut wanted = Wanted { path: below.to_vec(), query: query.clone(), headers };
    if let Some(journalctl) = &logs.journalctl {
        let at_the_top = matches!(below, b"" | b"/");
        let node_logs = NodeLogs { folder: logs.folder.clone(), journalctl: journalctl.clone() };
        match query::answer(node_logs, &query, at_the_top, &wanted.headers).await {
            query::Answer::NotAQuery => {}
            query::Answer::File(name) => wanted.path = name.into_bytes(),
            query::Answer::Response(response) => return response,
        }
    }
    let folder = logs.folder.clone();
    // Disks are waited for outside tokio's own threads.
    match tokio::task::spawn_blocking(move || wanted.serve(&folder)).await {
        Ok(response) => response,
        Err(_) => failed("500 Internal Server Error"),
    }
}

struct Wanted {
    /// Below `/logs/`, decoded.
    path: Vec<u8>,
    query: String,
    headers: HeaderMap,
}

impl Wanted {
    fn serve(&self, folder: &std::path::Path) -> Response {
        self.find(folder).unwrap_or_else(refused)
    }

    fn find(&self, folder: &std::path::Path) -> Result<Response, Refusal> {
        let mut url = self.path.clone();
        if !url.starts_with(b"/") {
            url.insert(0, b'/');
        }
        if url.ends_with(b"/index.html") {
            return Ok(self.moved("./"));
        }
        let root = Root::open(folder)?;
        // From here on there is no `..` in it.
        let name = path::clean_bytes(&url);
        let file = root.file(&name)?;
        let metadata = file.metadata()?;
        let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match (metadata.is_dir(), url.ends_with(b"/")) {
            (true, false) => Ok(self.moved(&format!("{}/", text(last)))),
            (false, true) => Ok(self.moved(&format!("../{}", text(last)))),
            (false, false) => self.content(file, last),
            (true, true) => {
                let index = [&name, b"/index.html".as_slice()].concat();
                match root.file(&index) {
                    Ok(index) if index.metadata()?.is_file() => self.content(index, b"index.html"),
                    _ => Ok(self.listing(&file, changed(&metadata))),
                }
            }
        }
    }

    /// Relative, unlike other redirects: who stands between knows this path by another name.
    fn moved(&self, to: &str) -> Response {
        let mut location = to.to_owned();
        if !self.query.is_empty() {
            location = format!("{location}?{}", self.query);
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        match HeaderValue::from_bytes(location.as_bytes()) {
            Ok(location) => {
                response.headers_mut().insert(header::LOCATION, location);
                response
            }
            // A name with a line break in it cannot be told in a header.
            Err(_) => reply::no_page(),
        }
    }

    fn listing(&self, folder: &File, changed: Timestamp) -> Response {
        if conditions::is_unchanged(&self.headers, changed) {
            return empty(StatusCode::NOT_MODIFIED);
        }
        match listing::page(folder) {
            Ok(page) => {
                let kind = HeaderValue::from_static("text/html; charset=utf-8");
                let mut response = reply::of(StatusCode::OK, kind, Body::from(page));
                set_last_modified(&mut response, changed);
                response
            }
            Err(_) => failed("Error reading directory"),
        }
    }

    fn content(&self, file: File, name: &[u8]) -> Result<Response, Refusal> {
        let metadata = file.metadata()?;
        let (size, changed) = (metadata.len(), changed(&metadata));
        let condition = conditions::judge(&self.headers, changed);
        if let Some(status) = condition.status() {
            let mut response = empty(status);
            set_last_modified(&mut response, changed);
            return Ok(response);
        }
        let kind = match kind::by_ending(name) {
            Some(kind) => kind,
            None => kind::by_beginning(&beginning(&file)?),
        };
        let range = self.headers.get(header::RANGE).filter(|_| condition == Condition::Send { ranges: true });
        let range = range.map(|range| range.to_str().unwrap_or("?")).filter(|range| !range.is_empty());
        let pieces = match range.map_or(Ok(Vec::new()), |range| ranges::parse(range, size)) {
            Ok(pieces) => pieces,
            Err(bad) => return Ok(unsatisfiable(bad, size)),
        };
        let mut response = match pieces.as_slice() {
            [] => body::whole(file, Piece { start: 0, length: size }, kind),
            [piece] => {
                let mut response = body::whole(file, *piece, kind);
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                if let Ok(range) = HeaderValue::from_str(&piece.content_range(size)) {
                    response.headers_mut().insert(header::CONTENT_RANGE, range);
                }
                response
            }
            _ => body::in_parts(file, pieces, kind, size)?,
        };
        response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        set_last_modified(&mut response, changed);
        Ok(response)
    }
}

fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; kind::SNIFFED];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// In seconds: headers have no more.
fn changed(metadata: &std::fs::Metadata) -> Timestamp {
    Timestamp::from_second(metadata.mtime()).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn set_last_modified(response: &mut Response, changed: Timestamp) {
    if let (true, Ok(time)) =
        (changed != Timestamp::UNIX_EPOCH, HeaderValue::from_str(&conditions::print_time(changed)))
    {
        response.headers_mut().insert(header::LAST_MODIFIED, time);
    }
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn unsatisfiable(bad: BadRange, size: u64) -> Response {
    let why = match bad {
        BadRange::Invalid => "invalid range",
        BadRange::NoOverlap => "invalid range: failed to overlap",
    };
    let mut response = reply::line(StatusCode::RANGE_NOT_SATISFIABLE, why);
    if let (BadRange::NoOverlap, Ok(range)) = (bad, HeaderValue::from_str(&format!("bytes */{size}"))) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

fn failed(why: &str) -> Response {
    reply::line(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// Go does not say more than this about what went wrong.
fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::NotFound => reply::no_page(),
        Refusal::Forbidden | Refusal::Outside | Refusal::NotAFile => {
            reply::line(StatusCode::FORBIDDEN, "403 Forbidden")
        }
        Refusal::Failed(_) => failed("500 Internal Server Error"),
    }
}

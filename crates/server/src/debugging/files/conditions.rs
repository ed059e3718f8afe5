//! Whether a client wants a file at all, by what it has already.
//!
//! There are no tags of versions here, only times: a tag that is asked for is never the right one.

use axum::http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Send { ranges: bool },
    NotModified,
    Failed,
}

impl Condition {
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Send { .. } => None,
            Self::NotModified => Some(StatusCode::NOT_MODIFIED),
            Self::Failed => Some(StatusCode::PRECONDITION_FAILED),
        }
    }
}

/// For a file that was changed then, in seconds.
pub fn judge(headers: &HeaderMap, changed: Timestamp) -> Condition {
    let get = |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let time = |name| get(name).and_then(parse_time);
    let known = changed != Timestamp::UNIX_EPOCH;
    let wrong = match get(header::IF_MATCH) {
        Some(tags) => !names_any(tags),
        None => known && time(header::IF_UNMODIFIED_SINCE).is_some_and(|since| changed > since),
    };
    if wrong {
        return Condition::Failed;
    }
    let unchanged = match get(header::IF_NONE_MATCH) {
        Some(tags) => names_any(tags),
        None => is_unchanged(headers, changed),
    };
    if unchanged {
        return Condition::NotModified;
    }
    let ranges = get(header::IF_RANGE).is_none_or(|text| parse_time(text) == Some(changed));
    Condition::Send { ranges }
}

/// For a folder, this is all that is asked.
pub fn is_unchanged(headers: &HeaderMap, changed: Timestamp) -> bool {
    let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    changed != Timestamp::UNIX_EPOCH && since.and_then(parse_time).is_some_and(|since| changed <= since)
}

/// A star among tags, before anything that is no tag.
fn names_any(tags: &str) -> bool {
    let first_strange = tags.split(',').map(str::trim).find(|tag| {
        let bare = tag.strip_prefix("W/").unwrap_or(tag);
        let is_tag = bare.len() >= 2 && bare.starts_with('"') && bare.ends_with('"');
        !tag.is_empty() && !is_tag
    });
    first_strange.is_some_and(|tag| tag.starts_with('*'))
}

/// `Mon, 02 Jan 2006 15:04:05 GMT`. Go reads two older forms as well, which nobody writes.
fn parse_time(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

pub fn print_time(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

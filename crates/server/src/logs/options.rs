//! What of a log is asked for: `v1.PodLogOptions` as a query.

use jiff::{SignedDuration, Timestamp};

use crate::query::Query;

/// Upstream's two kinds of bad queries; it does not say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQuery {
    Undecodable,
    Invalid,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStream {
    #[default]
    All,
    Stdout,
    Stderr,
}

impl LogStream {
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Stdout => "Stdout",
            Self::Stderr => "Stderr",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub since: Since,
    pub tail: Option<u64>,
    pub limit: Option<u64>,
    pub stream: LogStream,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    #[default]
    Always,
    Seconds(i64),
    Time(Timestamp),
}

impl Since {
    pub fn moment(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Always => None,
            Self::Seconds(seconds) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
            Self::Time(time) => Some(time),
        }
    }
}

impl LogOptions {
    pub fn parse(query: &str) -> Result<Self, BadQuery> {
        let values = Query::parse(query);
        let mut tail_lines = numbered(&values, "tailLines");
        // The old name, of which "all" is the same as nothing.
        match values.first("tail") {
            Some("all") => tail_lines = Ok(None),
            Some(tail) if !tail.is_empty() => tail_lines = number(tail).map(Some),
            _ => {}
        }
        let (tail_lines, since_seconds) = (tail_lines?, numbered(&values, "sinceSeconds")?);
        let (since_time, limit_bytes) = (time(&values, "sinceTime")?, numbered(&values, "limitBytes")?);
        let since = match (since_seconds, since_time) {
            (Some(_), Some(_)) => return Err(BadQuery::Invalid),
            (Some(seconds), None) if seconds < 1 => return Err(BadQuery::Invalid),
            (Some(seconds), None) => Since::Seconds(seconds),
            (None, Some(Some(time))) => Since::Time(time),
            (None, Some(None) | None) => Since::Always,
        };
        let stream = match values.first("stream") {
            None | Some("All") => LogStream::All,
            Some("Stdout") => LogStream::Stdout,
            Some("Stderr") => LogStream::Stderr,
            Some(_) => return Err(BadQuery::Invalid),
        };
        if stream != LogStream::All && tail_lines.is_some() {
            return Err(BadQuery::Invalid);
        }
        Ok(Self {
            follow: flag(&values, "follow"),
            previous: flag(&values, "previous"),
            timestamps: flag(&values, "timestamps"),
            since,
            tail: at_least(0, tail_lines)?,
            limit: at_least(1, limit_bytes)?,
            stream,
        })
    }
}

fn at_least(least: u64, value: Option<i64>) -> Result<Option<u64>, BadQuery> {
    match value.map(u64::try_from) {
        None => Ok(None),
        Some(Ok(value)) if value >= least => Ok(Some(value)),
        Some(_) => Err(BadQuery::Invalid),
    }
}

fn number(text: &str) -> Result<i64, BadQuery> {
    text.parse().map_err(|_| BadQuery::Undecodable)
}

/// Anything is true but `0` and `false`, also nothing.
fn flag(query: &Query, name: &str) -> bool {
    query.first(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn numbered(query: &Query, name: &str) -> Result<Option<i64>, BadQuery> {
    query.first(name).map(number).transpose()
}

/// The inner `None`: said to be none.
fn time(query: &Query, name: &str) -> Result<Option<Option<Timestamp>>, BadQuery> {
    match query.first(name) {
        None => Ok(None),
        Some("" | "null") => Ok(Some(None)),
        Some(text) => text.parse().map(|time| Some(Some(time))).map_err(|_| BadQuery::Undecodable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_mean_what_they_mean_upstream() {
        let parsed = |query: &str| LogOptions::parse(query);
        let default = LogOptions::default;
        for (query, expected) in [
            ("", default()),
            (
                "follow=true&previous&timestamps=no",
                LogOptions { follow: true, previous: true, timestamps: true, ..default() },
            ),
            ("follow=0&previous=False", default()),
            ("tailLines=5&tailLines=x", LogOptions { tail: Some(5), ..default() }),
            ("tail=all&tailLines=5", default()),
            ("tail=7&tailLines=x", LogOptions { tail: Some(7), ..default() }),
            ("tailLines=0&limitBytes=1", LogOptions { tail: Some(0), limit: Some(1), ..default() }),
            ("sinceSeconds=10", LogOptions { since: Since::Seconds(10), ..default() }),
            (
                "sinceTime=2024-01-02T03%3A04%3A05%2B01:00",
                LogOptions {
                    since: Since::Time("2024-01-02T02:04:05Z".parse().expect("a time")),
                    ..default()
                },
            ),
            ("sinceTime=", default()),
            ("stream=Stderr", LogOptions { stream: LogStream::Stderr, ..default() }),
            ("unknown=1&bad=%zz&=", default()),
        ] {
            assert_eq!(parsed(query), Ok(expected), "{query}");
        }
        for (query, expected) in [
            ("tailLines=x", BadQuery::Undecodable),
            ("tailLines=", BadQuery::Undecodable),
            ("tail=x", BadQuery::Undecodable),
            ("sinceTime=yesterday", BadQuery::Undecodable),
            ("limitBytes=99999999999999999999", BadQuery::Undecodable),
            ("tailLines=-1", BadQuery::Invalid),
            ("limitBytes=0", BadQuery::Invalid),
            ("sinceSeconds=0", BadQuery::Invalid),
            ("sinceSeconds=1&sinceTime=2024-01-02T03:04:05Z", BadQuery::Invalid),
            ("stream=stdout", BadQuery::Invalid),
            ("stream=Stdout&tailLines=1", BadQuery::Invalid),
        ] {
            assert_eq!(parsed(query), Err(expected), "{query}");
        }
    }
}

//! Node log queries: `/logs/?query=<service or file>`, in the form that `kubectl get --raw` and its plugins use.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | the query: what is asked for, and whether that can be asked |
//! | [`pattern`] | whether a pattern is a regular expression |
//! | [`journal`] | asking `journalctl` |
//! | [`output`] | the answer, compressed where the client wants that |
//!
//! A service's log is in the journal, or in a file of its name. What goes wrong once the answer has begun is said in it.

mod journal;
mod options;
mod output;
mod pattern;

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::files::root::{Refusal, Root};
use crate::query::Query;
use crate::reply;
use options::Asked;
use output::Output;

/// For everything that one query takes, as upstream.
const DEADLINE: Duration = Duration::from_secs(30);

/// Where logs are.
#[derive(Clone, Debug)]
pub(super) struct NodeLogs {
    pub folder: PathBuf,
    pub journalctl: PathBuf,
}

pub(super) enum Answer {
    /// Nothing is asked for but what the path names.
    NotAQuery,
    /// A file in the folder, to be served as if the path named it.
    File(String),
    Response(Response),
}

pub(super) async fn answer(logs: NodeLogs, query: &str, at_the_top: bool, headers: &HeaderMap) -> Answer {
    let refuse =
        |status, errors: &[String]| Answer::Response(reply::line(status, &options::aggregate(errors)));
    let asked = match Asked::parse(&Query::parse(query)) {
        Ok(Some(asked)) => asked,
        Ok(None) => return Answer::NotAQuery,
        Err(errors) => return refuse(StatusCode::BAD_REQUEST, &errors),
    };
    if !at_the_top {
        return refuse(StatusCode::NOT_ACCEPTABLE, &["path not allowed in query mode".to_owned()]);
    }
    let errors = validate(&asked, &logs).await;
    if !errors.is_empty() {
        return refuse(StatusCode::NOT_ACCEPTABLE, &errors);
    }
    if asked.services.is_empty() {
        return asked.files.into_iter().next().map_or(Answer::NotAQuery, Answer::File);
    }
    let zipped = headers.get(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted == "gzip");
    let (output, body) = output::begin(zipped);
    tokio::spawn(write(logs, asked, output));
    let mut response = reply::of(StatusCode::OK, HeaderValue::from_static("text/plain;charset=UTF-8"), body);
    if zipped {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Answer::Response(response)
}

/// What is wrong with the options, and with the one file that may be asked for.
async fn validate(asked: &Asked, logs: &NodeLogs) -> Vec<String> {
    let missing = match asked.one_file() {
        Some(name) => {
            let (name, folder) = (name.to_owned(), logs.folder.clone());
            tokio::task::spawn_blocking(move || missing(&folder, &name)).await.unwrap_or_default()
        }
        None => None,
    };
    asked.validate(missing)
}

fn missing(folder: &std::path::Path, name: &str) -> Option<String> {
    // Unlike a path below `/logs/`, this one may not even begin with a slash.
    let found = match name.starts_with('/') {
        true => Err(Refusal::Outside),
        false => Root::open(folder).and_then(|root| root.file(name.as_bytes())),
    };
    let is_folder = |file: &std::fs::File| file.metadata().is_ok_and(|metadata| metadata.is_dir());
    let why = match found {
        Ok(file) if name.ends_with('/') && !is_folder(&file) => "not a directory".to_owned(),
        // A pipe or a device: the file server says what it thinks of that.
        Ok(_) | Err(Refusal::NotAFile) => return None,
        Err(refusal) => reason(refusal),
    };
    Some(format!("statat {name}: {why}"))
}

fn reason(refusal: Refusal) -> String {
    match refusal {
        Refusal::NotFound => "no such file or directory".to_owned(),
        Refusal::Forbidden => "permission denied".to_owned(),
        Refusal::Outside => "path escapes from parent".to_owned(),
        Refusal::NotAFile => "not a regular file".to_owned(),
        Refusal::Failed(error) => std::io::Error::from(error).to_string(),
    }
}

/// Ends with the client, with the deadline, or when everything is said. A journalctl that runs ends with it.
async fn write(logs: NodeLogs, asked: Asked, mut output: Output) {
    let closed = output.closed();
    tokio::select! {
        biased;
        () = closed => return,
        // What was cut off stays so, as upstream.
        _ = tokio::time::timeout(DEADLINE, copy(&logs, &asked, &mut output)) => {}
    }
    output.finish().await;
}

/// `None`: the client is gone.
async fn copy(logs: &NodeLogs, asked: &Asked, output: &mut Output) -> Option<()> {
    let known = journal::units_known(&logs.journalctl, &asked.services).await;
    let (native, by_file): (Vec<_>, Vec<_>) = asked.services.iter().zip(known).partition(|(_, known)| *known);
    let names = |services: Vec<(&String, bool)>| services.into_iter().map(|(name, _)| name.clone()).collect();
    let (native, by_file): (Vec<String>, Vec<String>) = (names(native), names(by_file));
    if !native.is_empty() {
        let arguments = asked.arguments(&native);
        if journal::copy(&logs.journalctl, &arguments, output).await.is_err() && asked.boot.unwrap_or(0) == 0
        {
            output.write(b"\nerror: journal output not available\n").await?;
        }
    }
    if by_file.is_empty() {
        return Some(());
    }
    if asked.has_options() {
        let text = format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            by_file.join(" ")
        );
        return output.write(text.as_bytes()).await;
    }
    for service in by_file {
        copy_file(&logs.folder, &service, output).await?;
    }
    Some(())
}

/// The first that is there of `s`, `s.log` and `s/s.log`.
async fn copy_file(folder: &std::path::Path, service: &str, output: &mut Output) -> Option<()> {
    for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
        let why = match open(folder.to_owned(), name.clone()).await {
            Ok(file) => match output.copy(file).await? {
                Ok(()) => return Some(()),
                Err(error) => error.to_string(),
            },
            Err(Refusal::NotFound) => continue,
            Err(refusal) => format!("openat {name}: {}", reason(refusal)),
        };
        return output.write(format!("\nerror getting log for {service}: {why}\n").as_bytes()).await;
    }
    output.write(format!("\nlog not found for {service}\n").as_bytes()).await
}

async fn open(folder: PathBuf, name: String) -> Result<std::fs::File, Refusal> {
    let opening = tokio::task::spawn_blocking(move || {
        let file = Root::open(&folder)?.file(name.as_bytes())?;
        // The log of `s` may be in a folder of that name.
        if file.metadata()?.is_dir() { Err(Refusal::NotFound) } else { Ok(file) }
    });
    opening.await.unwrap_or(Err(Refusal::NotFound))
}

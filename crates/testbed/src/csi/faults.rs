//! What tests make the driver do wrong, and what it was asked: files in its home, so that a kill loses nothing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::{Code, Status};

/// Between two looks at whether a fault is over.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// No answer, and nothing is done.
    HangBefore,
    /// It is done, but there is no answer.
    HangAfter,
    /// A gRPC code and a message; nothing is done.
    Fail(i32, String),
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub method: String,
    /// Else it has ended.
    pub begun: bool,
    pub volume: String,
    /// Of the request without secrets: their names only.
    pub request: Value,
    /// `Ok`, or a gRPC code, when it has ended.
    pub result: String,
}

fn fault_file(home: &Path, method: &str) -> PathBuf {
    home.join("faults").join(method)
}

fn journal(home: &Path) -> PathBuf {
    home.join("journal")
}

pub fn set(home: &Path, method: &str, fault: Option<&Fault>) -> Result<()> {
    let file = fault_file(home, method);
    fs::create_dir_all(home.join("faults"))?;
    match fault {
        Some(fault) => {
            let half = file.with_extension("new");
            fs::write(&half, serde_json::to_vec(fault)?)?;
            fs::rename(half, file)?;
        }
        None => {
            let _ = fs::remove_file(file);
        }
    }
    Ok(())
}

/// Of one volume, or of all.
fn of(home: &Path, method: &str, volume: &str) -> Option<Fault> {
    let read = |name: &str| serde_json::from_slice(&fs::read(fault_file(home, name)).ok()?).ok();
    read(&format!("{method}@{volume}")).or_else(|| read(method))
}

/// Comes back when the call may go on.
pub async fn before(home: &Path, method: &str, volume: &str) -> Result<(), Status> {
    loop {
        match of(home, method, volume) {
            Some(Fault::Fail(code, message)) => return Err(Status::new(Code::from_i32(code), message)),
            Some(Fault::HangBefore) => tokio::time::sleep(LOOK).await,
            Some(Fault::HangAfter) | None => return Ok(()),
        }
    }
}

pub async fn after(home: &Path, method: &str, volume: &str) {
    while of(home, method, volume) == Some(Fault::HangAfter) {
        tokio::time::sleep(LOOK).await;
    }
}

pub fn note(home: &Path, seen: &Seen) {
    let Ok(mut line) = serde_json::to_vec(seen) else { return };
    line.push(b'\n');
    // One write is one line, whoever else writes.
    if let Ok(mut file) = fs::File::options().create(true).append(true).open(journal(home)) {
        let _ = file.write_all(&line);
    }
}

pub fn seen(home: &Path) -> Vec<Seen> {
    let text = fs::read_to_string(journal(home)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub fn forget(home: &Path) -> Result<()> {
    fs::write(journal(home), "")?;
    Ok(())
}

//! Looking at one pod: what the runtime has of it, and what its containers and logs left behind.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crablet_cri::{Result, Runtime};
use crablet_host::{FileKind, Files};
use crablet_model::names::{annotation, container_reason};
use crablet_model::runtime::{Container, PodRuntime, Sandbox};
use crablet_model::{PodUid, text};

/// Upstream's limits for a termination message: from its file, and from the log instead of it.
const MESSAGE_BYTES: usize = 4096;
const LOG_TAIL_BYTES: usize = 2048;
const LOG_TAIL_LINES: usize = 80;
/// Log lines carry a time, a stream and a tag before their text.
const LOG_READ_BYTES: usize = 32 << 10;

/// Everything the runtime has of a pod. What vanishes between the listing and the look is left out.
pub async fn inspect(runtime: &dyn Runtime, uid: &PodUid) -> Result<PodRuntime> {
    let mut found = PodRuntime::default();
    for listed in runtime.list_sandboxes(Some(uid)).await? {
        found.sandboxes.extend(sandbox_if_there(runtime, &listed.id).await?);
    }
    for listed in runtime.list_containers(Some(uid)).await? {
        found.containers.extend(container_if_there(runtime, &listed.id).await?);
    }
    Ok(found.sorted())
}

pub async fn sandbox_if_there(runtime: &dyn Runtime, id: &str) -> Result<Option<Sandbox>> {
    absent_is_none(runtime.sandbox_status(id).await)
}

pub async fn container_if_there(runtime: &dyn Runtime, id: &str) -> Result<Option<Container>> {
    absent_is_none(runtime.container_status(id).await)
}

fn absent_is_none<T>(status: Result<T>) -> Result<Option<T>> {
    match status {
        Err(error) if error.is_not_found() => Ok(None),
        status => status.map(Some),
    }
}

/// The highest restart count among each container's log files: what is left when the runtime has forgotten them.
pub async fn log_attempts(files: &dyn Files, logs: &Path) -> BTreeMap<String, u32> {
    let mut attempts = BTreeMap::new();
    for container in files.list(logs).await.unwrap_or_default() {
        if container.kind != Some(FileKind::Folder) {
            continue;
        }
        let entries = files.list(&logs.join(&container.name)).await.unwrap_or_default();
        let highest = entries.iter().filter_map(|e| e.name.split_once(".log")?.0.parse::<u32>().ok()).max();
        if let Some(highest) = highest {
            attempts.insert(container.name, highest);
        }
    }
    attempts
}

/// What an exited container wrote into its termination message file; else, if it asked for that and failed, the end of
/// its log.
pub async fn read_last_words(files: &dyn Files, container: &Container) -> io::Result<String> {
    let mut words = Vec::new();
    if let Some(path) = &container.termination_file {
        words = absent_is_empty(files.read_tail(Path::new(path), MESSAGE_BYTES).await)?;
    }
    let from_log = container
        .annotations
        .get(annotation::CONTAINER_TERMINATION_MESSAGE_POLICY)
        .is_some_and(|policy| policy == "FallbackToLogsOnError");
    let failed = container
        .state
        .exit()
        .is_some_and(|e| e.code != 0 && e.reason != container_reason::CONTAINER_CANNOT_RUN);
    if words.is_empty() && from_log && failed {
        let tail = absent_is_empty(files.read_tail(Path::new(&container.log_path), LOG_READ_BYTES).await)?;
        return Ok(log_text(&tail));
    }
    Ok(text::of_bytes(&words))
}

fn absent_is_empty(read: io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The last lines of a CRI log without their prefixes.
fn log_text(log: &[u8]) -> String {
    let log = log.strip_suffix(b"\n").unwrap_or(log);
    let lines = log.split(|byte| *byte == b'\n').rev();
    let mut lines: Vec<_> = lines.take(LOG_TAIL_LINES).filter_map(line_text).collect();
    lines.reverse();
    let mut words = Vec::new();
    for (line, is_whole) in lines {
        words.extend_from_slice(line);
        if is_whole {
            words.push(b'\n');
        }
    }
    // As upstream, counted before it is made a text: a character may be cut.
    text::of_bytes(&words[words.len().saturating_sub(LOG_TAIL_BYTES)..])
}

/// `<time> <stream> <tag> <text>`
fn line_text(line: &[u8]) -> Option<(&[u8], bool)> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    // Only a part of what the container wrote as a line, or a last one that it did not end.
    let is_whole = !parts.nth(2)?.starts_with(b"P");
    Some((parts.next()?, is_whole))
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn the_end_of_a_log_is_told_without_its_prefixes() {
        let log = "cut off half\n2026-11-15T04:00:00.1Z stdout F first\n2026-11-15T04:00:01.1Z stderr F last words\n";
        assert_eq!(log_text(log.as_bytes()), "first\nlast words\n");
        // Lines that were too long for one entry, and a last one without an end.
        let log = "2026-11-15T04:00:00.1Z stdout P one \n2026-11-15T04:00:00.1Z stdout F line\n2026-11-15T04:00:01.1Z stdout P DONE\n";
        assert_eq!(log_text(log.as_bytes()), "one line\nDONE");
    }

    #[test]
    fn a_long_log_is_cut_from_the_front() {
        let log = format!("2026-11-15T04:00:00.1Z stdout F {}\n", "ü".repeat(3000));
        // 2048 bytes: the first is the second half of a character.
        assert_eq!(log_text(log.as_bytes()), format!("\u{fffd}{}\n", "ü".repeat(1023)));
    }

    #[test]
    fn bytes_that_are_no_text_count_as_what_they_are() {
        let line = [&b"2026-11-15T04:00:00.1Z stdout F "[..], &[0xff_u8; 2000], b"\r\n"].concat();
        assert_eq!(log_text(&line), "\u{fffd}".repeat(2000) + "\r\n");
    }
}

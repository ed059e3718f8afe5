//! Asking `journalctl`, by its arguments and never through a shell.

use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::output::Output;

const BLOCK: usize = 32 << 10;

/// Which of the services the journal knows. None, where it cannot be asked.
pub async fn units_known(journalctl: &Path, services: &[String]) -> Vec<bool> {
    let units: Vec<String> = services.iter().map(|service| format!("{service}.service")).collect();
    search(journalctl, &units).await.unwrap_or_else(|_| vec![false; units.len()])
}

/// As upstream, anywhere in what is printed. Each block is searched together with the end of the one before.
async fn search(journalctl: &Path, units: &[String]) -> io::Result<Vec<bool>> {
    let mut found = vec![false; units.len()];
    let longest = units.iter().map(String::len).max().unwrap_or_default();
    let (mut child, mut printed) = start(journalctl, &["--field".to_owned(), "_SYSTEMD_UNIT".to_owned()])?;
    let mut window: Vec<u8> = Vec::with_capacity(BLOCK + longest);
    while read_more(&mut printed, &mut window).await? > 0 {
        for (unit, found) in units.iter().zip(&mut found) {
            *found |= window.windows(unit.len()).any(|bytes| bytes == unit.as_bytes());
        }
        window.drain(..window.len().saturating_sub(longest));
    }
    match child.wait().await?.success() {
        true => Ok(found),
        false => Err(io::Error::other("journalctl failed")),
    }
}

async fn read_more(printed: &mut pipe::Receiver, window: &mut Vec<u8>) -> io::Result<usize> {
    let mut limited = printed.take(BLOCK as u64);
    limited.read_buf(window).await
}

/// Everything that it prints, errors too. `Err`: it did not even run.
pub async fn copy(journalctl: &Path, arguments: &[String], output: &mut Output) -> io::Result<()> {
    let (mut child, mut printed) = start(journalctl, arguments)?;
    let mut block = Vec::with_capacity(BLOCK);
    while read_more(&mut printed, &mut block).await? > 0 {
        if output.write(&block).await.is_none() {
            break;
        }
        block.clear();
    }
    drop(printed);
    // What it thinks of its own success it has printed.
    child.wait().await.map(drop)
}

/// Ends when it is dropped.
fn start(journalctl: &Path, arguments: &[String]) -> io::Result<(Child, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new(journalctl)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::from(writer.try_clone()?))
        .stderr(Stdio::from(writer))
        .kill_on_drop(true)
        .spawn()?;
    Ok((child, pipe::Receiver::from_owned_fd(reader.into())?))
}

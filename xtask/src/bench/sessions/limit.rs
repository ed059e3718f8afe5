//! Upstream's kubelet opens an inotify instance for each client that follows a log. Linux allows a user 128 of them unless
//! it is told otherwise, so that 200 followers could not be measured.

use std::fs;

use anyhow::{Context, Result};
use crablet_testbed::{guard, say};

const FILE: &str = "/proc/sys/fs/inotify/max_user_instances";
/// For everybody else on the machine.
const OTHERS: usize = 512;

/// Puts the limit back when it is dropped.
pub struct Raised(Option<usize>);

/// Makes room for this many instances.
pub fn raise(followers: usize) -> Result<Raised> {
    let text = fs::read_to_string(FILE).with_context(|| format!("cannot read `{FILE}`"))?;
    let before: usize = text.trim().parse().with_context(|| format!("`{FILE}` is not a number"))?;
    let wanted = followers + OTHERS;
    if before >= wanted {
        return Ok(Raised(None));
    }
    say::note(format!(
        "`{FILE}` is {before}: raised to {wanted} until the end, since upstream needs one for each follower"
    ));
    fs::write(FILE, wanted.to_string()).with_context(|| format!("cannot write `{FILE}`"))?;
    guard::at_interruption(move || put_back(before));
    Ok(Raised(Some(before)))
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            put_back(before);
        }
    }
}

fn put_back(limit: usize) {
    if let Err(error) = fs::write(FILE, limit.to_string()) {
        say::note(format!("cannot put `{FILE}` back to {limit}: {error}"));
    }
}

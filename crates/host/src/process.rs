//! What the kernel grants this process.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Asks for `wanted` open files, and takes what is granted if that is less. Returns what holds now.
pub fn set_open_files(wanted: u64) -> io::Result<u64> {
    let all = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    if setrlimit(Resource::Nofile, all).is_ok() {
        return Ok(wanted);
    }
    let granted = getrlimit(Resource::Nofile).maximum;
    let current = granted.map_or(wanted, |granted| granted.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: granted })?;
    Ok(current)
}

/// Asks for this place in the OOM killer's queue, and takes the nearest that is granted: who is not privileged may only
/// come earlier. Returns what holds now.
pub fn set_oom_score_adj(wanted: i32) -> io::Result<i32> {
    match write_oom_score_adj(wanted) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        result => return result.map(|()| wanted),
    }
    let now = fs::read_to_string(OOM_SCORE_ADJ)?;
    let now: i32 =
        now.trim().parse().map_err(|_| io::Error::other(format!("{OOM_SCORE_ADJ} holds {now:?}")))?;
    let (mut refused, mut granted) = (wanted, now);
    while granted - refused > 1 {
        let middle = refused + (granted - refused) / 2;
        match write_oom_score_adj(middle) {
            Ok(()) => granted = middle,
            Err(_) => refused = middle,
        }
    }
    Ok(granted)
}

fn write_oom_score_adj(value: i32) -> io::Result<()> {
    fs::write(OOM_SCORE_ADJ, value.to_string())
}

/// From now on SIGTERM and SIGINT end the process at once, with exit code 1: for who is asked twice to leave.
#[allow(unsafe_code)]
pub fn leave_at_next_signal() {
    extern "C" fn leave(_: libc::c_int) {
        // SAFETY: ends the process, and is allowed in signal handlers.
        unsafe { libc::_exit(1) }
    }
    let handler: extern "C" fn(libc::c_int) = leave;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler calls nothing but `_exit`, which is async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_granted_is_clamped() {
        let limits = getrlimit(Resource::Nofile);
        let granted = set_open_files(u64::MAX >> 8).expect("some limit");
        assert!(granted >= limits.current.unwrap_or(u64::MAX).min(granted));
        let now: i32 = fs::read_to_string(OOM_SCORE_ADJ).expect("proc").trim().parse().expect("a number");
        let granted = set_oom_score_adj(now).expect("what it is already");
        assert_eq!(granted, now);
        let granted = set_oom_score_adj(-1000).expect("the nearest");
        assert!((-1000..=now).contains(&granted));
        assert_eq!(fs::read_to_string(OOM_SCORE_ADJ).expect("proc").trim(), granted.to_string());
    }
}

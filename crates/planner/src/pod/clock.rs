//! A wall clock that is set back makes what has happened lie in the future, and each wait for it as long as the jump. So what
//! the memory knows to lie in the future is taken to be now: a wait begins anew, and is no longer than it was.

use jiff::Timestamp;

use super::memory::{Failure, Memory};

pub(super) fn heed(memory: &mut Memory, now: Timestamp) {
    let failures = memory.failures.values_mut().chain(&mut memory.sandbox_failure);
    for failure in failures.chain(memory.teardown_failures.values_mut()) {
        heed_failure(failure, now);
    }
    for pull in memory.pulls.values_mut().filter(|pull| pull.failed_at > now) {
        if pull.announced == Some(pull.failed_at) {
            pull.announced = Some(now);
        }
        pull.failed_at = now;
    }
    for crash_loop in memory.crash_loops.values_mut() {
        crash_loop.updated_at = crash_loop.updated_at.min(now);
    }
    if let Some(since) = &mut memory.stopping_since {
        *since = (*since).min(now);
    }
    if let Some(verdict) = &mut memory.verdict {
        verdict.since = verdict.since.min(now);
    }
}

fn heed_failure(failure: &mut Failure, now: Timestamp) {
    if failure.failed_at > now {
        let wait = failure.retry_at.duration_since(failure.failed_at);
        failure.failed_at = now;
        failure.retry_at = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
    }
}

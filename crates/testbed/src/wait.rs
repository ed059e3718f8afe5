//! Waiting for events with a deadline: file descriptors through poll(2), files through inotify.
//! [`until`] is the one place that polls by time, for foreign programs that announce nothing.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

/// A moment by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(duration: Duration) -> Self {
        Deadline(Instant::now() + duration)
    }

    /// What is left, or `None` once it has passed.
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    pub fn passed(self) -> bool {
        self.left().is_none()
    }
}

/// Waits until one of `fds` is readable (or hung up); which ones are is the answer. All `false`: the deadline passed.
pub fn readable(fds: &[BorrowedFd<'_>], deadline: Deadline) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.left().unwrap_or_default();
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) => return Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// An inotify watch on one file or folder: readable whenever something there was created, moved, written or removed.
pub struct Changes(OwnedFd);

impl Changes {
    pub fn of(path: &Path) -> Result<Changes> {
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let what = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::DELETE;
        inotify::add_watch(&fd, path, what).with_context(|| format!("cannot watch `{}`", path.display()))?;
        Ok(Changes(fd))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Forgets the events so far, so that the next wait is for news.
    pub fn drain(&self) {
        let mut space = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        while reader.next().is_ok() {}
    }
}

/// Asks `condition` again and again until it holds. For state of foreign programs or of the kernel that no file
/// descriptor tells about (a daemon's internal list, a cgroup that becomes removable); anything else has an event.
pub fn until(deadline: Deadline, mut condition: impl FnMut() -> bool) -> bool {
    let mut pause = Duration::from_millis(2);
    loop {
        if condition() {
            return true;
        }
        let Some(left) = deadline.left() else { return false };
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

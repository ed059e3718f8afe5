//! Calls that may hang in somebody's mount: on a server that is gone, for one. Each has a thread of its own, so that one
//! that hangs takes nothing from anybody else. A second one in the same place would only hang as well, and threads are
//! not without number: it waits for the first, and is told since when that is stuck.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::too_late;

/// More than any node has volumes that hang.
const MOST_CALLS: usize = 1024;
/// Walks over volumes go deep.
const STACK: usize = 1 << 20;

type Place = (&'static str, PathBuf);

#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    begun: Mutex<BTreeMap<Place, Begun>>,
    one_ended: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    told: Timestamp,
}

/// Held by the call until its end, whoever waits for it.
struct Ticket {
    calls: Arc<Calls>,
    place: Place,
}

impl UnderWay {
    /// The result of the work, or that it took longer than the deadline. It goes on then, and keeps its place.
    pub async fn run<T: Send + 'static>(
        &self,
        call: &'static str,
        path: &Path,
        deadline: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let ticket = self.enter(call, path, deadline).await?;
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new().name("volume-call".to_owned()).stack_size(STACK).spawn(move || {
            let result = work();
            drop(ticket);
            let _ = sender.send(result);
        })?;
        match tokio::time::timeout(deadline, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(io::Error::other(format!("`{call}` broke, which is a bug"))),
            Err(_) => Err(too_late(deadline)),
        }
    }

    /// Waits for the call before it, but not for longer than that one should have taken.
    async fn enter(&self, call: &'static str, path: &Path, deadline: Duration) -> io::Result<Ticket> {
        let place = (call, path.to_owned());
        loop {
            let ended = self.calls.one_ended.notified();
            tokio::pin!(ended);
            // From here on no end is missed.
            ended.as_mut().enable();
            let before = {
                let mut begun = self.calls.begun();
                match begun.get(&place) {
                    Some(before) => *before,
                    None if begun.len() >= MOST_CALLS => {
                        let text = format!("{MOST_CALLS} calls to file systems give no answer");
                        return Err(io::Error::new(ErrorKind::ResourceBusy, text));
                    }
                    None => {
                        begun.insert(place.clone(), Begun { at: Instant::now(), told: Timestamp::now() });
                        return Ok(Ticket { calls: self.calls.clone(), place });
                    }
                }
            };
            let left = deadline.saturating_sub(before.at.elapsed());
            if left.is_zero() || tokio::time::timeout(left, ended).await.is_err() {
                let text = format!("an earlier call is stuck since {:.0}", before.told);
                return Err(io::Error::new(ErrorKind::ResourceBusy, text));
            }
        }
    }
}

impl Calls {
    fn begun(&self) -> MutexGuard<'_, BTreeMap<Place, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.calls.begun().remove(&self.place);
        self.calls.one_ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_second_call_in_the_same_place_waits_and_is_told_when_it_is_in_vain() {
        let calls = UnderWay::default();
        let (go_on, held) = mpsc::channel::<()>();
        let stuck = calls.run("stat", Path::new("/a"), SHORT, move || Ok(held.recv().is_ok())).await;
        assert_eq!(stuck.unwrap_err().kind(), ErrorKind::TimedOut);
        let error = calls.run("stat", Path::new("/a"), SHORT, || Ok(())).await.unwrap_err().to_string();
        assert!(error.starts_with("an earlier call is stuck since 2"), "{error}");
        // Nobody else is held.
        calls.run("unmount", Path::new("/a"), LONG, || Ok(())).await.unwrap();
        calls.run("stat", Path::new("/b"), LONG, || Ok(())).await.unwrap();

        let second = calls.run("stat", Path::new("/a"), LONG, || Ok(7));
        let release = async { go_on.send(()).unwrap() };
        let (second, ()) = tokio::join!(second, release);
        assert_eq!(second.unwrap(), 7);
    }

    #[tokio::test]
    async fn calls_that_hang_take_no_thread_from_others() {
        let calls = UnderWay::default();
        let (_keep, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for number in 0..100 {
            let held = held.clone();
            let work = move || Ok(held.lock().unwrap().recv().is_ok());
            let path = PathBuf::from(format!("/hung/{number}"));
            let stuck = calls.run("stat", &path, Duration::from_millis(1), work).await;
            assert!(stuck.is_err());
        }
        assert_eq!(calls.run("stat", Path::new("/well"), LONG, || Ok(1)).await.unwrap(), 1);
    }
}

//! Addresses of names, as the C library finds them.
//!
//! A lookup that no server answers takes many seconds and cannot be called off. So each has a thread of its own, and takes
//! none from the work with files. Threads are not without number: whoever asks for a name that is being looked up waits
//! for that answer, and only so many names are looked up at once. Waiting can be given up at any time.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// For the node itself: no name that a pod made up is in its way.
pub static OF_NODE: Lookups = Lookups::new(8);
/// For names that pods want to have asked.
pub static OF_PODS: Lookups = Lookups::new(32);

/// The library may load modules of others for it.
const STACK: usize = 1 << 20;

type Outcome = Result<Arc<[SocketAddr]>, LookupError>;
/// Has the outcome in the end.
type Running = watch::Receiver<Option<Outcome>>;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupError {
    pub message: String,
    /// Nobody could say: the name may have an address all the same.
    pub for_now: bool,
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LookupError {}

/// The lookups that are under way for one purpose.
#[derive(Debug)]
pub struct Lookups {
    running: Mutex<BTreeMap<Box<str>, Running>>,
    free: Semaphore,
}

/// Held by a lookup until the library has returned, whoever still waits for it.
struct Ticket {
    lookups: &'static Lookups,
    host: Box<str>,
    _permit: SemaphorePermit<'static>,
}

impl Lookups {
    const fn new(most: usize) -> Self {
        Self { running: Mutex::new(BTreeMap::new()), free: Semaphore::const_new(most) }
    }

    /// The addresses of a host, each with this port. What is an address already is not looked up.
    pub async fn addresses(&'static self, host: &str, port: u16) -> Result<Vec<SocketAddr>, LookupError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = self.share(host, ask_library).await?;
        let with_port = |address: &SocketAddr| {
            let mut address = *address;
            address.set_port(port);
            address
        };
        Ok(found.iter().map(with_port).collect())
    }

    async fn share(&'static self, host: &str, ask: impl FnOnce(&str) -> Outcome + Send + 'static) -> Outcome {
        let known = self.running().get(host).cloned();
        let mut running = match known {
            Some(running) => running,
            None => {
                // Nothing has begun for those who give up here.
                let permit = self.free.acquire().await.map_err(|closed| broken(&closed))?;
                self.begin(host, permit, ask).map_err(|error| broken(&error))?
            }
        };
        let outcome = running.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(broken(&"no outcome")),
            Err(error) => Err(broken(&error)),
        }
    }

    fn begin(
        &'static self,
        host: &str,
        permit: SemaphorePermit<'static>,
        ask: impl FnOnce(&str) -> Outcome + Send + 'static,
    ) -> io::Result<Running> {
        let (tell, running) = watch::channel(None);
        {
            let mut all = self.running();
            // Another one may have begun it while this one waited.
            if let Some(running) = all.get(host) {
                return Ok(running.clone());
            }
            all.insert(host.into(), running.clone());
        }
        let ticket = Ticket { lookups: self, host: host.into(), _permit: permit };
        thread::Builder::new().name("lookup".to_owned()).stack_size(STACK).spawn(move || {
            let outcome = ask(&ticket.host);
            // Whoever comes from here on asks anew.
            drop(ticket);
            // Everybody may have given up.
            let _ = tell.send(Some(outcome));
        })?;
        Ok(running)
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lookups.running().remove(&self.host);
    }
}

/// The lookup itself could not be done.
fn broken(why: &dyn fmt::Display) -> LookupError {
    LookupError { message: format!("the lookup broke off: {why}"), for_now: true }
}

fn ask_library(host: &str) -> Outcome {
    match (host, 0_u16).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(LookupError { for_now: is_for_now(&error), message: error.to_string() }),
    }
}

/// The standard library keeps the text of the library's code, and not the code.
#[allow(unsafe_code)]
fn is_for_now(error: &io::Error) -> bool {
    // SAFETY: the text of a code ends with a zero byte, and lives as long as the library.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(libc::EAI_AGAIN)) };
    text.to_str().is_ok_and(|text| error.to_string().ends_with(text))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn here() -> Outcome {
        Ok([SocketAddr::from(([127, 0, 0, 1], 0))].into())
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup() {
        static LOOKUPS: Lookups = Lookups::new(0);
        let found = LOOKUPS.addresses("127.0.0.1", 80).await;
        assert_eq!(found, Ok(vec![SocketAddr::from(([127, 0, 0, 1], 80))]));
    }

    #[tokio::test]
    async fn one_lookup_answers_all_who_ask_for_the_name() {
        static LOOKUPS: Lookups = Lookups::new(8);
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let (go_on, held) = mpsc::channel::<()>();
        let first = LOOKUPS.share("a.test", move |_| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            let _ = held.recv();
            here()
        });
        let second = LOOKUPS.share("a.test", |_| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            here()
        });
        let release = async { go_on.send(()).unwrap() };
        let (first, second, ()) = tokio::join!(first, second, release);
        assert_eq!((first, second), (here(), here()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
        assert!(LOOKUPS.running().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn a_lookup_that_hangs_keeps_its_place_until_it_returns() {
        static LOOKUPS: Lookups = Lookups::new(1);
        let (go_on, held) = mpsc::channel::<()>();
        let hung = LOOKUPS.share("hung.test", move |_| {
            let _ = held.recv();
            here()
        });
        assert!(timeout(SHORT, hung).await.is_err());
        // Those who come meanwhile wait, and may give up.
        assert!(timeout(SHORT, LOOKUPS.share("b.test", |_| here())).await.is_err());
        assert!(timeout(SHORT, LOOKUPS.share("hung.test", |_| here())).await.is_err());
        go_on.send(()).unwrap();
        assert_eq!(LOOKUPS.share("b.test", |_| here()).await, here());
        assert_eq!(LOOKUPS.share("hung.test", |_| here()).await, here());
    }

    #[test]
    fn what_nobody_could_say_is_told_from_what_is_not_there() {
        let of = |text: &str| is_for_now(&io::Error::other(text.to_owned()));
        assert!(of("failed to lookup address information: Temporary failure in name resolution"));
        assert!(!of("failed to lookup address information: Name or service not known"));
    }
}

//! Certificates for pods (`projected.sources[].podCertificate`): a key of its own for each source, a request to the
//! signer that the pod names, and a new pair of both before the certificate grows old.
//!
//! | module | what it is |
//! |---|---|
//! | `keys` | keys of six kinds, and the proof of having one |
//! | `rsa` | RSA keys, which ring cannot make |
//! | `der` | how both are written |
//! | `request` | the request at the API server, and what has become of it |
//! | `record` | how far one source has come |
//! | `keeper` | the task that makes requests, hears of them, and watches the time |
//!
//! Keys are in memory only. A new life of the agent asks for everything anew, as upstream's does. Nothing is watched
//! before the first pod wants a certificate.

mod der;
mod keeper;
mod keys;
mod record;
mod request;
mod rsa;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_apiserver::ApiServer;
use crablet_host::Clock;
use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid};
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;

use self::record::Record;

/// Pods that wait for a listener. One that is slower has to look at all.
const CHANGES: usize = 256;

/// The certificate that a source of a volume wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub pod: PodRef,
    pub service_account: String,
    pub volume: String,
    /// Which source of the volume, from 0.
    pub source: usize,
    pub signer: String,
    pub key_type: String,
    pub max_expiration_seconds: Option<i32>,
    pub annotations: BTreeMap<String, String>,
}

/// A key and the certificates for it, as PEM. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    pub key: Arc<str>,
    pub chain: Arc<str>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bundle")
    }
}

/// Why there is none, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Lacking {
    pub text: String,
    /// Waiting is useless.
    pub for_good: bool,
}

impl Lacking {
    fn pending(why: &str) -> Self {
        let text = match why {
            "" => "credential bundle is not issued yet".to_owned(),
            why => format!("credential bundle is not issued yet: {why}"),
        };
        Self { text, for_good: false }
    }
}

pub struct PodCertificatesSetup {
    pub api: Arc<dyn ApiServer>,
    pub node_name: String,
    pub clock: Arc<dyn Clock>,
    pub events: Box<dyn Fn(Event) + Send + Sync>,
    /// Spreads requests in time. Keys are not made from it.
    pub seed: u64,
}

/// One source of one volume of one pod.
type Key = (PodUid, String, usize);

pub struct PodCertificates {
    setup: PodCertificatesSetup,
    records: Mutex<BTreeMap<Key, Record>>,
    wake: Notify,
    changes: broadcast::Sender<PodUid>,
}

impl PodCertificates {
    pub fn start(setup: PodCertificatesSetup, tasks: &mut JoinSet<()>) -> Arc<Self> {
        let (changes, _) = broadcast::channel(CHANGES);
        let certificates = Arc::new(Self { setup, records: Mutex::default(), wake: Notify::new(), changes });
        tasks.spawn(keeper::run(certificates.clone()));
        certificates
    }

    /// What the source shows now. The first to ask for it begins it all.
    pub fn bundle(&self, wanted: Wanted) -> Result<Bundle, Lacking> {
        let key = (wanted.pod.uid.clone(), wanted.volume.clone(), wanted.source);
        let mut records = self.records();
        let record = records.entry(key).or_insert_with(|| {
            self.wake.notify_one();
            Record::new(Arc::new(wanted))
        });
        record.bundle()
    }

    /// The pod is no more, and its keys neither.
    pub fn forget(&self, pod: &PodUid) {
        self.records().retain(|(uid, ..), _| uid != pod);
    }

    /// The pods whose volumes show something else, or fail for another reason, from now on.
    pub fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.changes.subscribe()
    }

    /// How many sources are in which state, by signer: upstream's `kubelet_podcertificate_states`.
    pub fn states(&self) -> BTreeMap<(String, &'static str), usize> {
        let now = self.setup.clock.now();
        let mut states = BTreeMap::new();
        for record in self.records().values() {
            *states.entry((record.wanted.signer.clone(), record.state(now))).or_default() += 1;
        }
        states
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<Key, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, pod: &PodUid) {
        // Nobody listens: then nobody shows it.
        let _ = self.changes.send(pod.clone());
    }
}

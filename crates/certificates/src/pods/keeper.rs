//! The task that makes requests, hears what becomes of them, and watches the time.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use crablet_apiserver::{Reflected, reflect};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::SignedDuration;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::record::Record;
use super::request::{self, AskError, Asked, Name, Outcome};
use super::{Key, PodCertificates};
use crate::manager::sleep_until;

/// Requests that are made at the same time: keys of RSA are work.
const AT_ONCE: usize = 2;
/// Certificates of one moment are not all asked for again in one moment.
const JITTER: SignedDuration = SignedDuration::from_mins(5);

type Asking = Pin<Box<dyn Future<Output = (Key, Result<Asked, AskError>)> + Send>>;

struct Keeper {
    certificates: Arc<PodCertificates>,
    /// All requests of this node that the watch shows: one may be shown before its maker hears its name.
    requests: BTreeMap<Name, Outcome>,
    asking: FuturesUnordered<Asking>,
    places: Arc<Semaphore>,
    random: fastrand::Rng,
}

pub(super) async fn run(certificates: Arc<PodCertificates>) {
    certificates.wake.notified().await;
    let mut random = fastrand::Rng::with_seed(certificates.setup.seed);
    let what = request::reflection(&certificates.setup.node_name);
    let mut stream = reflect(certificates.setup.api.clone(), what, random.u64(..));
    let mut keeper = Keeper {
        certificates: certificates.clone(),
        requests: BTreeMap::new(),
        asking: FuturesUnordered::new(),
        places: Arc::new(Semaphore::new(AT_ONCE)),
        random,
    };
    loop {
        keeper.begin();
        let next = keeper.certificates.records().values().filter_map(Record::looks_at).min();
        // Every arm may be dropped: streams and notifications keep what they have not given out.
        tokio::select! {
            biased;
            Some((key, asked)) = keeper.asking.next() => keeper.asked(&key, asked),
            Some(reflected) = stream.next() => keeper.heard(reflected),
            () = certificates.wake.notified() => {}
            () = sleep_until(&*certificates.setup.clock, next) => keeper.look_at_clock(),
        }
    }
}

impl Keeper {
    /// Makes the requests that are due.
    fn begin(&mut self) {
        let setup = &self.certificates.setup;
        let now = setup.clock.now();
        for (key, record) in &mut *self.certificates.records() {
            if record.begin(now) {
                let (api, node, wanted) = (setup.api.clone(), setup.node_name.clone(), record.wanted.clone());
                let (key, places) = (key.clone(), self.places.clone());
                self.asking.push(Box::pin(async move {
                    // Never closed; without a place it would merely be more at once.
                    let _place = places.acquire_owned().await;
                    (key, request::ask(api, node, wanted).await)
                }));
            }
        }
    }

    fn asked(&mut self, key: &Key, asked: Result<Asked, AskError>) {
        let jitter = self.jitter();
        let now = self.certificates.setup.clock.now();
        let mut records = self.certificates.records();
        // A pod that has gone meanwhile has left the request behind: its owner is gone, so it goes too.
        let Some(record) = records.get_mut(key) else { return };
        let pod = record.wanted.pod.clone();
        match asked {
            Ok(asked) => {
                let name = asked.name.clone();
                info!(
                    pod = pod.object_ref(),
                    volume = key.1,
                    request = name.1,
                    "PodCertificateRequest created"
                );
                record.asked(asked, jitter);
                drop(records);
                if self.requests.contains_key(&name) {
                    self.look_at(&name);
                }
            }
            Err(error) => {
                let error = error.to_string();
                warn!(
                    pod = pod.object_ref(),
                    volume = key.1,
                    err = error,
                    "Failed to ask for a pod certificate"
                );
                record.failed(&error, now);
                drop(records);
                self.certificates.tell(&pod.uid);
            }
        }
    }

    fn heard(&mut self, reflected: Reflected) {
        match reflected {
            Reflected::Replaced(objects) => {
                self.requests = objects.iter().filter_map(|object| request::read(object)).collect();
                let names: Vec<Name> = self.requests.keys().cloned().collect();
                names.iter().for_each(|name| self.look_at(name));
                let now = self.certificates.setup.clock.now();
                for record in self.certificates.records().values_mut() {
                    if record.waits_for().is_some_and(|name| !self.requests.contains_key(name)) {
                        record.unlisted(now);
                    }
                }
            }
            Reflected::Applied(object) => {
                if let Some((name, outcome)) = request::read(&object) {
                    self.requests.insert(name.clone(), outcome);
                    self.look_at(&name);
                }
            }
            Reflected::Deleted(object) => {
                let Some((name, _)) = request::read(&object) else { return };
                self.requests.remove(&name);
                let now = self.certificates.setup.clock.now();
                for record in self.certificates.records().values_mut() {
                    if record.waits_for() == Some(&name) {
                        record.deleted(now);
                    }
                }
            }
            Reflected::Failed(error) => {
                warn!(err = %error, "Failed to watch pod certificate requests, will try again");
            }
        }
    }

    /// What has become of a request, for the one who waits for it.
    fn look_at(&mut self, name: &Name) {
        let jitter = self.jitter();
        let Some(outcome) = self.requests.get(name) else { return };
        let mut changed = Vec::new();
        for record in self.certificates.records().values_mut() {
            if record.waits_for() == Some(name) {
                let (is_new, event) = record.seen(outcome, jitter);
                changed.extend(is_new.then(|| (record.wanted.pod.uid.clone(), event)));
            }
        }
        for (pod, event) in changed {
            event.into_iter().for_each(&self.certificates.setup.events);
            self.certificates.tell(&pod);
        }
    }

    fn look_at_clock(&mut self) {
        let now = self.certificates.setup.clock.now();
        let mut events = Vec::new();
        for record in self.certificates.records().values_mut() {
            events.extend(record.look_at_clock(now));
        }
        events.into_iter().for_each(&self.certificates.setup.events);
    }

    fn jitter(&mut self) -> SignedDuration {
        SignedDuration::from_secs_f64(self.random.f64() * JITTER.as_secs_f64())
    }
}

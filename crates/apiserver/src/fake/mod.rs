//! An API server in memory, for tests and for the simulation. It holds state, counts versions, and has weather.
//!
//! | module | what it is |
//! |---|---|
//! | [`path`] | which resource, object and subresource a path means |
//! | [`store`] | objects, versions, history, watchers |
//! | [`verbs`] | what each verb does, pods' graceful deletion included |
//! | [`patch`] | merge and strategic merge patches |
//! | [`token`] | service account tokens |
//! | [`watching`] | watches as they are opened and run |
//! | [`weather`] | faults |
//!
//! Nothing here takes time except what the weather asks for, so it is exact on a paused clock.

mod patch;
mod path;
mod store;
mod token;
mod verbs;
mod watching;
mod weather;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use self::path::{Resource, Target};
use self::store::{Scope, Store};
pub use self::weather::{Asked, Effect, Where};
use self::weather::{Weather, status, timed_out, unreachable};
use crate::Now;
use crate::port::{ApiError, ApiServer, Call, Lane, WatchCall, WatchStream};

/// A request that has arrived, also if the weather struck it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub asked: Asked,
    /// With its query.
    pub path: String,
    pub body: Bytes,
    pub lane: Lane,
    pub at: Timestamp,
}

impl Recorded {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

pub struct FakeApiServer {
    now: Now,
    state: Arc<Mutex<State>>,
}

struct State {
    store: Store,
    weather: Weather,
    streaming_lists: bool,
    calls: Vec<Recorded>,
}

impl FakeApiServer {
    pub fn new(now: Now) -> Arc<Self> {
        let state = State {
            store: Store::default(),
            weather: Weather::default(),
            streaming_lists: true,
            calls: Vec::new(),
        };
        Arc::new(Self { now, state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an object as it is given, status included, as an operator or a controller would; gives it as it is kept.
    /// An object of the same name gets the new content and keeps its UID, and its status and deletion unless they are given.
    pub fn put(&self, plural: &str, object: Value) -> Value {
        let resource = Resource::named(plural);
        let now = (self.now)();
        let mut state = self.state();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let namespace = namespace_of(&resource, object["metadata"]["namespace"].as_str());
        let json = match state.store.get(&resource, &namespace, &name).cloned() {
            None => {
                let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
                let target = Target {
                    resource: resource.clone(),
                    namespace: namespace.clone(),
                    name: None,
                    subresource: None,
                    query: path::Query::default(),
                };
                let made = verbs::create(&mut state.store, now, &target, object, uid);
                made.unwrap_or_else(|error| panic!("the fake cannot keep {plural} {name:?}: {error}"))
            }
            Some(old) => {
                let mut new = object;
                for field in ["kind", "apiVersion"] {
                    if let Some(value) = old.get(field) {
                        new[field] = value.clone();
                    }
                }
                // An object of the whole cluster has no namespace, not even a null.
                for field in ["uid", "creationTimestamp", "namespace"] {
                    if let Some(value) = old["metadata"].get(field) {
                        new["metadata"][field] = value.clone();
                    }
                }
                // Who does not speak of them leaves them alone.
                for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
                    if let (None, Some(value)) = (new["metadata"].get(field), old["metadata"].get(field)) {
                        new["metadata"][field] = value.clone();
                    }
                }
                if let (None, Some(status)) = (new.get("status"), old.get("status")) {
                    new["status"] = status.clone();
                }
                if resource.plural == "pods" {
                    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                    let changed = i64::from(new["spec"] != old["spec"]);
                    new["metadata"]["generation"] = Value::from(generation + changed);
                }
                state.store.write(&resource, &namespace, &name, new)
            }
        };
        serde_json::from_slice(&json).unwrap_or_default()
    }

    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.state().store.get(&Resource::named(plural), namespace, name).cloned()
    }

    pub fn list(&self, plural: &str) -> Vec<Value> {
        let everywhere = Scope { namespace: String::new(), selector: path::Selector::default() };
        self.state().store.all(&Resource::named(plural), &everywhere).cloned().collect()
    }

    pub fn pods(&self) -> Vec<Value> {
        self.list("pods")
    }

    /// Removes an object at once, whoever still uses it. Says whether there was one.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> bool {
        self.state().store.remove(&Resource::named(plural), namespace, name).is_some()
    }

    /// As `kubectl delete pod`: with the pod's own grace, or with the one given.
    pub fn delete_pod(
        &self,
        namespace: &str,
        name: &str,
        grace_seconds: Option<i64>,
    ) -> Result<(), ApiError> {
        let query = grace_seconds.map_or_else(String::new, |grace| format!("?gracePeriodSeconds={grace}"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}{query}");
        let now = (self.now)();
        verbs::perform(&mut self.state().store, now, crate::Verb::Delete, &path, &Bytes::new()).map(drop)
    }

    /// Bad weather until it is cleared.
    pub fn fault(&self, at: Where, effect: Effect) {
        self.state().weather.set(at, effect, None);
    }

    /// Bad weather for the next few requests that it covers.
    pub fn fault_times(&self, at: Where, effect: Effect, times: u32) {
        self.state().weather.set(at, effect, Some(times));
    }

    /// Ends all bad weather, an outage included.
    pub fn clear_faults(&self) {
        self.state().weather.clear();
    }

    /// An outage: nothing answers, and all watches break. It ends with `clear_faults`.
    pub fn outage(&self) {
        let mut state = self.state();
        state.weather.unreachable = true;
        state.store.end_watches(true);
    }

    /// The server closes all watches, as it does now and then.
    pub fn close_watches(&self) {
        self.state().store.end_watches(false);
    }

    /// The connections of all watches break.
    pub fn break_watches(&self) {
        self.state().store.end_watches(true);
    }

    /// Resource versions of before are answered with 410 from now on. Watches that run go on.
    pub fn expire_versions(&self) {
        self.state().store.expire();
    }

    /// Sends a bookmark on each watch.
    pub fn send_bookmarks(&self) {
        self.state().store.send_bookmarks();
    }

    /// Whether a watch may begin with all there is. Servers before etcd 3.4.31 refuse.
    pub fn set_streaming_lists(&self, supported: bool) {
        self.state().streaming_lists = supported;
    }

    /// How many watches of a resource are open.
    pub fn watches(&self, plural: &str) -> usize {
        self.state().store.watchers(&Resource::named(plural))
    }

    /// All requests since the beginning, or since they were taken.
    pub fn calls(&self) -> Vec<Recorded> {
        self.state().calls.clone()
    }

    pub fn take_calls(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.state().calls)
    }

    /// Records a request and says what strikes it.
    fn arrives(&self, asked: Asked, path: &str, body: &Bytes, lane: Lane) -> Option<Effect> {
        let at = (self.now)();
        let mut state = self.state();
        state.calls.push(Recorded { asked, path: path.to_owned(), body: body.clone(), lane, at });
        state.weather.strikes(asked, path)
    }

    fn perform(&self, call: &Call) -> Result<Bytes, ApiError> {
        let now = (self.now)();
        verbs::perform(&mut self.state().store, now, call.verb, &call.path, &call.body)
    }
}

#[async_trait]
impl ApiServer for FakeApiServer {
    async fn call(&self, call: Call) -> Result<Bytes, ApiError> {
        match self.arrives(Asked::Call(call.verb), &call.path, &call.body, call.lane) {
            None => self.perform(&call),
            Some(Effect::Unreachable) => Err(unreachable()),
            Some(Effect::Slow(delay)) if delay >= call.deadline => {
                tokio::time::sleep(call.deadline).await;
                Err(timed_out())
            }
            Some(Effect::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                self.perform(&call)
            }
            Some(Effect::Fail(code)) => Err(status(code, "", format!("the fake was told to answer {code}"))),
            Some(Effect::Refuse { code, reason, message }) => Err(status(code, &reason, message)),
            Some(Effect::LostAnswer) => self.perform(&call).and_then(|_| Err(timed_out())),
            Some(Effect::Answer(body)) => Ok(body),
        }
    }

    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError> {
        match self.arrives(Asked::Watch, &watch.path, &Bytes::new(), watch.lane) {
            None => self.begin_watch(&watch.path),
            Some(Effect::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                self.begin_watch(&watch.path)
            }
            Some(Effect::Unreachable | Effect::LostAnswer | Effect::Answer(_)) => Err(unreachable()),
            Some(Effect::Fail(code)) => Err(status(code, "", format!("the fake was told to answer {code}"))),
            Some(Effect::Refuse { code, reason, message }) => Err(status(code, &reason, message)),
        }
    }
}

fn namespace_of(resource: &Resource, given: Option<&str>) -> String {
    match given {
        _ if !resource.namespaced() => String::new(),
        Some(namespace) => namespace.to_owned(),
        None => "default".to_owned(),
    }
}

#[cfg(test)]
mod tests;

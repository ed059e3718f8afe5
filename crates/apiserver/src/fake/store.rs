//! Objects, their versions, the history of changes, and those who watch it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::path::{Resource, Selector};
use super::weather::{status, unreachable};
use crate::port::{ApiError, Change, WatchEvent};

/// Changes that are kept per resource. Who asks for older ones is told 410.
const HISTORY: usize = 1000;

/// Events that wait for a watcher. A slower one is cut off, as the real server does it.
const WATCHER_QUEUE: usize = 1000;

pub(super) type Line = Result<WatchEvent, ApiError>;

#[derive(Default)]
pub(super) struct Store {
    version: u64,
    made: u64,
    collections: BTreeMap<Resource, Collection>,
}

#[derive(Default)]
struct Collection {
    /// By namespace and name.
    objects: BTreeMap<(String, String), Stored>,
    history: VecDeque<Logged>,
    /// Changes up to this version are forgotten.
    floor: u64,
    watchers: Vec<Watcher>,
}

struct Stored {
    object: Arc<Value>,
    json: Bytes,
}

struct Logged {
    version: u64,
    namespace: String,
    before: Option<Arc<Value>>,
    /// The last state of a deleted object, with the version of the deletion.
    after: Arc<Value>,
    deleted: bool,
    json: Bytes,
}

struct Watcher {
    scope: Scope,
    lines: mpsc::Sender<Line>,
}

/// What a list or a watch is about.
#[derive(Clone)]
pub(super) struct Scope {
    /// Empty for all.
    pub namespace: String,
    pub selector: Selector,
}

impl Scope {
    fn covers(&self, namespace: &str, object: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace) && self.selector.matches(object)
    }

    /// What somebody who sees only this scope is told of a change.
    fn tells(&self, logged: &Logged) -> Option<WatchEvent> {
        let before = logged.before.as_ref().is_some_and(|before| self.covers(&logged.namespace, before));
        let after = !logged.deleted && self.covers(&logged.namespace, &logged.after);
        let change = match (before, after) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        Some(WatchEvent { change, object: logged.json.clone() })
    }
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A new UID: never the same twice, always the same in a replay.
    pub fn next_uid(&mut self) -> String {
        self.made += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.made, self.made)
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Value> {
        let collection = self.collections.get(resource)?;
        Some(&*collection.objects.get(&(namespace.to_owned(), name.to_owned()))?.object)
    }

    pub fn json(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Bytes> {
        let collection = self.collections.get(resource)?;
        Some(collection.objects.get(&(namespace.to_owned(), name.to_owned()))?.json.clone())
    }

    pub fn all<'a>(&'a self, resource: &Resource, scope: &'a Scope) -> impl Iterator<Item = &'a Value> {
        self.stored(resource, scope).map(|stored| &*stored.object)
    }

    fn stored<'a>(&'a self, resource: &Resource, scope: &'a Scope) -> impl Iterator<Item = &'a Stored> {
        let objects = self.collections.get(resource).into_iter().flat_map(|collection| &collection.objects);
        objects
            .filter(|((namespace, _), stored)| scope.covers(namespace, &stored.object))
            .map(|(_, stored)| stored)
    }

    /// Keeps a new state of an object and tells the watchers. Gives the state with its version.
    pub fn write(&mut self, resource: &Resource, namespace: &str, name: &str, mut object: Value) -> Bytes {
        self.version += 1;
        object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        let json = Bytes::from(object.to_string());
        let object = Arc::new(object);
        let collection = self.collections.entry(resource.clone()).or_default();
        let stored = Stored { object: object.clone(), json: json.clone() };
        let before = collection.objects.insert((namespace.to_owned(), name.to_owned()), stored);
        collection.log(Logged {
            version: self.version,
            namespace: namespace.to_owned(),
            before: before.map(|stored| stored.object),
            after: object,
            deleted: false,
            json: json.clone(),
        });
        json
    }

    /// Removes an object and tells the watchers. Gives its last state.
    pub fn remove(&mut self, resource: &Resource, namespace: &str, name: &str) -> Option<Bytes> {
        let collection = self.collections.get_mut(resource)?;
        let stored = collection.objects.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.version += 1;
        let mut last = Value::clone(&stored.object);
        last["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        let json = Bytes::from(last.to_string());
        collection.log(Logged {
            version: self.version,
            namespace: namespace.to_owned(),
            before: Some(stored.object),
            after: Arc::new(last),
            deleted: true,
            json: json.clone(),
        });
        Some(json)
    }

    /// Begins a watch: what there is already (`initial`), or what has changed since `from`, is in the queue at once.
    pub fn watch(&mut self, resource: &Resource, scope: Scope, start: Start) -> mpsc::Receiver<Line> {
        let mut first: Vec<Line> = Vec::new();
        match start {
            Start::WithState { bookmark } => {
                first.extend(
                    self.stored(resource, &scope)
                        .map(|stored| Ok(WatchEvent { change: Change::Added, object: stored.json.clone() })),
                );
                if bookmark {
                    first.push(Ok(self.bookmark(resource, true)));
                }
            }
            Start::After(from) => {
                let collection = self.collections.entry(resource.clone()).or_default();
                if from < collection.floor {
                    let message = format!("too old resource version: {from} ({})", collection.floor);
                    first.push(Err(status(410, "Expired", message)));
                    return filled(first, WATCHER_QUEUE).1;
                }
                let since = collection.history.iter().filter(|logged| logged.version > from);
                first.extend(since.filter_map(|logged| scope.tells(logged)).map(Ok));
            }
        }
        let (lines, receiver) = filled(first, WATCHER_QUEUE);
        let collection = self.collections.entry(resource.clone()).or_default();
        collection.watchers.retain(|watcher| !watcher.lines.is_closed());
        collection.watchers.push(Watcher { scope, lines });
        receiver
    }

    pub fn bookmark(&self, resource: &Resource, initial_events_end: bool) -> WatchEvent {
        let mut object = serde_json::json!({
            "kind": resource.kind(), "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.version.to_string()},
        });
        if initial_events_end {
            object["metadata"]["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
        }
        WatchEvent { change: Change::Bookmark, object: Bytes::from(object.to_string()) }
    }

    /// Sends a bookmark to everybody who watches.
    pub fn send_bookmarks(&mut self) {
        let resources: Vec<Resource> = self.collections.keys().cloned().collect();
        for resource in resources {
            let bookmark = self.bookmark(&resource, false);
            if let Some(collection) = self.collections.get_mut(&resource) {
                collection.watchers.retain(|watcher| watcher.lines.try_send(Ok(bookmark.clone())).is_ok());
            }
        }
    }

    /// Ends all watches: with an error if they break, without if the server closes them.
    pub fn end_watches(&mut self, broken: bool) {
        for collection in self.collections.values_mut() {
            for watcher in collection.watchers.drain(..) {
                if broken {
                    // A watcher whose queue is full ends without it.
                    let _ = watcher.lines.try_send(Err(unreachable()));
                }
            }
        }
    }

    /// All versions of before are too old from now on.
    pub fn expire(&mut self) {
        self.version += 1;
        for collection in self.collections.values_mut() {
            collection.history.clear();
            collection.floor = self.version;
        }
    }

    pub fn watchers(&self, resource: &Resource) -> usize {
        let collection = self.collections.get(resource);
        collection.map_or(0, |collection| collection.watchers.iter().filter(|w| !w.lines.is_closed()).count())
    }
}

/// Where a watch begins.
pub(super) enum Start {
    /// With all there is, and perhaps the bookmark that says that this was all.
    WithState { bookmark: bool },
    /// With what came after a version.
    After(u64),
}

fn filled(lines: Vec<Line>, room: usize) -> (mpsc::Sender<Line>, mpsc::Receiver<Line>) {
    let (sender, receiver) = mpsc::channel(lines.len() + room);
    for line in lines {
        // There is room for all of them.
        let _ = sender.try_send(line);
    }
    (sender, receiver)
}

impl Collection {
    fn log(&mut self, logged: Logged) {
        self.watchers.retain(|watcher| match watcher.scope.tells(&logged) {
            None => !watcher.lines.is_closed(),
            Some(event) => watcher.lines.try_send(Ok(event)).is_ok(),
        });
        self.history.push_back(logged);
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.floor = oldest.version;
        }
    }
}

//! What the tests of the sources share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::Files;
use crablet_host::fake::{FakeFiles, SimClock};
use crablet_model::events::Event;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{
    Control, DesiredPod, Fetch, FetchError, Fetched, Op, PodUpdate, Source, SourceSettings, Started,
    Submitted,
};
use crate::events::EventSink;

pub const FOLDER: &str = "/etc/manifests";
pub const KEPT: &str = "/var/lib/crablet/submitted";

pub fn manifest(name: &str) -> String {
    with_image(name, "busybox:1")
}

pub fn with_image(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: main\n    image: {image}\n"
    )
}

pub fn new_disk() -> FakeFiles {
    FakeFiles::new(fastrand::Rng::with_seed(7))
}

#[derive(Default)]
pub struct Heard(Mutex<Vec<Event>>);

impl Heard {
    pub fn messages(&self) -> Vec<String> {
        let events = self.0.lock().unwrap();
        events.iter().map(|event| format!("{} {}: {}", event.kind, event.reason, event.message)).collect()
    }
}

impl EventSink for Heard {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A URL and the headers that went with it.
pub type Asked = (String, Vec<(String, String)>);

/// A web server in memory: what it answers, and what it was asked.
#[derive(Default)]
pub struct Web {
    pub answer: Mutex<Option<Result<Fetched, FetchError>>>,
    pub asked: Mutex<Vec<Asked>>,
}

impl Web {
    pub fn answers(&self, status: u16, status_line: &str, body: impl Into<Vec<u8>>) {
        let fetched = Fetched { status, status_line: status_line.to_owned(), body: body.into() };
        *self.answer.lock().unwrap() = Some(Ok(fetched));
    }

    pub fn fails(&self, error: FetchError) {
        *self.answer.lock().unwrap() = Some(Err(error));
    }
}

#[async_trait]
impl Fetch for Web {
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        _limit: usize,
        timeout: Duration,
    ) -> Result<Fetched, FetchError> {
        self.asked.lock().unwrap().push((url.to_owned(), headers.to_vec()));
        self.answer.lock().unwrap().clone().unwrap_or(Err(FetchError::Timeout(timeout)))
    }
}

/// All sources over a disk and a web in memory, and the pods that their updates add up to.
pub struct Rig {
    pub web: Arc<Web>,
    pub events: Arc<Heard>,
    pub submitted: Submitted,
    pub configured: Vec<Source>,
    pub control: Control,
    pub tasks: JoinSet<()>,
    updates: mpsc::Receiver<PodUpdate>,
    pub pods: BTreeMap<(Source, String), DesiredPod>,
}

pub fn settings() -> SourceSettings {
    SourceSettings {
        node_name: "n1".to_owned(),
        folder: Some(PathBuf::from(FOLDER)),
        folder_check: Duration::from_secs(20),
        url: None,
        url_headers: Vec::new(),
        url_check: Duration::from_secs(20),
        submitted_folder: PathBuf::from(KEPT),
        gates: Default::default(),
    }
}

impl Rig {
    pub fn on(disk: &FakeFiles) -> Self {
        Self::with(disk, settings())
    }

    pub fn with(disk: &FakeFiles, settings: SourceSettings) -> Self {
        Self::over(Arc::new(disk.clone()), settings)
    }

    pub fn over(files: Arc<dyn Files>, settings: SourceSettings) -> Self {
        let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
        let (web, events) = (Arc::new(Web::default()), Arc::new(Heard::default()));
        let mut tasks = JoinSet::new();
        let Started { updates, submitted, configured, control } =
            super::start(settings, files, clock, events.clone(), web.clone(), None, &mut tasks);
        Self { web, events, submitted, configured, control, tasks, updates, pods: BTreeMap::new() }
    }

    /// The updates of the next while, one line each: `File Add a-n1 b-n1`.
    pub async fn told_within(&mut self, time: Duration) -> Vec<String> {
        let end = tokio::time::Instant::now() + time;
        let mut lines = Vec::new();
        while let Ok(Some(update)) = tokio::time::timeout_at(end, self.updates.recv()).await {
            lines.push(self.apply(update));
        }
        // What one source says is in order; who speaks first is nobody's promise.
        lines.sort_by(|a, b| a.split(' ').next().cmp(&b.split(' ').next()));
        lines
    }

    /// The updates until nothing comes for a second.
    pub async fn told(&mut self) -> Vec<String> {
        self.told_within(Duration::from_secs(1)).await
    }

    /// The next update within an hour, as its line and the time it took.
    pub async fn next(&mut self) -> (String, Duration) {
        let start = tokio::time::Instant::now();
        let update =
            timeout(Duration::from_secs(3600), self.updates.recv()).await.expect("an update").expect("open");
        (self.apply(update), start.elapsed())
    }

    fn apply(&mut self, update: PodUpdate) -> String {
        let mut names: Vec<_> = update.pods.iter().map(|pod| pod.id.name.to_string()).collect();
        names.sort();
        let line = format!("{:?} {:?} {}", update.source, update.op, names.join(" ")).trim_end().to_owned();
        for pod in update.pods {
            let key = (update.source, pod.id.uid.as_str().to_owned());
            let was = match update.op {
                Op::Remove => self.pods.remove(&key),
                _ => self.pods.insert(key, pod),
            };
            assert_eq!(was.is_some(), update.op != Op::Add, "{:?} fits what is there", update.op);
        }
        line
    }

    /// The names of all pods.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.pods.values().map(|pod| pod.id.name.to_string()).collect();
        names.sort();
        names
    }

    pub fn images(&self) -> Vec<String> {
        let image = |pod: &DesiredPod| {
            let pod: crablet_model::api::Pod = serde_json::from_slice(&pod.json).unwrap();
            pod.spec.unwrap().containers[0].image.clone().unwrap()
        };
        self.pods.values().map(image).collect()
    }
}

//! Setting up the volumes of a pod, and waiting for what others have to do first.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid, api};
use crablet_planner::pod::config::MountedVolume;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info};

use crate::failure::{FAILED_MOUNT, Failure, Step};
use crate::figures;
use crate::layout::PodLayout;
use crate::plugins::{self, Ready, Request};
use crate::pod::{self, Owners};
use crate::port::told;
use crate::said::{Said, Telling};
use crate::slow::{self, Slow};
use crate::volumes::{Entry, Rendered, State, Volumes};

/// How long a pod waits for its volumes before it is begun anew, as upstream.
const PATIENCE: Duration = Duration::from_secs(123);
/// Between two looks at what nobody tells of: claims, for one.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const LAST_LOOK: Duration = Duration::from_secs(10);

/// What begins the message of a pod that the node can have no volume for.
const TOO_MANY: &str = "Node has reached its volume attachment limit, rejecting pod.";

/// The volumes that are not there, and why.
type Missing<'a> = BTreeMap<&'a str, Failure>;

impl Volumes {
    /// Everything that the pod's containers use is there afterwards. Costs nothing when it was set up before in this
    /// life of the agent. Waits for claims, attachments and objects that are to come; any other failure is told at
    /// once. The error is upstream's text and was told as an event.
    pub async fn set_up(&self, pod: &api::Pod) -> Result<BTreeMap<String, MountedVolume>, String> {
        let id = PodRef::of(pod);
        let spec = pod.spec.as_ref().ok_or_else(|| format!("pod {id} has no specification"))?;
        let wanted = pod::wanted(spec);
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let entry = self.entry(&id);
        entry.take_in(pod);
        let ready = entry.leaving.or(self.wait_for(&entry, pod, spec, &wanted)).await;
        ready.unwrap_or_else(|| Err(format!("the volumes of pod {id} are being taken down")))
    }

    async fn wait_for(
        &self,
        entry: &Entry,
        pod: &api::Pod,
        spec: &api::PodSpec,
        wanted: &[&api::Volume],
    ) -> Result<BTreeMap<String, MountedVolume>, String> {
        let id = &entry.id;
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_LOOK;
        loop {
            let news = entry.news.notified();
            tokio::pin!(news);
            // From here on nothing is missed.
            news.as_mut().enable();
            let mut state = entry.state.lock().await;
            if state.gone {
                return Err(format!("the volumes of pod {id} were taken down meanwhile"));
            }
            let missing = self.try_once(entry, &mut state, pod, spec, wanted).await?;
            if missing.is_empty() {
                self.ctx.attachments.met(&id.uid);
                self.watch_growth(id, wanted, &state);
                return Ok(state.mounted.clone());
            }
            let now = Instant::now();
            if now >= deadline || missing.values().any(|failure| !failure.waits) {
                let text = summary(&state, wanted, &missing, now >= deadline);
                if now >= deadline && self.is_exhausted(&missing).await {
                    state.refused = Some(format!("{TOO_MANY} {text}"));
                }
                return Err(text);
            }
            drop(state);
            // Nothing is lost when the wait ends early: the next round looks at everything.
            if timeout_at(deadline.min(now + pause), news).await.is_err() {
                pause = (pause * 2).min(LAST_LOOK);
            }
        }
    }

    /// Why the pod must not run on this node, if its volumes can never be had here.
    pub async fn refusal(&self, uid: &PodUid) -> Option<String> {
        self.known(uid)?.state.lock().await.refused.clone()
    }

    async fn is_exhausted(&self, missing: &Missing<'_>) -> bool {
        let Some(csi) = &self.ctx.csi else { return false };
        for (driver, handle) in missing.values().filter_map(|failure| failure.unattached.as_deref()) {
            if csi.is_exhausted(driver, handle).await {
                return true;
            }
        }
        false
    }

    async fn try_once<'a>(
        &self,
        entry: &Entry,
        state: &mut State,
        pod: &api::Pod,
        spec: &api::PodSpec,
        wanted: &[&'a api::Volume],
    ) -> Result<Missing<'a>, String> {
        let missing: Vec<_> =
            wanted.iter().copied().filter(|volume| !state.mounted.contains_key(&volume.name)).collect();
        if missing.is_empty() {
            return Ok(Missing::new());
        }
        let layout = PodLayout::new(&self.ctx.root_dir, &entry.id.uid);
        for folder in [layout.volumes(), layout.plugins()] {
            let made = self.ctx.host.make_folder(&folder, 0o750, 0o750).await;
            made.map_err(|error| {
                format!("error making pod data directories: {}", told("mkdir", &folder, &error))
            })?;
        }
        let (failures, done) = self.render(entry, state, pod, spec, missing, false).await;
        if let Some(at) = done.refresh_at {
            self.inbox.refresh(&entry.id.uid, at);
        }
        self.say_of_all(&entry.id, state, wanted, &failures);
        Ok(failures)
    }

    /// Makes the volumes of a set-up pod show what is true now.
    pub(crate) async fn render_again(&self, uid: &PodUid) -> Rendered {
        let Some(entry) = self.known(uid) else { return Rendered::default() };
        entry.leaving.or(self.show_again(&entry)).await.unwrap_or_default()
    }

    async fn show_again(&self, entry: &Entry) -> Rendered {
        let state = &mut *entry.state.lock().await;
        if state.gone {
            return Rendered::default();
        }
        let pod: api::Pod = match serde_json::from_slice(&entry.json()) {
            Ok(pod) => pod,
            Err(error) => {
                error!(pod = entry.id.object_ref(), %error, "Failed to read the pod: its volumes stay as they are");
                return Rendered { failed: true, refresh_at: None };
            }
        };
        let Some(spec) = &pod.spec else { return Rendered::default() };
        // What is mounted was wanted once; the pod at hand may be older than that.
        let showing = |volume: &&api::Volume| {
            let changes = plugins::shows(volume) || state.refreshed.contains(&volume.name);
            changes && state.mounted.contains_key(&volume.name)
        };
        let volumes = spec.volumes.iter().flatten().filter(showing).collect();
        self.render(entry, state, &pod, spec, volumes, true).await.1
    }

    /// All at once: one that hangs keeps none of the others waiting.
    async fn render<'a>(
        &self,
        entry: &Entry,
        state: &mut State,
        pod: &api::Pod,
        spec: &api::PodSpec,
        volumes: Vec<&'a api::Volume>,
        again: bool,
    ) -> (Missing<'a>, Rendered) {
        let (mut failures, mut rendered) = (Missing::new(), Rendered::default());
        let owners = Owners::of(spec);
        let now = self.ctx.clock.now();
        let work = volumes.into_iter().map(|volume| {
            let slow = state.slow.entry(volume.name.clone()).or_insert_with(|| Slow::since(now)).clone();
            async move {
                let layout = PodLayout::new(&self.ctx.root_dir, &entry.id.uid);
                let (ctx, id, slow) = (&self.ctx, &entry.id, &slow);
                let request = Request { ctx, id, layout, pod, spec, owners, volume, again, slow };
                let tell = |since| {
                    let text = slow::text_of_set_up(volume, since);
                    ctx.events.emit(Event::warning(id, FAILED_MOUNT, text));
                };
                let begun = Instant::now();
                let made = slow.watch(Box::pin(plugins::set_up(&request)), tell).await;
                let whole = if again { begun.elapsed() } else { slow.so_far(self.ctx.clock.now()) };
                figures::set_up(volume, &made, begun.elapsed(), whole);
                (volume.name.as_str(), made)
            }
        });
        let mut work: FuturesUnordered<_> = work.collect();
        while let Some((name, made)) = work.next().await {
            match made {
                Ok(Ready { mounted, refresh_at, disk_name }) => {
                    if state.said.remove(name).is_some() {
                        info!(pod = entry.id.object_ref(), volume = name, "MountVolume.SetUp succeeded");
                    }
                    state.mounted.insert(name.to_owned(), mounted);
                    state.slow.remove(name);
                    match refresh_at {
                        Some(_) => state.refreshed.insert(name.to_owned()),
                        None => state.refreshed.remove(name),
                    };
                    state.disk_names.extend(disk_name.map(|disk_name| (name.to_owned(), disk_name)));
                    rendered.refresh_at = [rendered.refresh_at, refresh_at].into_iter().flatten().min();
                }
                Err(failure) => {
                    rendered.failed = true;
                    self.say(&entry.id, state, name, &failure);
                    failures.insert(name, failure);
                }
            }
        }
        (failures, rendered)
    }

    fn say(&self, id: &PodRef, state: &mut State, volume: &str, failure: &Failure) {
        let event = failure.event(volume);
        let text = event.as_ref().map_or(failure.text.as_str(), |(_, text)| text);
        let said = state.said.entry(volume.to_owned()).or_default();
        let telling = said.say(text, self.ctx.clock.now());
        if telling == Telling::News {
            error!(pod = id.object_ref(), podUID = id.uid.as_str(), volume, "{text}");
        }
        if telling != Telling::Known
            && let Some((reason, text)) = event
        {
            self.ctx.events.emit(Event::warning(id, reason, text));
        }
    }

    /// What cannot even be begun is told for all volumes of the pod together.
    fn say_of_all(&self, id: &PodRef, state: &mut State, wanted: &[&api::Volume], missing: &Missing<'_>) {
        if !missing.values().any(|failure| failure.step == Step::Process) {
            state.said_of_all = Said::default();
            return;
        }
        let text = format!("Unable to attach or mount volumes: {}", summary(state, wanted, missing, false));
        if state.said_of_all.say(&text, self.ctx.clock.now()) != Telling::Known {
            self.ctx.events.emit(Event::warning(id, FAILED_MOUNT, text));
        }
    }
}

/// `unmounted volumes=[a b], unattached volumes=[b], failed to process volumes=[a]: why`. Where all is known and only
/// mounting failed, the failures themselves.
fn summary(state: &State, wanted: &[&api::Volume], missing: &Missing<'_>, too_late: bool) -> String {
    let of = |step: Step| {
        let names = missing.iter().filter(|(_, failure)| failure.step == step).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(" ")
    };
    let (unattached, unprocessed) = (of(Step::Attach), of(Step::Process));
    let absent = wanted.iter().map(|volume| volume.name.as_str()).filter(|name| missing.contains_key(name));
    if unprocessed.is_empty() && !too_late {
        return absent.filter_map(|name| state.said.get(name)).map(Said::text).collect::<Vec<_>>().join("; ");
    }
    let all: Vec<&str> = missing.keys().copied().collect();
    let unprocessed_failures =
        absent.filter_map(|name| missing.get(name)).filter(|f| f.step == Step::Process);
    let why: Vec<&str> = unprocessed_failures.map(|failure| failure.text.as_str()).collect();
    let why = if why.is_empty() { "context deadline exceeded".to_owned() } else { why.join("; ") };
    format!(
        "unmounted volumes=[{}], unattached volumes=[{unattached}], failed to process volumes=[{unprocessed}]: {why}",
        all.join(" ")
    )
}

//! Images made ready for containers: looked up, or pulled, a bounded number at a time.
//!
//! | module | what it does |
//! |---|---|
//! | `limits` | how many pulls run and begin |
//! | `credentials` | what a pod may pull with: its secrets, the node's files, programs that know |
//! | `missing` | tells of secrets that are not there, though nobody needs them yet |
//! | `keyring`, `glob` | which credentials fit an image |
//! | `docker_config` | credentials in Docker's files |
//! | [`providers`] | programs that know credentials |
//! | `records` | what was pulled, and with whose credentials |
//! | `under_way` | who waits for a pull, and how far it is |
//! | `verification` | whether a pod may use what another pulled |
//!
//! Secrets are in no log, no event and no message.

mod credentials;
mod docker_config;
mod glob;
mod keyring;
mod limits;
mod missing;
pub mod providers;
mod records;
#[cfg(test)]
mod tests;
mod under_way;
mod verification;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crablet_apiserver::Objects;
use crablet_cri::Runtime;
use crablet_host::{Clock, Files};
use crablet_model::events::Event;
use crablet_model::image::with_default_tag;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::runtime::{Image, ListedImage, SandboxConfig};
use crablet_model::{PodRef, Role, api};
use crablet_planner::pod::{Outcome, PreparedImage, PullPolicy};
use jiff::Timestamp;
use tokio::sync::{Notify, OnceCell, SemaphorePermit};
use tokio::time::Instant;

use self::credentials::Credentials;
use self::docker_config::NodeFiles;
use self::keyring::Credential;
use self::limits::Limits;
use self::missing::Missing;
use self::providers::Providers;
use self::providers::config::Provider;
use self::providers::{Known as KnownProvider, ServiceAccounts};
use self::records::{Known, Records};
use self::under_way::UnderWay;
use crate::events::EventSink;
use crate::settings::ImagePulls;

pub use self::under_way::{Part, Pull, Pulls};
pub use self::verification::Verification;

/// A pull that takes longer goes on, but no longer keeps others waiting: a stuck registry must not hold up the rest.
const SLOT_PATIENCE: Duration = Duration::from_secs(120);

/// What images are made ready with.
pub struct ImagePorts {
    pub runtime: Arc<dyn Runtime>,
    pub events: Arc<dyn EventSink>,
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
    pub objects: Arc<dyn Objects>,
    /// For programs that are told of them; `None` in standalone mode.
    pub accounts: Option<Arc<dyn ServiceAccounts>>,
}

pub struct ImageSettings {
    pub pulls: ImagePulls,
    pub verification: Verification,
    /// `--root-dir`: below it lie the records.
    pub root: PathBuf,
    pub docker: DockerFolders,
    pub providers: Vec<Provider>,
}

/// Where files with credentials for all pods may lie, in the order in which they are looked for.
#[derive(Clone, Debug, Default)]
pub struct DockerFolders {
    pub config_json: Vec<PathBuf>,
    pub dockercfg: Vec<PathBuf>,
}

pub struct Images {
    runtime: Arc<dyn Runtime>,
    events: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    missing: Missing,
    verification: Verification,
    records: Records,
    /// What an earlier life began was looked at.
    recovered: OnceCell<()>,
    limits: std::sync::Mutex<Arc<Limits>>,
    pulled: Arc<Notify>,
    under_way: Arc<UnderWay>,
}

/// What is asked for.
pub struct Wanted<'a> {
    pub pod: &'a PodRef,
    /// For its secrets and its service account.
    pub spec: Option<&'a api::Pod>,
    pub container: &'a str,
    pub role: Role,
    /// A volume shows it: then what happens to it is told of the pod, and what comes of it of the container.
    pub of_volume: bool,
    pub image: &'a str,
    pub policy: PullPolicy,
    /// Otherwise its pulls have failed and wait: it is only looked for.
    pub may_pull: bool,
    pub sandbox: Option<&'a SandboxConfig>,
}

/// Why an image is not ready.
struct Refusal {
    reason: String,
    message: String,
    pulled: bool,
}

impl Images {
    pub fn new(ports: ImagePorts, settings: ImageSettings) -> Self {
        let ImagePorts { runtime, events, files, clock, objects, accounts } = ports;
        let known = settings.providers.into_iter().map(KnownProvider::new).collect();
        Self {
            records: Records::new(files.clone(), &settings.root),
            credentials: Arc::new(Credentials {
                providers: Providers { known, objects: objects.clone(), accounts },
                objects,
                events: events.clone(),
                files,
                node: NodeFiles::new(&settings.docker),
            }),
            missing: Missing::default(),
            verification: settings.verification,
            recovered: OnceCell::new(),
            limits: std::sync::Mutex::new(Limits::new(&settings.pulls)),
            runtime,
            events,
            clock,
            pulled: Arc::default(),
            under_way: Arc::default(),
        }
    }

    /// Told after each pull that brought an image.
    pub fn pulled(&self) -> Arc<Notify> {
        self.pulled.clone()
    }

    /// Pulls that somebody waits for, and how far they are.
    pub async fn under_way(&self) -> Pulls {
        let incoming = under_way::incoming(&*self.runtime).await;
        let incoming = incoming.map(|parts| parts.into_iter().map(Part::from).collect());
        Pulls { pulls: self.under_way.all(), incoming }
    }

    /// For pulls that are asked for from now on.
    pub fn set_limits(&self, settings: &ImagePulls) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.of != *settings {
            *limits = Limits::new(settings);
        }
    }

    fn limits(&self) -> Arc<Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub async fn ensure(&self, wanted: Wanted<'_>) -> Outcome {
        let (container, image) = (wanted.container.to_owned(), wanted.image.to_owned());
        match self.find_or_pull(&wanted).await {
            Ok(Some(prepared)) => Outcome::ImageReady { container, image, prepared },
            Ok(None) => Outcome::ImageMissing { container },
            Err(refusal) => {
                let text = format!("Error: {}", refusal.reason);
                let event = Event::warning(wanted.pod, event_reason::FAILED, text);
                self.events.emit(event.on(wanted.role, wanted.container));
                let Refusal { reason, message, pulled } = refusal;
                Outcome::ImageFailed { container, image, reason, message, pulled }
            }
        }
    }

    /// The same for an image that nobody needs: nobody waits for it, and nobody is told that he lacks it.
    pub async fn try_ensure(&self, wanted: Wanted<'_>) {
        if let Err(Refusal { reason, message, .. }) = self.find_or_pull(&wanted).await {
            let (image, pod) = (wanted.image, wanted.pod.object_ref());
            tracing::warn!(image, pod, reason, why = message, "no image for a volume that nobody mounts");
        }
    }

    /// `None` for one that is not there and must not be pulled now.
    async fn find_or_pull(&self, wanted: &Wanted<'_>) -> Result<Option<PreparedImage>, Refusal> {
        let image = wanted.image;
        let tagged = with_default_tag(image).map_err(|_| {
            let why = crablet_model::image::refusal(image);
            let message = format!("Failed to apply default image tag {image:?}: {why}");
            self.warn(wanted, event_reason::INSPECT_FAILED, message.clone());
            refusal(container_reason::INVALID_IMAGE_NAME, message)
        })?;
        let present = match wanted.policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => self.look_up(wanted, &tagged).await?,
        };
        let mut offered = None;
        if let Some(present) = present
            && self.may_use(wanted, &tagged, &present, &mut offered).await?
        {
            let text = match self.verification.records() {
                true => "already present on machine and can be accessed by the pod",
                false => "already present on machine",
            };
            if offered.is_none() && !wanted.of_volume {
                self.missing.tell(&self.credentials, wanted.pod, wanted.spec);
            }
            self.tell(wanted, event_reason::PULLED, format!("Container image \"{image}\" {text}"));
            return Ok(Some(prepared(present.id.clone(), Some(&present))));
        }
        if wanted.policy == PullPolicy::Never {
            // The same for an image that is there and not for this pod: nobody learns that it is.
            let text = format!("Container image \"{image}\" is not present with pull policy of Never");
            self.warn(wanted, event_reason::ERR_IMAGE_NEVER_PULL, text.clone());
            return Err(refusal(container_reason::ERR_IMAGE_NEVER_PULL, text));
        }
        if !wanted.may_pull {
            return Ok(None);
        }
        let offered = match offered {
            Some(offered) => offered,
            None => self.credentials(wanted, &tagged).await?,
        };
        self.pull(wanted, &tagged, &offered).await.map(Some)
    }

    async fn look_up(&self, wanted: &Wanted<'_>, tagged: &str) -> Result<Option<Image>, Refusal> {
        self.runtime.image_status(tagged, wanted.sandbox).await.map_err(|error| {
            // Upstream names what it did not get: the reference.
            let text = format!("Failed to inspect image \"\": {}", error.with_code());
            self.warn(wanted, event_reason::INSPECT_FAILED, text.clone());
            refusal(container_reason::IMAGE_INSPECT_ERROR, text)
        })
    }

    async fn credentials(&self, wanted: &Wanted<'_>, tagged: &str) -> Result<Vec<Credential>, Refusal> {
        let found = self.credentials.of(wanted.pod, wanted.spec, tagged).await;
        // As upstream, what is wrong with a secret is reason and message in one.
        found.map_err(|error| refusal(&error, error.clone()))
    }

    /// Whether the pod may use an image that is there. `offered` gets its credentials if they were looked for.
    async fn may_use(
        &self,
        wanted: &Wanted<'_>,
        tagged: &str,
        present: &Image,
        offered: &mut Option<Vec<Credential>>,
    ) -> Result<bool, Refusal> {
        if !self.verification.records() {
            return Ok(true);
        }
        self.recovered.get_or_init(|| self.recover()).await;
        let known = match self.records.known(wanted.image, &present.id).await {
            Ok(known) => known,
            Err(error) => {
                tracing::error!(%error, image = wanted.image, "Unable to access cache records about image pulls");
                return Ok(false);
            }
        };
        if !self.verification.needed(wanted.image, !matches!(known, Known::Nothing)) {
            return Ok(true);
        }
        match known {
            Known::ByNode => Ok(true),
            Known::Nothing => Ok(false),
            Known::Pulled => {
                let credentials = offered.insert(self.credentials(wanted, tagged).await?);
                let now = self.clock.now();
                Ok(self.records.opens(wanted.image, &present.id, credentials, now).await)
            }
        }
    }

    /// Forgets who pulled images that are no more. `listed_at`: when the runtime was asked for those that are.
    pub async fn forget_absent(&self, images: &[ListedImage], listed_at: Timestamp) {
        if self.verification.records() {
            self.records.prune(images, listed_at).await;
        }
    }

    async fn recover(&self) {
        if !self.records.has_intents().await {
            return;
        }
        match self.runtime.list_images().await {
            Ok(images) => self.records.recover(&images, self.clock.now()).await,
            Err(error) => tracing::error!(%error, "failed to list images"),
        }
    }

    async fn pull(
        &self,
        wanted: &Wanted<'_>,
        tagged: &str,
        offered: &[Credential],
    ) -> Result<PreparedImage, Refusal> {
        let image = wanted.image;
        let asked = Instant::now();
        self.tell(wanted, event_reason::PULLING, format!("Pulling image \"{image}\""));
        let ticket = self.under_way.add(wanted.pull(self.clock.now()));
        // The semaphore is never closed, so a permit always comes.
        let limits = self.limits();
        let slot = limits.slots.acquire().await.ok();
        // While this pod waited for its turn, another may have pulled the same image.
        if wanted.policy == PullPolicy::IfNotPresent
            && let Ok(Some(present)) = self.runtime.image_status(tagged, wanted.sandbox).await
            && self.may_use(wanted, tagged, &present, &mut None).await?
        {
            self.tell_pulled(wanted, Duration::ZERO, asked, present.size);
            return Ok(prepared(present.id.clone(), Some(&present)));
        }
        limits.begin().await;
        if self.verification.records()
            && let Err(error) = self.records.begin(image).await
        {
            let text = format!("Failed to record image pull intent for container image {image:?}: {error}");
            return Err(refusal(&error.to_string(), text));
        }
        let began = Instant::now();
        ticket.begins(self.clock.now());
        let mut pull = Box::pin(self.pull_with_any(tagged, offered, wanted.sandbox));
        let pulled = tokio::select! {
            biased;
            pulled = &mut pull => pulled,
            never = self.tell_while_it_lasts(wanted, began, slot) => match never {},
        };
        let (image_ref, used) = match pulled {
            Ok(pulled) => pulled,
            Err(why) => {
                if self.verification.records() {
                    self.records.failed(image).await;
                }
                self.warn(wanted, event_reason::FAILED, format!("Failed to pull image \"{image}\": {why}"));
                return Err(pull_refusal(image, &why));
            }
        };
        if self.verification.records() {
            self.records.pulled(image, &image_ref, used, self.clock.now()).await;
        }
        self.pulled.notify_one();
        let took = began.elapsed();
        let present = self.runtime.image_status(&image_ref, wanted.sandbox).await.ok().flatten();
        self.tell_pulled(wanted, took, asked, present.as_ref().map_or(0, |i| i.size));
        Ok(prepared(image_ref, present.as_ref()))
    }

    /// Also where another pod's pull brought it: who is told that a pull began is told how it ended.
    fn tell_pulled(&self, wanted: &Wanted<'_>, took: Duration, asked: Instant, size: u64) {
        let text = format!(
            "Successfully pulled image \"{}\" in {} ({} including waiting). Image size: {size} bytes.",
            wanted.image,
            milliseconds(took),
            milliseconds(asked.elapsed()),
        );
        self.tell(wanted, event_reason::PULLED, text);
    }

    /// What a long pull is told of while it lasts; and after a while it no longer keeps others waiting.
    async fn tell_while_it_lasts(
        &self,
        wanted: &Wanted<'_>,
        began: Instant,
        mut slot: Option<SemaphorePermit<'_>>,
    ) -> Infallible {
        loop {
            tokio::time::sleep(under_way::next_word(began.elapsed())).await;
            if began.elapsed() >= SLOT_PATIENCE {
                drop(slot.take());
            }
            let incoming = under_way::incoming(&*self.runtime).await;
            let word = under_way::word(wanted.image, began.elapsed(), incoming.as_deref());
            self.tell(wanted, event_reason::PULLING, word);
        }
    }

    /// Tries one after the other, and without any if there are none. Says which it was, or why none was.
    async fn pull_with_any<'a>(
        &self,
        image: &str,
        offered: &'a [Credential],
        sandbox: Option<&SandboxConfig>,
    ) -> Result<(String, Option<&'a Credential>), String> {
        if offered.is_empty() {
            let pulled = self.runtime.pull_image(image, None, sandbox).await;
            return pulled.map(|image_ref| (image_ref, None)).map_err(|error| error.with_known_code());
        }
        let mut failures: Vec<String> = Vec::new();
        for credential in offered {
            match self.runtime.pull_image(image, Some(&credential.auth), sandbox).await {
                Ok(image_ref) => return Ok((image_ref, Some(credential))),
                Err(error) => {
                    let why = error.with_known_code();
                    if !failures.contains(&why) {
                        failures.push(why);
                    }
                }
            }
        }
        Err(match &failures[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        })
    }

    fn tell(&self, wanted: &Wanted<'_>, reason: &'static str, text: String) {
        self.events.emit(wanted.told(Event::normal(wanted.pod, reason, text)));
    }

    fn warn(&self, wanted: &Wanted<'_>, reason: &'static str, text: String) {
        self.events.emit(wanted.told(Event::warning(wanted.pod, reason, text)));
    }
}

impl Wanted<'_> {
    fn pull(&self, now: Timestamp) -> Pull {
        Pull {
            image: self.image.to_owned(),
            namespace: self.pod.namespace.to_string(),
            pod: self.pod.name.to_string(),
            container: self.container.to_owned(),
            asked: now,
            began: None,
        }
    }

    fn told(&self, event: Event) -> Event {
        if self.of_volume { event } else { event.on(self.role, self.container) }
    }
}

fn prepared(image_ref: String, image: Option<&Image>) -> PreparedImage {
    PreparedImage {
        image_ref,
        uid: image.and_then(|i| i.uid),
        username: image.map(|i| i.username.clone()).unwrap_or_default(),
    }
}

fn refusal(reason: &str, message: String) -> Refusal {
    Refusal { reason: reason.to_owned(), message, pulled: false }
}

/// Runtimes that know more say so with the first word of their message, as CRI documents it.
fn pull_refusal(image: &str, message: &str) -> Refusal {
    let known = [
        (container_reason::REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (container_reason::SIGNATURE_VALIDATION_FAILED, "the signature validation failed"),
    ];
    for (reason, why) in known {
        if let Some(rest) = message.strip_prefix(reason) {
            let message = format!("image pull failed for {image} because {why}{rest}");
            return Refusal { reason: reason.to_owned(), message, pulled: true };
        }
    }
    Refusal { reason: container_reason::ERR_IMAGE_PULL.to_owned(), message: message.to_owned(), pulled: true }
}

fn milliseconds(duration: Duration) -> String {
    let whole = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    crablet_model::duration::format(Duration::from_millis(whole))
}

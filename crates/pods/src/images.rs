//! Images made ready for containers: looked up, or pulled, a bounded number at a time.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crablet_cri::Runtime;
use crablet_model::PodRef;
use crablet_model::events::Event;
use crablet_model::image::with_default_tag;
use crablet_model::names::{container_reason, event_reason};
use crablet_model::runtime::{Image, SandboxConfig};
use crablet_planner::pod::{Outcome, PreparedImage, PullPolicy};
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::Instant;

use crate::events::EventSink;
use crate::settings::ImagePulls;

pub struct Images {
    runtime: Arc<dyn Runtime>,
    events: Arc<dyn EventSink>,
    limits: std::sync::Mutex<Arc<Limits>>,
    pulled: Arc<Notify>,
}

/// How many pulls may run and begin. Replaced as a whole: a pull keeps to the limits that held when it was asked for.
struct Limits {
    of: ImagePulls,
    slots: Semaphore,
    bucket: Option<Mutex<Bucket>>,
}

impl Limits {
    fn new(settings: &ImagePulls) -> Arc<Self> {
        let bucket = (settings.qps > 0.0).then(|| Mutex::new(Bucket::new(settings.qps, settings.burst)));
        Arc::new(Self { of: *settings, slots: Semaphore::new(settings.parallel.max(1)), bucket })
    }
}

/// A pull that takes longer goes on, but no longer keeps others waiting: a stuck registry must not hold up the rest.
const SLOT_PATIENCE: Duration = Duration::from_secs(120);

/// What is asked for.
pub struct Wanted<'a> {
    pub pod: &'a PodRef,
    pub container: &'a str,
    pub image: &'a str,
    pub policy: PullPolicy,
    pub sandbox: Option<&'a SandboxConfig>,
}

/// Why an image is not ready.
struct Refusal {
    reason: String,
    message: String,
    pulled: bool,
}

impl Images {
    pub fn new(runtime: Arc<dyn Runtime>, events: Arc<dyn EventSink>, settings: &ImagePulls) -> Self {
        Self { runtime, events, limits: std::sync::Mutex::new(Limits::new(settings)), pulled: Arc::default() }
    }

    /// Told after each pull that brought an image.
    pub fn pulled(&self) -> Arc<Notify> {
        self.pulled.clone()
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
            Ok(prepared) => Outcome::ImageReady { container, image, prepared },
            Err(refusal) => {
                let text = format!("Error: {}", refusal.reason);
                self.tell(Event::warning(wanted.pod, event_reason::FAILED, text), &wanted);
                let Refusal { reason, message, pulled } = refusal;
                Outcome::ImageFailed { container, image, reason, message, pulled }
            }
        }
    }

    async fn find_or_pull(&self, wanted: &Wanted<'_>) -> Result<PreparedImage, Refusal> {
        let image = wanted.image;
        if let Err(error) = with_default_tag(image) {
            let message = format!("Failed to apply default image tag \"{image}\": {error}");
            self.tell(Event::warning(wanted.pod, event_reason::INSPECT_FAILED, message.clone()), wanted);
            return Err(refusal(container_reason::INVALID_IMAGE_NAME, message));
        }
        if wanted.policy != PullPolicy::Always
            && let Some(present) = self.look_up(wanted).await?
        {
            return Ok(present);
        }
        if wanted.policy == PullPolicy::Never {
            let text = format!("Container image \"{image}\" is not present with pull policy of Never");
            self.tell(Event::warning(wanted.pod, event_reason::ERR_IMAGE_NEVER_PULL, text.clone()), wanted);
            return Err(refusal(container_reason::ERR_IMAGE_NEVER_PULL, text));
        }
        self.pull(wanted).await
    }

    async fn look_up(&self, wanted: &Wanted<'_>) -> Result<Option<PreparedImage>, Refusal> {
        let image = wanted.image;
        match self.runtime.image_status(image).await {
            Ok(None) => Ok(None),
            Ok(Some(present)) => {
                let text = format!(
                    "Container image \"{image}\" already present on machine and can be accessed by the pod"
                );
                self.tell(Event::normal(wanted.pod, event_reason::PULLED, text), wanted);
                Ok(Some(prepared(present.id.clone(), Some(&present))))
            }
            Err(error) => {
                let text = format!("Failed to inspect image \"{image}\": {error}");
                self.tell(Event::warning(wanted.pod, event_reason::INSPECT_FAILED, text.clone()), wanted);
                Err(refusal(container_reason::IMAGE_INSPECT_ERROR, text))
            }
        }
    }

    async fn pull(&self, wanted: &Wanted<'_>) -> Result<PreparedImage, Refusal> {
        let image = wanted.image;
        let asked = Instant::now();
        self.tell(
            Event::normal(wanted.pod, event_reason::PULLING, format!("Pulling image \"{image}\"")),
            wanted,
        );
        // The semaphore is never closed, so a permit always comes.
        let limits = self.limits();
        let slot = limits.slots.acquire().await.ok();
        // While this pod waited for its turn, another may have pulled the same image.
        if wanted.policy == PullPolicy::IfNotPresent
            && let Ok(Some(present)) = self.runtime.image_status(image).await
        {
            return Ok(prepared(present.id.clone(), Some(&present)));
        }
        if let Some(bucket) = &limits.bucket {
            Bucket::take(bucket).await;
        }
        let began = Instant::now();
        let mut pull = self.runtime.pull_image(image, wanted.sandbox);
        let pulled = match tokio::time::timeout(SLOT_PATIENCE, &mut pull).await {
            Ok(pulled) => pulled,
            Err(_) => {
                drop(slot);
                pull.await
            }
        };
        let image_ref = pulled.map_err(|error| {
            let text = format!("Failed to pull image \"{image}\": {error}");
            self.tell(Event::warning(wanted.pod, event_reason::FAILED, text), wanted);
            pull_refusal(image, &error.message)
        })?;
        self.pulled.notify_one();
        let present = self.runtime.image_status(&image_ref).await.ok().flatten();
        let text = format!(
            "Successfully pulled image \"{image}\" in {} ({} including waiting). Image size: {} bytes.",
            milliseconds(began.elapsed()),
            milliseconds(asked.elapsed()),
            present.as_ref().map_or(0, |i| i.size)
        );
        self.tell(Event::normal(wanted.pod, event_reason::PULLED, text), wanted);
        Ok(prepared(image_ref, present.as_ref()))
    }

    fn tell(&self, event: Event, wanted: &Wanted<'_>) {
        self.events.emit(event.on_container(wanted.container));
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
    let known = [container_reason::REGISTRY_UNAVAILABLE, container_reason::SIGNATURE_VALIDATION_FAILED];
    let reason =
        known.into_iter().find(|r| message.starts_with(r)).unwrap_or(container_reason::ERR_IMAGE_PULL);
    let message = match message.strip_prefix(container_reason::REGISTRY_UNAVAILABLE) {
        Some(rest) => format!("image pull failed for {image} because the registry is unavailable{rest}"),
        None => message.to_owned(),
    };
    Refusal { reason: reason.to_owned(), message, pulled: true }
}

fn milliseconds(duration: Duration) -> String {
    let whole = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    crablet_model::duration::format(Duration::from_millis(whole))
}

/// Pulls begun per second. Where upstream refuses a pull that comes too early, and lets it fail, Crablet lets it wait.
struct Bucket {
    tokens: f64,
    burst: f64,
    qps: f64,
    filled: Instant,
}

impl Bucket {
    fn new(qps: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { tokens: burst, burst, qps, filled: Instant::now() }
    }

    async fn take(bucket: &Mutex<Self>) {
        // Held while waiting: those behind wait in line.
        let mut bucket = bucket.lock().await;
        bucket.fill();
        if bucket.tokens < 1.0 {
            let missing = (1.0 - bucket.tokens) / bucket.qps;
            tokio::time::sleep(Duration::from_secs_f64(missing)).await;
            bucket.fill();
        }
        bucket.tokens -= 1.0;
    }

    fn fill(&mut self) {
        let now = Instant::now();
        self.tokens = (self.tokens + (now - self.filled).as_secs_f64() * self.qps).min(self.burst);
        self.filled = now;
    }
}

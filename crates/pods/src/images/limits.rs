//! How many pulls may run, and how many may begin.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::settings::ImagePulls;

/// Replaced as a whole: a pull keeps to the limits that held when it was asked for. Those who wait are served in the
/// order in which they came.
pub(super) struct Limits {
    pub of: ImagePulls,
    pub slots: Semaphore,
    bucket: Option<Mutex<Bucket>>,
}

impl Limits {
    pub fn new(settings: &ImagePulls) -> Arc<Self> {
        let bucket = (settings.qps > 0.0).then(|| Mutex::new(Bucket::new(settings.qps, settings.burst)));
        Arc::new(Self { of: *settings, slots: Semaphore::new(settings.parallel.max(1)), bucket })
    }

    /// Waits until one more pull may begin.
    pub async fn begin(&self) {
        if let Some(bucket) = &self.bucket {
            Bucket::take(bucket).await;
        }
    }
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

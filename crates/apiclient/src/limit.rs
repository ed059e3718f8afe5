//! Requests per second.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{self, Instant};

/// What client-go takes for a rate or burst of zero.
const DEFAULT_RATE: i32 = 5;
const DEFAULT_BURST: i32 = 10;

/// A token bucket. Those who wait are served in the order in which they came.
pub struct Limit {
    /// None without a limit.
    bucket: Option<Mutex<Bucket>>,
}

struct Bucket {
    tokens: f64,
    burst: f64,
    per_second: f64,
    filled: Instant,
}

impl Limit {
    pub fn new(per_second: i32, burst: i32) -> Self {
        if per_second < 0 {
            return Self { bucket: None };
        }
        let or = |value: i32, default| f64::from(if value == 0 { default } else { value.max(1) });
        let (per_second, burst) = (or(per_second, DEFAULT_RATE), or(burst, DEFAULT_BURST));
        Self { bucket: Some(Mutex::new(Bucket { tokens: burst, burst, per_second, filled: Instant::now() })) }
    }

    /// Waits for a token. Dropping the future takes none: the one in front waits while it holds the bucket, and takes
    /// its token without waiting again.
    pub async fn token(&self) {
        let Some(bucket) = &self.bucket else { return };
        let mut bucket = bucket.lock().await;
        bucket.fill();
        while bucket.tokens < 1.0 {
            // At least a tick of the timer, so that rounding cannot make this spin.
            let missing = (1.0 - bucket.tokens) / bucket.per_second;
            time::sleep(Duration::from_secs_f64(missing).max(Duration::from_millis(1))).await;
            bucket.fill();
        }
        bucket.tokens -= 1.0;
    }
}

impl Bucket {
    fn fill(&mut self) {
        let now = Instant::now();
        let gained = (now - self.filled).as_secs_f64() * self.per_second;
        (self.tokens, self.filled) = ((self.tokens + gained).min(self.burst), now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_comes_at_its_rate() {
        let limit = Arc::new(Limit::new(10, 3));
        let passed = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let (limit, passed) = (Arc::clone(&limit), Arc::clone(&passed));
            tokio::spawn(async move {
                limit.token().await;
                passed.fetch_add(1, Ordering::SeqCst);
            });
        }
        time::sleep(Duration::from_millis(10)).await;
        assert_eq!(passed.load(Ordering::SeqCst), 3, "the burst");
        time::sleep(Duration::from_millis(200)).await;
        assert_eq!(passed.load(Ordering::SeqCst), 5, "one in 100 ms");
        time::sleep(Duration::from_millis(1000)).await;
        assert_eq!(passed.load(Ordering::SeqCst), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_takes_no_token() {
        let limit = Limit::new(1, 1);
        limit.token().await;
        assert!(time::timeout(Duration::from_millis(100), limit.token()).await.is_err());
        time::timeout(Duration::from_secs(1), limit.token()).await.expect("after a second there is one");
    }

    #[tokio::test(start_paused = true)]
    async fn below_zero_there_is_no_limit() {
        let limit = Limit::new(-1, 1);
        let start = Instant::now();
        for _ in 0..1000 {
            limit.token().await;
        }
        assert_eq!(start, Instant::now());
    }
}

//! Answers, remembered for a while. Keys are kept as keyed hashes: a token is never in here, and nobody outside can
//! make two keys meet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::time::Instant;

/// More than the users of a node. Upstream keeps thousands, for its API server.
const MOST: usize = 512;

type Key = [u8; 32];

pub struct Memo<T> {
    secret: hmac::Key,
    answers: Mutex<HashMap<Key, (Instant, T)>>,
}

impl<T: Clone> Memo<T> {
    /// `Err`: the kernel gives no randomness.
    pub fn new() -> Result<Self, String> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the kernel gives no randomness".to_owned())?;
        Ok(Self { secret, answers: Mutex::default() })
    }

    pub fn key(&self, of: &[u8]) -> Key {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.secret, of).as_ref());
        key
    }

    pub fn get(&self, key: &Key) -> Option<T> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, answer)| answer.clone())
    }

    /// For `lifetime`; zero is not remembered. When there is no room, what ends first goes.
    pub fn put(&self, key: Key, answer: T, lifetime: Duration) {
        if lifetime.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() >= MOST {
            let first = answers.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| *key);
            first.and_then(|key| answers.remove(&key));
        }
        answers.insert(key, (now + lifetime, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_their_number_is_bounded() {
        let memo = Memo::new().expect("randomness");
        let lifetime = Duration::from_secs(60);
        memo.put(memo.key(b"a"), 1, lifetime);
        memo.put(memo.key(b"never"), 2, Duration::ZERO);
        assert_eq!(memo.get(&memo.key(b"a")), Some(1));
        assert_eq!(memo.get(&memo.key(b"never")), None);
        tokio::time::advance(lifetime).await;
        assert_eq!(memo.get(&memo.key(b"a")), None);

        for number in 0..2 * MOST {
            tokio::time::advance(Duration::from_millis(1)).await;
            memo.put(memo.key(&number.to_be_bytes()), number, lifetime);
        }
        assert_eq!(memo.answers.lock().expect("a lock").len(), MOST);
        assert_eq!(memo.get(&memo.key(&(MOST - 1).to_be_bytes())), None, "the oldest went");
        assert_eq!(memo.get(&memo.key(&MOST.to_be_bytes())), Some(MOST));
    }
}

//! Answers of the cluster, remembered for a while, each asked for once however many wait for it. Keys are kept as keyed
//! hashes: a token is never in here, and nobody outside can make two keys meet.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// More than the users of a node. Upstream keeps thousands, for its API server.
const MOST: usize = 512;
/// So many questions to the cluster at a time: requests to this port do not crowd out the agent's own calls.
const AT_A_TIME: usize = 8;

type Key = [u8; 32];
/// An answer and for how long it is good; zero is not remembered. Errors never are.
type Answer<T> = Result<(T, Duration), String>;
type Asking<T> = Shared<Pin<Box<dyn Future<Output = Answer<T>> + Send>>>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many wait already.
    Busy,
    Failed(String),
}

pub struct Memo<T: Clone> {
    secret: hmac::Key,
    turns: Arc<Semaphore>,
    most_waiting: usize,
    state: Mutex<State<T>>,
}

struct State<T: Clone> {
    answers: HashMap<Key, (Instant, T)>,
    /// Questions under way, with how many wait for each: when the last one leaves, so does the question.
    asking: HashMap<Key, (usize, Asking<T>)>,
    waiting: usize,
}

impl<T: Clone + Send + Sync + 'static> Memo<T> {
    /// So many requests may wait for answers at a time: each is held in memory meanwhile. `Err`: the kernel gives no
    /// randomness.
    pub fn new(most_waiting: usize) -> Result<Self, String> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the kernel gives no randomness".to_owned())?;
        let state = State { answers: HashMap::new(), asking: HashMap::new(), waiting: 0 };
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Ok(Self { secret, turns, most_waiting, state: Mutex::new(state) })
    }

    /// What is remembered of `of`, or else what `ask` says, whoever of those who wait asked first.
    pub async fn get_or_ask(
        &self,
        of: &[u8],
        ask: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Result<T, Unanswered> {
        let key = self.key(of);
        let asking = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            if let Some((_, answer)) = state.answers.get(&key).filter(|(until, _)| *until > now) {
                return Ok(answer.clone());
            }
            if state.waiting >= self.most_waiting {
                return Err(Unanswered::Busy);
            }
            state.waiting += 1;
            let (waiting, asking) = state.asking.entry(key).or_insert_with(|| {
                let turns = self.turns.clone();
                let in_turn = async move {
                    let _turn = turns.acquire_owned().await.map_err(|error| error.to_string())?;
                    ask.await
                };
                let in_turn: Pin<Box<dyn Future<Output = Answer<T>> + Send>> = Box::pin(in_turn);
                (0, in_turn.shared())
            });
            *waiting += 1;
            asking.clone()
        };
        // Dropped with this future too, where a client does not wait for the answer.
        let _waiting = Waiting { memo: self, key };
        let (answer, lifetime) = asking.await.map_err(Unanswered::Failed)?;
        self.put(key, answer.clone(), lifetime);
        Ok(answer)
    }

    fn key(&self, of: &[u8]) -> Key {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.secret, of).as_ref());
        key
    }

    /// When there is no room, what ends first goes.
    fn put(&self, key: Key, answer: T, lifetime: Duration) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = &mut state.answers;
        // All who waited come here. The first one's counts, so that an answer does not grow older than it may.
        if lifetime.is_zero() || answers.get(&key).is_some_and(|(until, _)| *until > now) {
            return;
        }
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

/// One who waits for an answer.
struct Waiting<'a, T: Clone> {
    memo: &'a Memo<T>,
    key: Key,
}

impl<T: Clone> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        let mut state = self.memo.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if let Some((waiting, _)) = state.asking.get_mut(&self.key) {
            *waiting -= 1;
            if *waiting == 0 {
                state.asking.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    async fn put(
        memo: &Memo<usize>,
        of: &[u8],
        answer: usize,
        lifetime: Duration,
    ) -> Result<usize, Unanswered> {
        memo.get_or_ask(of, async move { Ok((answer, lifetime)) }).await
    }

    fn remembered(memo: &Memo<usize>) -> usize {
        memo.state.lock().expect("a lock").answers.len()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_their_number_is_bounded() {
        let memo = Memo::new(100).expect("randomness");
        assert_eq!(put(&memo, b"a", 1, LIFETIME).await, Ok(1));
        assert_eq!(put(&memo, b"a", 2, LIFETIME).await, Ok(1), "remembered");
        assert_eq!(put(&memo, b"never", 1, Duration::ZERO).await, Ok(1));
        assert_eq!(put(&memo, b"never", 2, Duration::ZERO).await, Ok(2));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(put(&memo, b"a", 3, LIFETIME).await, Ok(3));

        for number in 0..2 * MOST {
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(put(&memo, &number.to_be_bytes(), number, LIFETIME).await, Ok(number));
        }
        assert_eq!(remembered(&memo), MOST);
        assert_eq!(put(&memo, &MOST.to_be_bytes(), 0, LIFETIME).await, Ok(MOST));
        assert_eq!(put(&memo, &(MOST - 1).to_be_bytes(), 0, LIFETIME).await, Ok(0), "the oldest went");
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_want_to_know_the_same_ask_once_and_errors_are_not_remembered() {
        let memo = Memo::<usize>::new(100).expect("randomness");
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = |fails: bool| {
            let asked = asked.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let number = asked.fetch_add(1, Ordering::Relaxed);
                if fails { Err("no".to_owned()) } else { Ok((number, LIFETIME)) }
            }
        };
        let failed = futures_util::future::join_all((0..50).map(|_| memo.get_or_ask(b"x", ask(true)))).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(asked.load(Ordering::Relaxed), 1);

        // The one who asked first leaves; the others still get their answer.
        let mut first = Box::pin(memo.get_or_ask(b"x", ask(false)));
        assert!(futures_util::poll!(&mut first).is_pending());
        let others = (0..50).map(|_| memo.get_or_ask(b"x", ask(false)));
        let mut others = Box::pin(futures_util::future::join_all(others));
        assert!(futures_util::poll!(&mut others).is_pending());
        drop(first);
        assert_eq!(others.await, vec![Ok(1); 50]);
        assert!(memo.state.lock().expect("a lock").asking.is_empty());
    }

    #[tokio::test]
    async fn a_bounded_number_waits() {
        let memo = Memo::<usize>::new(100).expect("randomness");
        assert_eq!(put(&memo, b"known", 1, LIFETIME).await, Ok(1));
        let silent =
            async |number: usize| memo.get_or_ask(&number.to_be_bytes(), std::future::pending()).await;
        let mut waiting: Vec<_> = (0..100).map(silent).map(Box::pin).collect();
        for one in &mut waiting {
            assert!(futures_util::poll!(one).is_pending());
        }
        assert_eq!(silent(100).await, Err(Unanswered::Busy));
        assert_eq!(put(&memo, b"known", 2, LIFETIME).await, Ok(1), "what is known needs no waiting");
        drop(waiting);
        assert_eq!(put(&memo, b"new", 2, LIFETIME).await, Ok(2));
    }
}

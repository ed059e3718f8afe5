//! The same thing many times, a few at once.

use std::future::Future;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many calls are under way at once: as many as a client would usually keep.
pub const IN_FLIGHT: usize = 16;

/// Does `work` for each item, `at_once` at a time; answers in the order of their ends. The first error ends it.
pub async fn each<I, F, R>(
    at_once: usize,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> F + Clone + Send + 'static,
) -> Result<Vec<R>>
where
    I: Send + 'static,
    F: Future<Output = Result<R>> + Send,
    R: Send + 'static,
{
    let places = Arc::new(Semaphore::new(at_once));
    let mut tasks = JoinSet::new();
    for item in items {
        let (places, work) = (Arc::clone(&places), work.clone());
        tasks.spawn(async move {
            let _place = places.acquire_owned().await?;
            work(item).await
        });
    }
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

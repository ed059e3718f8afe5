//! Programs that know credentials for registries: `--image-credential-provider-config` and
//! `--image-credential-provider-bin-dir`.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | which programs there are, read once at start |
//! | `accounts` | what a program is told of a pod's service account |
//! | `exec` | one run of a program: what it is told and what it says |
//!
//! What a program said is kept for as long as it allows, and for the image, the registry or everything, as it says. Of
//! several who ask the same at the same time one runs the program, and all have its answer.

mod accounts;
pub mod config;
mod exec;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_apiserver::Objects;
use crablet_model::{PodRef, api};
use tokio::time::Instant;

use self::accounts::Account;
pub use self::accounts::{AccountView, ServiceAccounts};
use self::config::Provider;
use self::exec::{CacheKey, Said};
use super::docker_config::DockerConfig;
use super::keyring::{Credential, Keyring, Owner, place_matches};

/// What is kept of one program's answers. More than a node has registries.
const MOST_KEPT: usize = 256;
/// The key of what holds for everything; no image has such a name.
const EVERYTHING: &str = "<global>";

pub(super) struct Providers {
    pub known: Vec<Known>,
    pub objects: Arc<dyn Objects>,
    /// `None` in standalone mode.
    pub accounts: Option<Arc<dyn ServiceAccounts>>,
}

pub(super) struct Known {
    provider: Provider,
    answers: Mutex<BTreeMap<String, Answer>>,
    /// Runs under way, by what was asked.
    runs: Mutex<BTreeMap<String, Run>>,
}

struct Answer {
    config: DockerConfig,
    until: Instant,
}

/// Locked while the program runs; then what came of it, for those who waited.
type Run = Arc<tokio::sync::Mutex<Option<Result<DockerConfig, String>>>>;

impl Providers {
    /// What they know for a repository. One that fails knows nothing, and the log says why.
    pub async fn look_up(&self, repository: &str, id: &PodRef, pod: Option<&api::Pod>) -> Vec<Credential> {
        let mut keyring = Keyring::default();
        for known in &self.known {
            if !known.provider.match_images.iter().any(|place| place_matches(place, repository)) {
                continue;
            }
            match self.ask(known, repository, id, pod).await {
                Ok(Some((owner, config))) => keyring.add(&owner, &config),
                Ok(None) => {}
                Err(error) => tracing::error!(
                    err = error, provider = known.provider.name, image = repository, pod = id.object_ref(),
                    podUID = %id.uid, "Failed to provide credentials for image"
                ),
            }
        }
        keyring.look_up(repository)
    }

    /// `None`: the program is not for this pod.
    async fn ask(
        &self,
        known: &Known,
        repository: &str,
        id: &PodRef,
        pod: Option<&api::Pod>,
    ) -> Result<Option<(Owner, DockerConfig)>, String> {
        let Some(tokens) = &known.provider.tokens else {
            return Ok(Some((Owner::Node, known.ask(repository, None).await?)));
        };
        let name = pod.and_then(|pod| pod.spec.as_ref()?.service_account_name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let config = if tokens.required { None } else { Some(known.ask(repository, None).await?) };
            return Ok(config.map(|config| (Owner::Node, config)));
        };
        let accounts = self.accounts.as_deref();
        let accounts = accounts.ok_or("there are no service accounts in standalone mode")?;
        let Some(account) = Account::of(tokens, accounts, &*self.objects, id, name).await? else {
            return Ok(None);
        };
        let config = known.ask(repository, Some(&account)).await?;
        Ok(Some((Owner::ServiceAccount(account.coordinates), config)))
    }
}

impl Known {
    pub fn new(provider: Provider) -> Self {
        Self { provider, answers: Mutex::default(), runs: Mutex::default() }
    }

    async fn ask(&self, repository: &str, account: Option<&Account>) -> Result<DockerConfig, String> {
        if let Some(config) = self.kept(repository, account) {
            return Ok(config);
        }
        let asked = keyed(repository, account.map(|account| account.asked.as_str()));
        let run = locked(&self.runs).entry(asked.clone()).or_default().clone();
        let mut outcome = run.lock().await;
        if let Some(outcome) = &*outcome {
            return outcome.clone();
        }
        let said = exec::run(&self.provider, repository, account).await;
        let config = said.map(|said| self.keep(repository, account, said));
        *outcome = Some(config.clone());
        locked(&self.runs).remove(&asked);
        config
    }

    fn kept(&self, repository: &str, account: Option<&Account>) -> Option<DockerConfig> {
        let (now, answers) = (Instant::now(), locked(&self.answers));
        let places = [repository, registry(repository), EVERYTHING];
        let mut found = places.iter().filter_map(|place| answers.get(&key(place, account)));
        found.find(|answer| now < answer.until).map(|answer| answer.config.clone())
    }

    fn keep(&self, repository: &str, account: Option<&Account>, said: Said) -> DockerConfig {
        let kept_for = said.cache_duration.unwrap_or(self.provider.default_cache_duration);
        if kept_for > Duration::ZERO {
            let place = match said.cache_key {
                CacheKey::Image => repository,
                CacheKey::Registry => registry(repository),
                CacheKey::Global => EVERYTHING,
            };
            let now = Instant::now();
            // So long that nobody lives to see its end is as long as can be counted.
            let until = now.checked_add(kept_for).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
            let mut answers = locked(&self.answers);
            answers.retain(|_, answer| now < answer.until);
            if answers.len() < MOST_KEPT {
                answers.insert(key(place, account), Answer { config: said.config.clone(), until });
            }
        }
        said.config
    }
}

fn registry(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

fn key(place: &str, account: Option<&Account>) -> String {
    keyed(place, account.map(|account| account.key.as_str()))
}

fn keyed(place: &str, more: Option<&str>) -> String {
    format!("{place}\0{}", more.unwrap_or_default())
}

/// Nothing panics while it holds the lock with the value half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

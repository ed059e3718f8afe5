//! Manifests submitted over the local API: kept as files, one per manifest, so that they outlive the agent.
//!
//! [`Submitted`] is a handle; one task owns the files and answers in order. A manifest is on disk before it is acted on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::Files;
use crablet_model::PodRef;
use crablet_model::manifest::MAX_MANIFEST_BYTES;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::deadline::{DISK_PATIENCE, Patient, at};
use super::folder::FIRST_PATIENCE;
use super::outlet::{Closed, Outlet};
use super::shelf::{Dirty, Shelf};
use super::{Source, SourceSettings};

/// Requests that wait for the one under way.
const QUEUE: usize = 16;
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(20);
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Leaves room for what an atomic write puts around the name.
const LONGEST_NAME: usize = 200;

/// What became of a manifest that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// There was none of this name before.
    pub created: bool,
    pub warnings: Vec<String>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is at fault.
    #[error("{0}")]
    Invalid(String),
    /// The disk is at fault, or the agent is going down.
    #[error("{0}")]
    Storage(String),
}

/// A submitted manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// The pod of the last good version.
    pub pod: Option<PodRef>,
    /// Why the file as it is now cannot be used.
    pub problem: Option<String>,
}

enum Request {
    Put { name: String, content: Vec<u8>, reply: oneshot::Sender<Result<Stored, Refusal>> },
    Get { name: String, reply: oneshot::Sender<Result<Option<Vec<u8>>, Refusal>> },
    List { reply: oneshot::Sender<Result<Vec<Listed>, Refusal>> },
    Delete { name: String, reply: oneshot::Sender<Result<bool, Refusal>> },
}

/// The way to the submitted manifests.
#[derive(Clone)]
pub struct Submitted {
    requests: mpsc::Sender<Request>,
}

impl Submitted {
    /// Stores a manifest, in place of one of the same name, and has its pod run.
    pub async fn put(&self, name: &str, content: Vec<u8>) -> Result<Stored, Refusal> {
        check_name(name)?;
        let name = name.to_owned();
        self.ask(|reply| Request::Put { name, content, reply }).await
    }

    /// The manifest as it was submitted; `None` when there is none of this name.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
        check_name(name)?;
        let name = name.to_owned();
        self.ask(|reply| Request::Get { name, reply }).await
    }

    /// All submitted manifests, by name.
    pub async fn list(&self) -> Result<Vec<Listed>, Refusal> {
        self.ask(|reply| Request::List { reply }).await
    }

    /// Removes a manifest and its pod. Says whether there was one.
    pub async fn delete(&self, name: &str) -> Result<bool, Refusal> {
        check_name(name)?;
        let name = name.to_owned();
        self.ask(|reply| Request::Delete { name, reply }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Request,
    ) -> Result<T, Refusal> {
        let gone = || Refusal::Storage("the agent is shutting down".to_owned());
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Refusal::Invalid(format!(
            "a manifest's name has 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-`, and does not begin with `.`"
        )));
    }
    Ok(())
}

/// The handle and the task behind it.
pub(super) fn open(
    settings: &SourceSettings,
    files: Arc<dyn Files>,
    outlet: Outlet,
) -> (Submitted, impl Future<Output = ()> + Send + 'static) {
    let (sender, requests) = mpsc::channel(QUEUE);
    let folder = settings.submitted_folder.clone();
    let node_name = settings.node_name.clone();
    let shelf = Shelf::new(folder, Source::Submitted, node_name, settings.gates, files.clone());
    let keeper =
        Keeper { shelf, files, writing: Patient::default(), has_stated: false, start: Instant::now() };
    (Submitted { requests: sender }, keeper.run(requests, outlet))
}

struct Keeper {
    shelf: Shelf,
    files: Arc<dyn Files>,
    writing: Patient<()>,
    has_stated: bool,
    start: Instant,
}

impl Keeper {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>, outlet: Outlet) {
        let mut wait = RETRY;
        let mut is_open = true;
        let mut look_at = Some(Instant::now());
        loop {
            // Both arms are cancel-safe: the next item of a channel, and an instant.
            tokio::select! {
                biased;
                () = at(look_at) => {
                    self.shelf.look(&Dirty::everything()).await;
                    look_at = self.needs_another_look().then(|| Instant::now() + wait);
                    wait = (wait * 2).min(LONGEST_RETRY);
                }
                request = requests.recv(), if is_open => match request {
                    Some(request) => self.answer(request).await,
                    None => is_open = false,
                },
            }
            self.shelf.log();
            let Ok(()) = self.state(&outlet).await else { return };
            self.shelf.log();
        }
    }

    fn needs_another_look(&self) -> bool {
        !self.shelf.is_readable() || !self.shelf.unread().is_empty() || !self.shelf.doubtful().is_empty()
    }

    /// What is stated without a file stops its pod: at start, a disk that fails is waited for.
    async fn state(&mut self, outlet: &Outlet) -> Result<(), Closed> {
        let is_patient = self.start.elapsed() < FIRST_PATIENCE;
        let is_known = self.shelf.is_readable() && (!is_patient || self.shelf.unread().is_empty());
        if !self.has_stated && !is_known {
            return Ok(());
        }
        self.has_stated = true;
        self.shelf.state(outlet).await
    }

    async fn answer(&mut self, request: Request) {
        // A requester that no longer waits is no reason to stop.
        match request {
            Request::Put { name, content, reply } => drop(reply.send(self.put(&name, content).await)),
            Request::Get { name, reply } => drop(reply.send(self.get(&name).await)),
            Request::List { reply } => drop(reply.send(self.list())),
            Request::Delete { name, reply } => drop(reply.send(self.delete(&name).await)),
        }
    }

    async fn put(&mut self, name: &str, content: Vec<u8>) -> Result<Stored, Refusal> {
        let decoded =
            self.shelf.decode(name, &content).map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.require_ready().await?;
        self.refuse_clash(name, &PodRef::of(&decoded.pod))?;
        let created = !self.shelf.contains(name);
        let (files, path, bytes) = (self.files.clone(), self.shelf.path_of(name), content.clone());
        let write = async move {
            if let Some(folder) = path.parent() {
                files.create_folder(folder, FOLDER_MODE).await?;
            }
            files.write_atomic(&path, &bytes, FILE_MODE).await
        };
        self.change(name, "store", write).await?;
        self.shelf.put(name, &content);
        Ok(Stored { created, warnings: decoded.warnings })
    }

    fn refuse_clash(&self, name: &str, pod: &PodRef) -> Result<(), Refusal> {
        let clash = self.shelf.contents().find(|(other, their, _)| {
            let is_same =
                |id: &PodRef| id.uid == pod.uid || (id.name == pod.name && id.namespace == pod.namespace);
            *other != name && their.is_some_and(|their| is_same(&their.id))
        });
        match clash {
            Some((other, ..)) => Err(Refusal::Invalid(format!(
                "metadata.name: pod `{}/{}` is given by the submitted manifest `{other}` already; \
                 change that one, or delete it first",
                pod.namespace, pod.name
            ))),
            None => Ok(()),
        }
    }

    async fn get(&mut self, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
        self.require_loaded()?;
        if !self.shelf.contains(name) {
            return Ok(None);
        }
        // A reader that hangs is at worst one thread per request, and requests are answered one at a time.
        match timeout(DISK_PATIENCE, self.files.read(&self.shelf.path_of(name), MAX_MANIFEST_BYTES)).await {
            Ok(Ok(content)) => Ok(Some(content)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(Refusal::Storage(format!("cannot read manifest `{name}`: {error}"))),
            Err(_) => {
                Err(Refusal::Storage(format!("cannot read manifest `{name}`: the disk does not answer")))
            }
        }
    }

    fn list(&self) -> Result<Vec<Listed>, Refusal> {
        self.require_loaded()?;
        let listed = |(name, pod, problem): (&str, Option<&super::mux::Stated>, Option<&str>)| Listed {
            name: name.to_owned(),
            pod: pod.map(|pod| pod.id.clone()),
            problem: problem.map(str::to_owned),
        };
        Ok(self.shelf.contents().map(listed).collect())
    }

    async fn delete(&mut self, name: &str) -> Result<bool, Refusal> {
        self.require_ready().await?;
        if !self.shelf.contains(name) {
            return Ok(false);
        }
        let (files, path) = (self.files.clone(), self.shelf.path_of(name));
        self.change(name, "delete", async move { files.remove_file(&path).await }).await?;
        self.shelf.remove(name);
        Ok(true)
    }

    async fn change(
        &mut self,
        name: &str,
        verb: &str,
        change: impl Future<Output = io::Result<()>> + Send + 'static,
    ) -> Result<(), Refusal> {
        let refuse = |error| Refusal::Storage(format!("cannot {verb} manifest `{name}`: {error}"));
        self.writing.run(|| Box::pin(change)).await.map_err(refuse)
    }

    /// Waits for an earlier change that overran, so that changes land in the order in which they were asked for.
    async fn require_ready(&mut self) -> Result<(), Refusal> {
        self.require_loaded()?;
        if self.writing.finish_overdue().await.map_err(|error| Refusal::Storage(error.to_string()))? {
            // Twice: a file that is gone is believed to be gone the second time.
            self.shelf.look(&Dirty::everything()).await;
            self.shelf.look(&Dirty::everything()).await;
        }
        Ok(())
    }

    fn require_loaded(&self) -> Result<(), Refusal> {
        if self.has_stated {
            return Ok(());
        }
        Err(Refusal::Storage("the submitted manifests are not loaded yet; try again".to_owned()))
    }
}

#[cfg(test)]
mod tests;

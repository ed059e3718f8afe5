//! Upstream's certificate store: `<folder>/<prefix>-<time>.pem` for every pair there was, each with its chain and its
//! key, and `<prefix>-current.pem`, a link to the one in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_host::{Clock, Files};
use jiff::tz::TimeZone;

use crate::pair::{LONGEST_FILE, Pair, PairError};

/// The client certificate's pairs are called `kubelet-client-…`.
pub const CLIENT: &str = "kubelet-client";
/// The serving certificate's pairs are called `kubelet-server-…`.
pub const SERVER: &str = "kubelet-server";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} `{}`: {error}", path.display())]
    Disk { doing: &'static str, path: PathBuf, error: io::Error },
    #[error("`{}` is not a certificate with its key: {error}", path.display())]
    Pair { path: PathBuf, error: PairError },
    #[error("expected `{}` to be a symlink but it is a file; move it away", path.display())]
    NotALink { path: PathBuf },
}

#[derive(Clone)]
pub struct Store {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
    prefix: &'static str,
    fallback: Option<(PathBuf, PathBuf)>,
}

impl Store {
    /// `prefix` is [`CLIENT`] or [`SERVER`].
    pub fn new(
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        folder: impl Into<PathBuf>,
        prefix: &'static str,
    ) -> Self {
        Self { files, clock, folder: folder.into(), prefix, fallback: None }
    }

    /// A certificate file and a key file that are read, never written, while the store has nothing of its own.
    pub fn with_fallback(mut self, certificate: PathBuf, key: PathBuf) -> Self {
        self.fallback = Some((certificate, key));
        self
    }

    pub fn current_path(&self) -> PathBuf {
        self.folder.join(format!("{}-current.pem", self.prefix))
    }

    /// The pair in use: the link's, else the fallback's, else `<prefix>.crt` with `<prefix>.key`.
    pub(crate) async fn current(&self) -> Result<Option<Pair>, StoreError> {
        self.recover().await?;
        let own = self.current_path();
        if let Some(pair) = self.load(&own, &own).await? {
            return Ok(Some(pair));
        }
        if let Some((certificate, key)) = &self.fallback
            && let Some(pair) = self.load(certificate, key).await?
        {
            return Ok(Some(pair));
        }
        let plain = |extension| self.folder.join(format!("{}.{extension}", self.prefix));
        self.load(&plain("crt"), &plain("key")).await
    }

    /// Makes a pair the current one. Until the link is replaced, in one step, the old pair is.
    pub(crate) async fn update(&self, certificates: &[u8], key: &[u8]) -> Result<Pair, StoreError> {
        let now = self.clock.now().to_zoned(TimeZone::UTC);
        let path = self.folder.join(format!("{}-{}.pem", self.prefix, now.strftime("%Y-%m-%d-%H-%M-%S")));
        let pair = Pair::from_pem(certificates, key)
            .map_err(|error| StoreError::Pair { path: path.clone(), error })?;

        self.files.create_folder(&self.folder, 0o755).await.map_err(disk("create", &self.folder))?;
        let link = self.current_path();
        let is_link = self.files.read_link(&link).await.map_err(disk("read", &link))?.is_some();
        if !is_link && self.files.kind(&link).await.map_err(disk("read", &link))?.is_some() {
            return Err(StoreError::NotALink { path: link });
        }
        self.files.write_atomic(&path, &pair.pem, 0o600).await.map_err(disk("write", &path))?;
        self.files.link(&path, &link).await.map_err(disk("replace", &link))?;
        Ok(pair)
    }

    /// Upstream replaces the link in two steps, and may have died after the first, which leaves `<prefix>-updated.pem`.
    async fn recover(&self) -> Result<(), StoreError> {
        let current = self.current_path();
        if self.files.kind(&current).await.map_err(disk("read", &current))?.is_some() {
            return Ok(());
        }
        let updated = self.folder.join(format!("{}-updated.pem", self.prefix));
        let Some(target) = self.files.read_link(&updated).await.map_err(disk("read", &updated))? else {
            return Ok(());
        };
        self.files.link(&target, &current).await.map_err(disk("replace", &current))?;
        self.files.remove_file(&updated).await.map_err(disk("remove", &updated))
    }

    /// `None` when one of the two is not there.
    async fn load(&self, certificate: &Path, key: &Path) -> Result<Option<Pair>, StoreError> {
        let Some(chain) = self.read(certificate).await? else { return Ok(None) };
        let Some(secret) = self.read(key).await? else { return Ok(None) };
        let pair = Pair::from_pem(&chain, &secret)
            .map_err(|error| StoreError::Pair { path: certificate.to_owned(), error })?;
        Ok(Some(pair))
    }

    async fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        match self.files.read(path, LONGEST_FILE).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk("read", path)(error)),
        }
    }
}

fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::Disk { doing, path: path.to_owned(), error }
}

//! What was pulled, and with whose credentials: files that upstream understands, and whose files are understood.
//!
//! ```text
//!  <root>/image_manager/pulling/sha256-…   a pull has begun: the image, if it is there, may be a secret's
//!  <root>/image_manager/pulled/sha256-…    who may use an image without a pull of their own
//! ```
//!
//! A pull that is given up half-way leaves its first file: the runtime may go on with it, and then nobody knows whose
//! credentials the image came with. So it counts as pulled, by nobody that can be named.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_host::Files;
use crablet_model::runtime::ListedImage;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::keyring::{Coordinates, Credential, Owner, sha256_hex};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const MOST_BYTES: usize = 1 << 20;
const GROUP: &str = "kubelet.config.k8s.io/";
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// A record that names more secrets than this is no longer added to by a mere look, as upstream.
const MOST_SECRETS: usize = 100;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    kind: String,
    api_version: String,
    last_updated_time: Option<Timestamp>,
    image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: BTreeMap<String, Users>,
}

/// Who may use an image under one of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Users {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<Secret>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<ServiceAccount>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    uid: String,
    namespace: String,
    name: String,
    #[serde(default)]
    credential_hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ServiceAccount {
    uid: String,
    namespace: String,
    name: String,
}

impl Secret {
    fn coordinates(&self) -> Coordinates {
        let Self { uid, namespace, name, .. } = self.clone();
        Coordinates { namespace, name, uid }
    }
}

/// What the records say of an image that is there.
pub(super) enum Known {
    /// Nobody pulled it through this agent.
    Nothing,
    /// Somebody did, and this pod has to show that it may, too.
    Pulled,
    /// With credentials that all pods of the node share.
    ByNode,
}

pub(super) struct Records {
    files: Arc<dyn Files>,
    pulling: PathBuf,
    pulled: PathBuf,
    /// Pulls of each image that run now. Also what keeps two from changing the same file at a time.
    running: Mutex<BTreeMap<String, usize>>,
}

impl Records {
    pub fn new(files: Arc<dyn Files>, root: &Path) -> Self {
        let folder = root.join("image_manager");
        Self {
            files,
            pulling: folder.join("pulling"),
            pulled: folder.join("pulled"),
            running: Mutex::default(),
        }
    }

    /// A pull begins.
    pub async fn begin(&self, image: &str) -> io::Result<()> {
        let mut running = self.running.lock().await;
        let intent = Intent {
            kind: "ImagePullIntent".to_owned(),
            api_version: API_VERSION.to_owned(),
            image: image.to_owned(),
        };
        write(&*self.files, &self.pulling, image, &intent).await?;
        *running.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// A pull has brought the image, with these credentials.
    pub async fn pulled(&self, image: &str, image_ref: &str, used: Option<&Credential>, now: Timestamp) {
        let mut running = self.running.lock().await;
        if let Err(error) = self.note(image, image_ref, Some(users_of(used)), now).await {
            // The first file stays: the image counts as pulled.
            tracing::error!(%error, imageRef = image_ref, "failed to write image pulled record");
            return;
        }
        self.end(&mut running, image).await;
    }

    pub async fn failed(&self, image: &str) {
        let mut running = self.running.lock().await;
        self.end(&mut running, image).await;
    }

    async fn end(&self, running: &mut BTreeMap<String, usize>, image: &str) {
        match running.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                running.remove(image);
                if let Err(error) = self.files.remove_file(&path(&self.pulling, image)).await {
                    tracing::error!(%error, image, "failed to remove image pull intent");
                }
            }
        }
    }

    /// What is known of an image that is there. An error means that nothing can be told.
    pub async fn known(&self, image: &str, image_ref: &str) -> io::Result<Known> {
        let running = self.running.lock().await;
        let Some(record) = self.record(image_ref).await? else {
            let pulled = running.contains_key(image) || self.has_intent(image).await?;
            return Ok(if pulled { Known::Pulled } else { Known::Nothing });
        };
        let users = record.credential_mapping.get(plain_name(image));
        Ok(if users.is_some_and(|users| users.node_pods_accessible) { Known::ByNode } else { Known::Pulled })
    }

    /// Whether one of these credentials opened the image before. One that is known by half is noted as a whole.
    pub async fn opens(&self, image: &str, image_ref: &str, offered: &[Credential], now: Timestamp) -> bool {
        let _alone = self.running.lock().await;
        let record = self.record(image_ref).await.ok().flatten();
        let Some(users) = record.and_then(|r| r.credential_mapping.get(plain_name(image)).cloned()) else {
            return false;
        };
        for credential in offered {
            let Owner::Secret(owner) = &credential.owner else { continue };
            for known in &users.kubernetes_secrets {
                let same_secret = known.coordinates() == *owner;
                let same_content =
                    !known.credential_hash.is_empty() && known.credential_hash == credential.hash;
                let roomy = users.kubernetes_secrets.len() < MOST_SECRETS;
                if !(same_content || same_secret && roomy) {
                    continue;
                }
                if same_content != same_secret && roomy {
                    let noted = self.note(image, image_ref, Some(users_of(Some(credential))), now).await;
                    if let Err(error) = noted {
                        tracing::error!(%error, image, imageRef = image_ref, "failed to write an image pulled record");
                    }
                }
                return true;
            }
        }
        // As upstream, the first service account that offers anything stands for the pod.
        let account = offered.iter().find_map(|c| match &c.owner {
            Owner::ServiceAccount(account) => Some(service_account(account)),
            _ => None,
        });
        account.is_some_and(|account| users.kubernetes_service_accounts.contains(&account))
    }

    /// What an earlier life began and did not end: those whose image is there count as pulled.
    pub async fn recover(&self, images: &[ListedImage], now: Timestamp) {
        let _alone = self.running.lock().await;
        for intent in self.intents().await {
            let is_it =
                |image: &&ListedImage| image.tags.contains(&intent) || image.digests.contains(&intent);
            let Some(found) = images.iter().find(is_it) else { continue };
            if let Err(error) = self.note(&intent, &found.id, None, now).await {
                tracing::error!(%error, imageRef = found.id, "failed to write an image pull record");
                continue;
            }
            if let Err(error) = self.files.remove_file(&path(&self.pulling, &intent)).await {
                tracing::warn!(%error, image = intent, "failed to remove image pull intent file");
            }
        }
    }

    /// Removes the records of images that are no more. What was noted since the images were listed stays.
    pub async fn prune(&self, images: &[ListedImage], listed_at: Timestamp) {
        let _alone = self.running.lock().await;
        let there: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        for entry in self.files.list(&self.pulled).await.unwrap_or_default() {
            let path = self.pulled.join(&entry.name);
            if !entry.name.starts_with("sha256-") || entry.name.ends_with(".tmp") {
                continue;
            }
            let Ok(Some(record)) = read::<Record>(&*self.files, &path).await else { continue };
            let is_new = record.last_updated_time.is_some_and(|at| at >= seconds(listed_at));
            if is_new || there.contains(record.image_ref.as_str()) {
                continue;
            }
            if let Err(error) = self.files.remove_file(&path).await {
                tracing::error!(%error, imageRef = record.image_ref, "failed to remove an ImagePulledRecord");
            }
        }
    }

    pub async fn has_intents(&self) -> bool {
        !self.intents().await.is_empty()
    }

    async fn intents(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in self.files.list(&self.pulling).await.unwrap_or_default() {
            if !entry.name.starts_with("sha256-") || entry.name.ends_with(".tmp") {
                continue;
            }
            if let Ok(Some(intent)) = read::<Intent>(&*self.files, &self.pulling.join(&entry.name)).await {
                found.insert(intent.image);
            }
        }
        found
    }

    async fn has_intent(&self, image: &str) -> io::Result<bool> {
        let intent = read::<Intent>(&*self.files, &path(&self.pulling, image)).await?;
        Ok(intent.is_some_and(|intent| intent.image == image))
    }

    async fn record(&self, image_ref: &str) -> io::Result<Option<Record>> {
        let record = read::<Record>(&*self.files, &path(&self.pulled, image_ref)).await?;
        Ok(record.filter(|r| r.image_ref == image_ref && r.api_version.starts_with(GROUP)))
    }

    /// Adds users to a record, or makes one. `None`: nobody knows who pulled it.
    async fn note(&self, image: &str, image_ref: &str, new: Option<Users>, now: Timestamp) -> io::Result<()> {
        // A record that cannot be read is made anew.
        let known = self.record(image_ref).await.unwrap_or(None);
        let mut record = known.clone().unwrap_or_else(|| Record {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: None,
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        if let Some(new) = new {
            record.credential_mapping.entry(plain_name(image).to_owned()).or_default().merge(new);
        }
        if known.as_ref() == Some(&record) {
            return Ok(());
        }
        record.last_updated_time = Some(seconds(now));
        write(&*self.files, &self.pulled, image_ref, &record).await
    }
}

impl Users {
    fn merge(&mut self, new: Self) {
        if self.node_pods_accessible {
            return;
        }
        if new.node_pods_accessible {
            *self = Self { node_pods_accessible: true, ..Self::default() };
            return;
        }
        for secret in new.kubernetes_secrets {
            self.kubernetes_secrets.retain(|known| known.coordinates() != secret.coordinates());
            self.kubernetes_secrets.push(secret);
        }
        self.kubernetes_secrets.sort_by_key(Secret::coordinates);
        for account in new.kubernetes_service_accounts {
            if !self.kubernetes_service_accounts.contains(&account) {
                self.kubernetes_service_accounts.push(account);
            }
        }
        self.kubernetes_service_accounts
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    }
}

fn users_of(used: Option<&Credential>) -> Users {
    let mut users = Users::default();
    match used.map(|credential| (&credential.owner, &credential.hash)) {
        None | Some((Owner::Node, _)) => users.node_pods_accessible = true,
        Some((Owner::Secret(owner), hash)) => {
            let Coordinates { namespace, name, uid } = owner.clone();
            users.kubernetes_secrets = vec![Secret { uid, namespace, name, credential_hash: hash.clone() }];
        }
        Some((Owner::ServiceAccount(owner), _)) => {
            users.kubernetes_service_accounts = vec![service_account(owner)];
        }
    }
    users
}

fn service_account(owner: &Coordinates) -> ServiceAccount {
    let Coordinates { namespace, name, uid } = owner.clone();
    ServiceAccount { uid, namespace, name }
}

/// The image without tag and digest, as the pod writes it.
pub(super) fn plain_name(image: &str) -> &str {
    crablet_model::image::parse(image).map_or(image, |reference| reference.name)
}

fn path(folder: &Path, of: &str) -> PathBuf {
    folder.join(format!("sha256-{}", sha256_hex(of)))
}

fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// `None` where there is no such file. What is there and is not understood is an error: it must not open an image.
async fn read<T: for<'a> Deserialize<'a>>(files: &dyn Files, path: &Path) -> io::Result<Option<T>> {
    match files.read(path, MOST_BYTES).await {
        Ok(content) => serde_json::from_slice(&content).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn write<T: Serialize>(files: &dyn Files, folder: &Path, of: &str, content: &T) -> io::Result<()> {
    files.create_folder(folder, FOLDER_MODE).await?;
    let mut bytes = serde_json::to_vec(content).map_err(io::Error::other)?;
    bytes.push(b'\n');
    files.write_atomic(&path(folder, of), &bytes, FILE_MODE).await
}

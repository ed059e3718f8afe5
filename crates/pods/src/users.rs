//! Users of the node that stand for pods' own, for pods with `hostUsers: false`.
//!
//! Each such pod has a range of ids that no other pod has. Which one is written to `<root>/pods/<uid>/userns`, in
//! upstream's form, before the runtime is told of it: a later life of the agent, or upstream's kubelet, finds it there.
//! Which ids there are to have is said by [`Ranges`].

mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_host::Files;
use crablet_model::PodUid;
use crablet_model::runtime::{IdRange, RuntimeHandler};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

pub use ranges::{Given, Ranges, given_to};

const FILE: &str = "userns";
const FILE_MODE: u32 = 0o600;
const MOST_OF_FILE: usize = 4096;

/// Shared by all workers.
pub struct Users {
    files: Arc<dyn Files>,
    /// `<root>/pods`.
    pods: PathBuf,
    ranges: Ranges,
    /// Who has which range, by its number; `None` until the disk was looked at.
    taken: Mutex<Option<BTreeMap<PodUid, u32>>>,
}

/// What upstream writes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

impl Users {
    pub fn new(files: Arc<dyn Files>, pods: PathBuf, ranges: Ranges) -> Self {
        Self { files, pods, ranges, taken: Mutex::default() }
    }

    /// The pod's range: the one it has, else a free one.
    pub async fn of(&self, uid: &PodUid) -> Result<IdRange, String> {
        let mut known = self.taken.lock().await;
        let taken = self.known(&mut known).await?;
        let number = match taken.get(uid) {
            Some(number) => *number,
            None => {
                let number = self.free(taken).ok_or_else(|| {
                    "create user namespace: could not find an empty slot to allocate a user namespace"
                        .to_owned()
                })?;
                self.write(uid, number).await.map_err(|e| format!("create user namespace: {e}"))?;
                taken.insert(uid.clone(), number);
                number
            }
        };
        Ok(self.ranges.range(number))
    }

    /// Nothing of the pod runs any more: somebody else may have its range.
    pub async fn release(&self, uid: &PodUid) -> Result<(), String> {
        let mut known = self.taken.lock().await;
        self.files.remove_file(&self.path(uid)).await.map_err(|e| format!("user namespace: {e}"))?;
        if let Some(taken) = known.as_mut() {
            taken.remove(uid);
        }
        Ok(())
    }

    fn path(&self, uid: &PodUid) -> PathBuf {
        self.pods.join(uid.as_str()).join(FILE)
    }

    fn free(&self, taken: &BTreeMap<PodUid, u32>) -> Option<u32> {
        let used: BTreeSet<u32> = taken.values().copied().collect();
        self.ranges.numbers().find(|number| !used.contains(number))
    }

    async fn known<'a>(
        &self,
        known: &'a mut Option<BTreeMap<PodUid, u32>>,
    ) -> Result<&'a mut BTreeMap<PodUid, u32>, String> {
        let taken = match known.take() {
            Some(taken) => taken,
            None => self.read_all().await?,
        };
        Ok(known.insert(taken))
    }

    async fn read_all(&self) -> Result<BTreeMap<PodUid, u32>, String> {
        let entries = match self.files.list(&self.pods).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(|e| format!("user namespace: read pods from disk: {e}"))?,
        };
        let mut taken = BTreeMap::new();
        for entry in entries {
            let uid = PodUid::new(&entry.name);
            if let Some(number) = self.read(&uid).await? {
                taken.insert(uid, number);
            }
        }
        Ok(taken)
    }

    async fn read(&self, uid: &PodUid) -> Result<Option<u32>, String> {
        let content = match self.files.read(&self.path(uid), MOST_OF_FILE).await {
            Ok(content) => content,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(format!("user namespace: {error}")),
        };
        self.number(&content).map(Some).map_err(|why| format!("user namespace of pod {uid}: {why}"))
    }

    /// A file that somebody else wrote counts only if it is one of our ranges.
    fn number(&self, content: &[u8]) -> Result<u32, String> {
        let mappings: Mappings = serde_json::from_slice(content)
            .map_err(|error| format!("invalid user namespace mappings file: {error}"))?;
        let [mapping] = mappings.uid_mappings[..] else {
            return Err("invalid user namespace configuration: no more than one mapping allowed.".to_owned());
        };
        if mappings.gid_mappings != [mapping] {
            return Err(
                "invalid user namespace configuration: GID and UID mapping should be identical".to_owned()
            );
        }
        if mapping.container_id != 0 {
            return Err("invalid user namespace configuration: UID 0 must be mapped".to_owned());
        }
        self.ranges.number(IdRange { host_id: mapping.host_id, length: mapping.length })
    }

    async fn write(&self, uid: &PodUid, number: u32) -> io::Result<()> {
        let IdRange { host_id, length } = self.ranges.range(number);
        let mapping = Mapping { host_id, container_id: 0, length };
        let mappings = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let content = serde_json::to_vec(&mappings)?;
        self.files.write_atomic(&self.path(uid), &content, FILE_MODE).await
    }
}

/// Whether the way in which the pod's sandbox is run knows users of its own; the error is upstream's.
pub(crate) fn check_handler(handlers: &[RuntimeHandler], wanted: &str) -> Result<(), String> {
    let able = handlers.iter().any(|handler| handler.name == wanted && handler.user_namespaces);
    match (able, wanted) {
        (true, _) => Ok(()),
        (false, "") => {
            Err("can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned())
        }
        (false, name) => Err(format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {name:?} does not support user namespaces"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_host::fake::FakeFiles;
    use std::path::Path;

    fn disk() -> Arc<FakeFiles> {
        Arc::new(FakeFiles::new(fastrand::Rng::with_seed(7)))
    }

    async fn users(disk: &Arc<FakeFiles>) -> Users {
        users_of(disk, Ranges::default()).await
    }

    async fn users_of(disk: &Arc<FakeFiles>, ranges: Ranges) -> Users {
        for uid in ["a", "b", "c"] {
            let folder = Path::new("/root/pods").join(uid);
            disk.create_folder(&folder, 0o750).await.unwrap();
        }
        Users::new(disk.clone(), "/root/pods".into(), ranges)
    }

    #[tokio::test]
    async fn ranges_are_pods_own_until_they_are_given_back() {
        let disk = disk();
        let users = users(&disk).await;
        let of = async |uid: &str| users.of(&PodUid::new(uid)).await.unwrap().host_id;
        assert_eq!((of("a").await, of("b").await, of("a").await), (65536, 131_072, 65536));
        users.release(&PodUid::new("a")).await.unwrap();
        assert_eq!((of("c").await, of("a").await), (65536, 196_608));
    }

    #[tokio::test]
    async fn pods_stay_within_what_was_given() {
        let disk = disk();
        let given = Given { first: 1_048_576, length: 131_072 };
        let users = users_of(&disk, Ranges::new(0, Some(given), 2).unwrap()).await;
        let of = async |uid: &str| users.of(&PodUid::new(uid)).await.map(|range| range.host_id);
        assert_eq!((of("a").await, of("b").await), (Ok(1_048_576), Ok(1_114_112)));
        assert_eq!(
            of("c").await.unwrap_err(),
            "create user namespace: could not find an empty slot to allocate a user namespace"
        );
    }

    #[tokio::test]
    async fn a_later_life_finds_the_ranges_again() {
        let disk = disk();
        let before = users(&disk).await;
        before.of(&PodUid::new("a")).await.unwrap();
        let range = before.of(&PodUid::new("b")).await.unwrap();
        let written = disk.read(Path::new("/root/pods/b/userns"), 1000).await.unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            "{\"uidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}],\
             \"gidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}]}"
        );
        before.release(&PodUid::new("a")).await.unwrap();
        let after = users(&disk).await;
        assert_eq!(after.of(&PodUid::new("b")).await.unwrap(), range);
        assert_eq!(after.of(&PodUid::new("c")).await.unwrap().host_id, 65536);
    }

    #[tokio::test]
    async fn a_file_that_is_none_of_ours_stops_everything() {
        let disk = disk();
        let users = users(&disk).await;
        let file = "{\"uidMappings\":[{\"hostId\":7,\"containerId\":0,\"length\":65536}],\
                    \"gidMappings\":[{\"hostId\":7,\"containerId\":0,\"length\":65536}]}";
        disk.write_atomic(Path::new("/root/pods/b/userns"), file.as_bytes(), 0o600).await.unwrap();
        let refused = users.of(&PodUid::new("a")).await.unwrap_err();
        assert_eq!(refused, "user namespace of pod b: wrong user namespace offset specified 7");
    }

    #[test]
    fn not_every_runtime_can() {
        let handler = |name: &str, user_namespaces| RuntimeHandler {
            name: name.to_owned(),
            user_namespaces,
            ..RuntimeHandler::default()
        };
        let handlers = [handler("", true), handler("old", false)];
        assert_eq!(check_handler(&handlers, ""), Ok(()));
        assert_eq!(
            check_handler(&handlers, "old").unwrap_err(),
            "can't set `spec.hostUsers: false`, RuntimeClass handler \"old\" does not support user namespaces"
        );
        assert!(check_handler(&[], "").unwrap_err().ends_with("runtime does not support user namespaces"));
    }
}

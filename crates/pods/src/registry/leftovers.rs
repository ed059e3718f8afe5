//! What dead pods left on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crablet_host::{Files, FolderEntry};
use crablet_model::{PodRef, PodUid};

use crate::record;
use crate::settings::Folders;

/// Pods of which only folders are left: the agent was killed after the runtime had forgotten them, or the runtime made a
/// folder again for a container that nobody waited for any more.
pub(super) async fn leftovers(files: &dyn Files, folders: &Folders, known: &BTreeSet<PodUid>) -> Vec<PodRef> {
    let mut found = BTreeMap::new();
    for entry in entries_or_say(files, &folders.pod_logs).await {
        // `<namespace>_<name>_<uid>`, none of which can hold an underscore
        let parts: Vec<&str> = entry.name.split('_').collect();
        if let [namespace, name, uid] = parts[..]
            && !known.contains(&PodUid::new(uid))
        {
            found.insert(PodUid::new(uid), PodRef::new(name, namespace, uid));
        }
    }
    for entry in entries_or_say(files, &folders.pods()).await {
        if known.contains(&PodUid::new(&entry.name)) {
            continue;
        }
        let path = folders.pods().join(&entry.name).join("crablet.json");
        let record = record::load(files, &path).await.ok().flatten();
        let id = match record {
            Some((id, _)) if id.uid.as_str() == entry.name => id,
            // The record goes first when the folder is removed, the logs before it: only the folder itself is left.
            _ => PodRef::new("unknown", "unknown", &entry.name),
        };
        found.entry(id.uid.clone()).or_insert(id);
    }
    found.into_values().collect()
}

/// A folder that cannot be listed hides what is left in it: that is said.
async fn entries_or_say(files: &dyn Files, folder: &Path) -> Vec<FolderEntry> {
    match files.list(folder).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot look for what dead pods left here");
            Vec::new()
        }
    }
}

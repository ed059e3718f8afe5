//! A pod's memory on disk: one small JSON file in the pod's folder, written before what it says is acted on.

use std::io;
use std::path::Path;
use std::time::Duration;

use crablet_host::Files;
use crablet_model::PodRef;
use crablet_planner::pod::Memory;
use serde::{Deserialize, Serialize};

/// A record is a status and some back-offs; anything larger is not ours.
const MAX_RECORD_BYTES: usize = 4 << 20;
/// Between tries to read a record: doubling from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(16);
const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o600;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    pod: PodRef,
    memory: Memory,
}

pub fn encode(pod: &PodRef, memory: &Memory) -> Vec<u8> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        version: u32,
        pod: &'a PodRef,
        memory: &'a Memory,
    }
    let record = Borrowed { version: 1, pod, memory };
    serde_json::to_vec(&record).unwrap_or_else(|error| {
        // Strings, numbers and maps with string keys always encode.
        tracing::error!(%error, pod = pod.object_ref(), podUID = %pod.uid, "could not encode a pod's record");
        Vec::new()
    })
}

pub fn decode(bytes: &[u8]) -> Result<(PodRef, Memory), String> {
    let record: Record = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if record.version != 1 {
        return Err(format!("version {} is not known", record.version));
    }
    Ok((record.pod, record.memory))
}

/// Reads a record; a missing one is an empty memory. One that makes no sense is said and left behind: the runtime still
/// knows what runs, so only times and back-offs are lost. An error is the disk's: looking again may help.
pub async fn load(files: &dyn Files, path: &Path) -> io::Result<Option<(PodRef, Memory)>> {
    let bytes = match files.read(path, MAX_RECORD_BYTES).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    match decode(&bytes) {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            tracing::warn!(path = %path.display(), error, "a pod's record cannot be used, starting without it");
            Ok(None)
        }
    }
}

/// As [`load`], but does not give up at the first trouble of the disk. It does after half a minute: a pod must be able
/// to end on a broken disk.
pub async fn load_patiently(files: &dyn Files, path: &Path) -> Option<(PodRef, Memory)> {
    let mut pause = FIRST_PAUSE;
    loop {
        match load(files, path).await {
            Ok(found) => return found,
            Err(error) if pause > LAST_PAUSE => {
                tracing::error!(path = %path.display(), %error, "a pod's record cannot be read, going on without it");
                return None;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a pod's record cannot be read yet");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }
}

pub async fn save(files: &dyn Files, path: &Path, record: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        files.create_folder(folder, FOLDER_MODE).await?;
    }
    files.write_atomic(path, record, FILE_MODE).await
}

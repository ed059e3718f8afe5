//! A pod's memory on disk: one small JSON file in the pod's folder, written before what it says is acted on.

use std::path::Path;

use crablet_host::Files;
use crablet_model::PodRef;
use crablet_planner::pod::Memory;
use serde::{Deserialize, Serialize};

/// A record is a status and some back-offs; anything larger is not ours.
const MAX_RECORD_BYTES: usize = 4 << 20;
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
        tracing::error!(%error, pod = %pod, "could not encode a pod's record");
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

/// Reads a record; a missing one is an empty memory. One that cannot be read is said and left behind: the runtime still
/// knows what runs, so only times and back-offs are lost.
pub async fn load(files: &dyn Files, path: &Path) -> Option<(PodRef, Memory)> {
    match files.read(path, MAX_RECORD_BYTES).await {
        Ok(bytes) => match decode(&bytes) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(path = %path.display(), error, "a pod's record cannot be used, starting without it");
                None
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a pod's record cannot be read, starting without it");
            None
        }
    }
}

pub async fn save(files: &dyn Files, path: &Path, record: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        files.create_folder(folder, FOLDER_MODE).await?;
    }
    files.write_atomic(path, record, FILE_MODE).await
}

//! Giving a volume to a pod's group, and telling of it where it takes long.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crablet_model::PodRef;
use crablet_model::events::Event;

use crate::port::{GroupChange, VolumeEvents, VolumeHost, Walk};

const IN_PROGRESS: &str = "VolumePermissionChangeInProgress";
const FIRST_WORD: Duration = Duration::from_secs(30);
const NEXT_WORD: Duration = Duration::from_secs(60);
const ADVICE: &str = "consider using OnRootMismatch - \
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
    #configure-volume-permission-and-ownership-change-policy-for-pods";

/// Dropping the call stops the walk between two files.
pub async fn give(
    host: &dyn VolumeHost,
    events: &dyn VolumeEvents,
    id: &PodRef,
    folder: &Path,
    change: GroupChange,
) -> io::Result<()> {
    let walk = Arc::new(Walk::default());
    let mut giving = host.set_group(folder, change, walk.clone());
    let name = reported(folder, id.uid.as_str());
    let mut next = FIRST_WORD;
    loop {
        // The walk is only looked at, and goes on in the next round.
        if let Ok(done) = tokio::time::timeout(next, &mut giving).await {
            return done;
        }
        let text = match next == FIRST_WORD {
            true => {
                format!("Setting volume ownership for {name} is taking longer than expected, {ADVICE}")
            }
            false => {
                let files = walk.files.load(Ordering::Relaxed);
                format!("Setting volume ownership for {name}, processed {files} files.")
            }
        };
        events.emit(Event::warning(id, IN_PROGRESS, text));
        next = NEXT_WORD;
    }
}

/// From the pod's folder on.
fn reported(folder: &Path, uid: &str) -> String {
    let path = folder.display().to_string();
    path.find(uid).map(|start| path[start..].to_owned()).unwrap_or(path)
}

//! A folder of another machine.

use std::path::Path;

use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::{Request, disk};
use crate::devices::is_mounted;
use crate::failure::Failure;
use crate::port::{MountFrom, told};

pub const FOLDER: &str = "kubernetes.io~nfs";

/// `name` is the one on disk.
pub async fn set_up(
    request: &Request<'_>,
    name: &str,
    source: &api::NFSVolumeSource,
    read_only: bool,
    mut options: Vec<String>,
) -> Result<MountedVolume, Failure> {
    let (host, folder) = (&request.ctx.host, request.layout.volume(FOLDER, name));
    // A pod may name a claim twice.
    let _held = request.ctx.locks.hold(&folder).await;
    let mounted = MountedVolume { host_path: folder.display().to_string(), read_only, ..Default::default() };
    let table = host.mounts(&folder).await.map_err(|error| told("read mounts of", &folder, &error))?;
    if is_mounted(&folder, &table) {
        return Ok(mounted);
    }
    host.make_folder(&folder, 0o750, 0o750).await.map_err(|error| told("mkdir", &folder, &error))?;
    if read_only && !options.iter().any(|option| option == "ro") {
        options.push("ro".to_owned());
    }
    options.sort();
    options.dedup();
    let wish = MountFrom { source: address(source), fs_type: "nfs".to_owned(), options, outlives_us: false };
    if let Err(error) = host.mount_from(&wish, &folder).await {
        clean_up(request, &folder).await;
        return Err(error.into());
    }
    Ok(mounted)
}

/// A failed mount leaves nothing; what cannot be removed now goes with the pod.
async fn clean_up(request: &Request<'_>, folder: &Path) {
    if let Err(error) = disk::take_away(request.ctx, folder, true).await {
        tracing::warn!(pod = request.id.object_ref(), error, "Failed to clean up a volume");
    }
}

fn address(source: &api::NFSVolumeSource) -> String {
    match source.server.contains(':') {
        true => format!("[{}]:{}", source.server, source.path),
        false => format!("{}:{}", source.server, source.path),
    }
}

//! A path of the host itself.

use std::io::ErrorKind;
use std::path::Path;

use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::Request;
use crate::port::{PathKind, told};

pub async fn set_up(
    request: &Request<'_>,
    source: &api::HostPathVolumeSource,
) -> Result<MountedVolume, String> {
    let path = source.path.as_str();
    if path.split('/').any(|part| part == "..") {
        return Err(format!("invalid HostPath `{path}`: must not contain '..'"));
    }
    check(request, Path::new(path), source.type_.as_deref().unwrap_or_default()).await?;
    Ok(MountedVolume { host_path: path.to_owned(), ..Default::default() })
}

async fn check(request: &Request<'_>, path: &Path, kind: &str) -> Result<(), String> {
    let (wanted, noun) = match kind {
        // Not even looked at: the runtime decides.
        "" => return Ok(()),
        "DirectoryOrCreate" | "Directory" => (PathKind::Folder, "directory"),
        "FileOrCreate" | "File" => (PathKind::File, "file"),
        "Socket" => (PathKind::Socket, "socket file"),
        "CharDevice" => (PathKind::CharDevice, "character device"),
        "BlockDevice" => (PathKind::BlockDevice, "block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    let host = &request.ctx.host;
    let found = match host.kind(path).await {
        // Nobody knows what is there, so nothing is said about it.
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ResourceBusy) => {
            return Err(told("stat", path, &error));
        }
        // As upstream, a path that cannot be looked at counts as absent.
        found => found.ok().flatten(),
    };
    match (found, kind) {
        (Some(found), _) if found == wanted => Ok(()),
        (None, "DirectoryOrCreate") => {
            host.make_folder(path, 0o755, 0o755).await.map_err(|error| told("mkdir", path, &error))
        }
        (None, "FileOrCreate") => {
            host.make_file(path, 0o644).await.map_err(|error| told("open", path, &error))
        }
        _ => Err(format!("hostPath type check failed: {} is not a {noun}", path.display())),
    }
}

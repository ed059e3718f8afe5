//! Volumes of files: read-only to containers, swapped as a whole.

use std::sync::Arc;

use crablet_planner::pod::config::MountedVolume;
use tracing::warn;

use super::empty_dir::{self, Medium};
use super::{Request, nested};
use crate::payload::Payload;
use crate::port::{reason, told};

/// Makes the volume show exactly these files.
pub async fn show(
    request: &Request<'_>,
    plugin: &str,
    medium: Medium,
    payload: Payload,
) -> Result<MountedVolume, String> {
    let (host, folder) = (&request.ctx.host, request.layout.volume(plugin, request.name()));
    let marker = format!("wrapped_{}", request.name());
    if !request.again {
        empty_dir::make(request, &marker, &folder, &medium, None).await?;
        for inner in nested::mount_points(request.spec, request.name())? {
            host.make_folder(&folder.join(inner), 0o755, 0o755)
                .await
                .map_err(|error| format!("unable to create nested volume mountpoints: {}", reason(&error)))?;
        }
    }
    let name = request.ctx.new_folder_name();
    let written = host.write_payload(&folder, Arc::new(payload), &name, request.owners.group).await;
    if let Err(error) = written {
        // What is shown already stays: old files are better than none.
        if !request.again
            && let Err(error) = empty_dir::remove(request.ctx, &request.layout, &marker, &folder).await
        {
            warn!(
                pod = request.id.object_ref(),
                volume = request.name(),
                error,
                "Failed to clean up a volume"
            );
        }
        return Err(told("write", &folder, &error));
    }
    Ok(MountedVolume {
        host_path: folder.display().to_string(),
        read_only: true,
        relabel: true,
        ..Default::default()
    })
}

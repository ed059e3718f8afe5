//! What volumes share that are mounted somewhere else on the node and shown to a pod by a bind.

use std::path::{Path, PathBuf};

use crablet_planner::pod::config::MountedVolume;

use super::Request;
use crate::devices::{Place, is_mounted};
use crate::failure::Failure;
use crate::port::{GroupChange, Mounted, told};
use crate::volumes::Context;

/// A bind into a pod, and who owns its files.
pub struct Shown<'a> {
    pub plugin: &'a str,
    /// The volume's name on disk.
    pub name: &'a str,
    pub source: &'a Path,
    pub read_only: bool,
    pub options: Vec<String>,
}

/// The caller holds the lock of the source.
pub async fn show(request: &Request<'_>, shown: Shown<'_>) -> Result<MountedVolume, Failure> {
    let (ctx, host) = (request.ctx, &request.ctx.host);
    let folder = request.layout.volume(shown.plugin, shown.name);
    let table = table(ctx).await?;
    let was_there = is_mounted(&folder, &table);
    let others = others(ctx, shown.source, &folder, &table).await?;
    host.make_folder(&folder, 0o750, 0o750).await.map_err(|error| told("mkdir", &folder, &error))?;
    let mut options = shown.options;
    if shown.read_only {
        options.insert(0, "ro".to_owned());
    }
    if let Err(error) = host.bind(shown.source, &folder, &options).await {
        if !was_there {
            take_away(ctx, &folder, false).await?;
        }
        return Err(told("mount", &folder, &error).into());
    }
    if let Some(group) = request.owners.group {
        match others.is_empty() {
            false => warn_of_sharing(request, shown.name, shown.source, group).await?,
            // After a death the walk may have got anywhere, and the folder itself is its last step. A volume that was
            // ready is left alone.
            true if !shown.read_only => {
                let only_on_mismatch = request.on_root_mismatch() || was_there;
                request.give(&folder, GroupChange { group, read_only: false, only_on_mismatch }).await?;
            }
            true => {}
        }
    }
    let host_path = folder.display().to_string();
    Ok(MountedVolume {
        host_path,
        read_only: shown.read_only,
        relabel: !shown.read_only,
        ..Default::default()
    })
}

/// Where else pods see the same.
async fn others(ctx: &Context, source: &Path, own: &Path, table: &[Mounted]) -> Result<Vec<PathBuf>, String> {
    let real = ctx.host.real_path(source).await.map_err(|error| told("lstat", source, &error))?;
    let pods = ctx.root_dir.join("pods");
    let Some(place) = Place::of(&real, table) else { return Ok(Vec::new()) };
    let seen = table.iter().filter(|mounted| {
        place.is_seen_at(mounted) && mounted.path.starts_with(&pods) && mounted.path != own
    });
    // Sub paths of the own pod are no other pod.
    let own_pod = own.strip_prefix(&pods).ok().and_then(|path| path.iter().next()).map(|uid| pods.join(uid));
    let foreign = seen.filter(|mounted| own_pod.as_ref().is_none_or(|pod| !mounted.path.starts_with(pod)));
    Ok(foreign.map(|mounted| mounted.path.clone()).collect())
}

/// The files were given to the group of the first pod that came, and stay so.
async fn warn_of_sharing(
    request: &Request<'_>,
    name: &str,
    source: &Path,
    wanted: u32,
) -> Result<(), Failure> {
    let found = request.ctx.host.group_of(source).await;
    let found = found.map_err(|error| {
        format!("failed to check fsGroup for {} ({})", source.display(), crate::port::reason(&error))
    })?;
    if found != wanted {
        request.warn(
            "AlreadyMountedVolume",
            format!(
                "The requested fsGroup is {wanted}, but the volume {name} has GID {found}. The volume may not be shareable."
            ),
        );
    }
    Ok(())
}

pub async fn table(ctx: &Context) -> Result<Vec<Mounted>, String> {
    let root = Path::new("/");
    ctx.host.mounts(root).await.map_err(|error| told("read mounts of", root, &error))
}

/// Unmounts a folder and removes it. Never what is in it: that is the volume.
pub async fn take_away(ctx: &Context, folder: &Path, forced: bool) -> Result<(), String> {
    let mounts = ctx.host.mounts(folder).await.map_err(|error| told("read mounts of", folder, &error))?;
    if let Some(inner) = mounts.iter().find(|mounted| mounted.path != folder) {
        // What containers have mounted in it with bidirectional propagation has to go first.
        return Err(format!("{} is still mounted in it", inner.path.display()));
    }
    for _ in &mounts {
        ctx.host.unmount(folder, forced).await.map_err(|error| told("unmount", folder, &error))?;
    }
    ctx.host.remove_folder(folder).await.map_err(|error| told("remove", folder, &error))
}

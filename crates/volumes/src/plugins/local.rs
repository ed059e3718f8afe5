//! A folder or a disk of this very node, by a persistent volume.

use std::path::{Path, PathBuf};

use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::disk::{self, Shown};
use super::{Request, format};
use crate::claims::Claimed;
use crate::devices::is_mounted;
use crate::failure::{Failure, Step};
use crate::port::{PathKind, told};
use crate::volumes::Context;

pub const FOLDER: &str = "kubernetes.io~local-volume";

/// Where disks of local volumes are mounted for the node.
pub fn mounts(root: &Path) -> PathBuf {
    root.join("plugins/kubernetes.io/local-volume/mounts")
}

pub async fn set_up(
    request: &Request<'_>,
    claimed: &Claimed,
    source: &api::LocalVolumeSource,
) -> Result<MountedVolume, Failure> {
    let (ctx, name) = (request.ctx, claimed.name());
    let path = checked(name, source)?;
    let options = claimed.mount_options();
    let not_made =
        |text: String| Failure::at(Step::Mount("MountVolume.NewMounter initialization failed"), text);
    let kind = ctx.host.kind(path).await.map_err(|error| not_made(told("stat", path, &error)))?;
    let global = match kind {
        Some(PathKind::Folder) => path.to_owned(),
        Some(PathKind::BlockDevice) => mounts(&ctx.root_dir).join(name),
        Some(_) => return Err(not_made("only directory and block device are supported".to_owned())),
        None => return Err(not_made(format!("path {:?} does not exist", source.path))),
    };
    let _held = ctx.locks.hold(&global).await;
    if kind == Some(PathKind::BlockDevice) {
        mount_disk(ctx, claimed, source, &global).await.map_err(Failure::mount_device)?;
    }
    let read_only = claimed.read_only;
    disk::show(request, Shown { plugin: FOLDER, name, source: &global, read_only, options }).await
}

/// The path of a device for containers that want the device itself.
pub fn device(claimed: &Claimed, source: &api::LocalVolumeSource) -> Result<PathBuf, Failure> {
    checked(claimed.name(), source).map(Path::to_owned)
}

fn checked<'a>(name: &str, source: &'a api::LocalVolumeSource) -> Result<&'a Path, Failure> {
    let path = source.path.as_str();
    if path.is_empty() {
        return Err(format!("LocalVolume volume {name:?} path is empty").into());
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("invalid path: {path} must not contain '..'").into());
    }
    Ok(Path::new(path))
}

async fn mount_disk(
    ctx: &Context,
    claimed: &Claimed,
    source: &api::LocalVolumeSource,
    global: &Path,
) -> Result<(), String> {
    let table = ctx.host.mounts(global).await.map_err(|error| told("read mounts of", global, &error))?;
    if is_mounted(global, &table) {
        return Ok(());
    }
    ctx.host.make_folder(global, 0o750, 0o750).await.map_err(|error| told("mkdir", global, &error))?;
    let mut options = claimed.mount_options();
    if claimed.read_only {
        options.insert(0, "ro".to_owned());
    }
    let fs_type = source.fs_type.as_deref().unwrap_or_default();
    let mounted = format::mount(ctx, &source.path, global, fs_type, options).await;
    if let Err(error) = mounted {
        let _ = ctx.host.remove_folder(global).await;
        return Err(format!(
            "local: failed to mount device {} at {} (fstype: {fs_type}), error {error}",
            source.path,
            global.display()
        ));
    }
    Ok(())
}

/// Unmounts the disks that no pod sees any more.
pub async fn sweep(ctx: &Context) -> Result<(), String> {
    let base = mounts(&ctx.root_dir);
    let names = ctx.host.names(&base).await.map_err(|error| told("open", &base, &error))?;
    for name in names {
        let global = base.join(name);
        let _held = ctx.locks.hold(&global).await;
        let table = disk::table(ctx).await?;
        let place = crate::devices::Place::of(&global, &table).filter(|_| is_mounted(&global, &table));
        let is_used = place.is_some_and(|place| {
            table.iter().any(|mounted| place.is_seen_at(mounted) && mounted.path != global)
        });
        if !is_used {
            disk::take_away(ctx, &global, false).await?;
        }
    }
    Ok(())
}

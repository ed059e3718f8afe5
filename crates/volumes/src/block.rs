//! Volumes that containers get as devices.
//!
//! A device that a pod uses is bound to `plugins/<plugin>/volumeDevices/<volume>/<pod>`, held busy by a loop device on
//! top of that, and shown to containers by the link `pods/<pod>/volumeDevices/<plugin>/<volume>`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_model::PodUid;

use crate::layout::PodLayout;
use crate::port::{reason, told};
use crate::volumes::Context;

const LOOP_LIMIT: Duration = Duration::from_secs(60);
const LOOPS: &str = "/sys/block";

/// `plugins/kubernetes.io/local-volume/volumeDevices/<volume>`
pub fn global_map(root: &Path, plugin: &str, volume: &str) -> PathBuf {
    root.join("plugins").join(plugin.replace('~', "/")).join("volumeDevices").join(volume)
}

/// Returns the link by which containers get the device.
pub async fn map(
    ctx: &Context,
    uid: &PodUid,
    plugin: &str,
    volume: &str,
    device: &Path,
    global_map: &Path,
) -> Result<PathBuf, String> {
    let host = &ctx.host;
    let device = host.real_path(device).await.map_err(|error| told("lstat", device, &error))?;
    let bound = global_map.join(uid.as_str());
    let link = PodLayout::new(&ctx.root_dir, uid).device(plugin, volume);
    if let Some(folder) = link.parent() {
        host.make_folder(folder, 0o750, 0o750).await.map_err(|error| told("mkdir", folder, &error))?;
    }
    // First: it is by the link that whatever follows is found again after a death.
    host.put_link(&device, &link).await.map_err(|error| told("symlink", &link, &error))?;
    host.make_folder(global_map, 0o750, 0o750).await.map_err(|error| told("mkdir", global_map, &error))?;
    host.make_file(&bound, 0o640).await.map_err(|error| told("open", &bound, &error))?;
    host.bind(&device, &bound, &[])
        .await
        .map_err(|error| format!("failed to bind mount devicePath: {}", told("mount", &bound, &error)))?;
    hold(ctx, &bound).await?;
    Ok(link)
}

/// Takes back what `map` did, as far as it came.
pub async fn unmap(
    ctx: &Context,
    uid: &PodUid,
    plugin: &str,
    volume: &str,
    global_map: &Path,
) -> Result<(), String> {
    let host = &ctx.host;
    let bound = global_map.join(uid.as_str());
    for device in holders(ctx, &bound).await? {
        let end = host.run("losetup", &["-d", &device], LOOP_LIMIT).await;
        let end = end.map_err(|error| format!("losetup -d {device} failed: {}", reason(&error)))?;
        if !end.is_success() {
            let said = end.output.trim();
            return Err(format!("losetup -d {device} failed: exit status {}: {said}", end.code));
        }
    }
    let link = PodLayout::new(&ctx.root_dir, uid).device(plugin, volume);
    let mounts = host.mounts(&bound).await.map_err(|error| told("read mounts of", &bound, &error))?;
    for mounted in &mounts {
        host.unmount(&mounted.path, false).await.map_err(|error| told("unmount", &mounted.path, &error))?;
    }
    host.remove_file(&bound).await.map_err(|error| told("remove", &bound, &error))?;
    // Other pods may use the device still.
    if host.names(global_map).await.is_ok_and(|names| names.is_empty()) {
        host.remove_folder(global_map).await.map_err(|error| told("remove", global_map, &error))?;
    }
    // Last: it is by the link that an interrupted removal is found again.
    host.remove_file(&link).await.map_err(|error| told("remove", &link, &error))
}

/// A device in use cannot be removed from under a pod, nor taken for free.
async fn hold(ctx: &Context, bound: &Path) -> Result<(), String> {
    if !holders(ctx, bound).await?.is_empty() {
        return Ok(());
    }
    let path = bound.to_string_lossy();
    let end = ctx.host.run("losetup", &["-f", &path], LOOP_LIMIT).await;
    let failed =
        |why: String| format!("makeLoopDevice failed for path {path}: losetup -f {path} failed: {why}");
    match end {
        Ok(end) if end.is_success() => Ok(()),
        Ok(end) => Err(failed(format!("exit status {}: {}", end.code, end.output.trim()))),
        Err(error) => Err(failed(reason(&error))),
    }
}

/// The loop devices that lie on the path.
async fn holders(ctx: &Context, bound: &Path) -> Result<Vec<String>, String> {
    let loops = Path::new(LOOPS);
    let names = ctx.host.names(loops).await.map_err(|error| told("open", loops, &error))?;
    let mut found = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("loop")) {
        let backing = loops.join(name).join("loop/backing_file");
        // Those that are free have no such file.
        let Ok(Some(path)) = ctx.host.read_file(&backing).await else { continue };
        let path = String::from_utf8_lossy(&path);
        if Path::new(path.trim_end().trim_end_matches(" (deleted)")) == bound {
            found.push(format!("/dev/{name}"));
        }
    }
    Ok(found)
}

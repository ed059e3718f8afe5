//! Disks that come over a storage network, as the kernel shows them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crablet_planner::pod::config::MountedVolume;

use super::disk::{self, Shown};
use super::{Request, format};
use crate::devices::{Place, is_mounted};
use crate::failure::Failure;
use crate::port::told;
use crate::volumes::Context;

const HOSTS: &str = "/sys/class/iscsi_host";

/// Mounts a disk for the node and shows it to the pod. The caller holds the lock of `global`.
pub async fn mount_and_show(
    request: &Request<'_>,
    device: &Path,
    fs_type: &str,
    global: &Path,
    shown: Shown<'_>,
) -> Result<MountedVolume, Failure> {
    let ctx = request.ctx;
    ctx.host.make_folder(global, 0o750, 0o750).await.map_err(|error| told("mkdir", global, &error))?;
    let table = ctx.host.mounts(global).await.map_err(|error| told("read mounts of", global, &error))?;
    if !is_mounted(global, &table) {
        let mut options = shown.options.clone();
        if shown.read_only {
            options.insert(0, "ro".to_owned());
        }
        let device = device.display().to_string();
        format::mount(ctx, &device, global, fs_type, options).await.map_err(Failure::mount_device)?;
    }
    disk::show(request, Shown { options: Vec::new(), ..shown }).await
}

/// Whether a disk that is mounted for the node is seen anywhere else.
pub async fn is_used(ctx: &Context, global: &Path) -> Result<bool, String> {
    let table = disk::table(ctx).await?;
    if !is_mounted(global, &table) {
        return Ok(false);
    }
    let place = Place::of(global, &table);
    Ok(place
        .is_some_and(|place| table.iter().any(|mounted| place.is_seen_at(mounted) && mounted.path != global)))
}

/// The device that joins several ways to one disk, if there is one.
pub async fn multipath(ctx: &Context, device: &Path) -> Option<PathBuf> {
    let real = ctx.host.real_path(device).await.ok()?;
    let name = real.strip_prefix("/dev").ok()?.to_str()?.to_owned();
    let blocks = Path::new("/sys/block");
    let maps = ctx.host.names(blocks).await.ok()?.into_iter().filter(|block| block.starts_with("dm-"));
    for map in maps {
        let way = blocks.join(&map).join("slaves").join(&name);
        if ctx.host.kind(&way).await.ok().flatten().is_some() {
            return Some(Path::new("/dev").join(map));
        }
    }
    None
}

/// The disks that a multipath device joins.
pub async fn ways(ctx: &Context, map: &Path) -> Vec<PathBuf> {
    let Some(name) = map.file_name() else { return Vec::new() };
    let ways = Path::new("/sys/block").join(name).join("slaves");
    let names = ctx.host.names(&ways).await.unwrap_or_default();
    names.into_iter().map(|name| Path::new("/dev").join(name)).collect()
}

/// Takes a disk away from the kernel. One that is not there is fine.
pub async fn delete(ctx: &Context, device: &str) {
    let switch = Path::new("/sys/block").join(device).join("device/delete");
    if ctx.host.kind(&switch).await.ok().flatten().is_some()
        && let Err(error) = ctx.host.write_file(&switch, b"1").await
    {
        tracing::warn!(device, %error, "Failed to delete a block device");
    }
}

/// A session with an iSCSI target: the host it is on, and its folder.
struct Session {
    host: u32,
    folder: PathBuf,
}

async fn sessions(ctx: &Context, target: &str) -> Result<Vec<Session>, String> {
    let mut found = Vec::new();
    let hosts = Path::new(HOSTS);
    let names = ctx.host.names(hosts).await.map_err(|error| told("open", hosts, &error))?;
    for name in names {
        let Some(host) = name.strip_prefix("host").and_then(|number| number.parse().ok()) else { continue };
        let device = hosts.join(&name).join("device");
        let entries = ctx.host.names(&device).await.map_err(|error| told("open", &device, &error))?;
        for session in entries.iter().filter(|entry| entry.starts_with("session")) {
            let folder = device.join(session);
            let name = folder.join("iscsi_session").join(session).join("targetname");
            if text(ctx, &name).await.as_deref() == Some(target) {
                found.push(Session { host, folder });
            }
        }
    }
    Ok(found)
}

/// On which host each portal of a target is logged in.
pub async fn portals(ctx: &Context, target: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut found = BTreeMap::new();
    for Session { host, folder } in sessions(ctx, target).await? {
        let entries = ctx.host.names(&folder).await.unwrap_or_default();
        for name in entries.iter().filter(|entry| entry.starts_with("connection")) {
            let connection = folder.join(name).join("iscsi_connection").join(name);
            for (address, port) in [("address", "port"), ("persistent_address", "persistent_port")] {
                let address = text(ctx, &connection.join(address)).await;
                let port = text(ctx, &connection.join(port)).await;
                if let (Some(address), Some(port)) = (address, port) {
                    let address = if address.contains(':') { format!("[{address}]") } else { address };
                    found.insert(format!("{address}:{port}"), host);
                }
            }
        }
    }
    Ok(found)
}

/// The disks of a unit of a target: `sda`.
pub async fn disks(ctx: &Context, target: &str, lun: u32) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for Session { host, folder } in sessions(ctx, target).await? {
        let blocks = folder.join(format!("target{host}:0:0")).join(format!("{host}:0:0:{lun}")).join("block");
        found.extend(ctx.host.names(&blocks).await.unwrap_or_default().into_iter().next());
    }
    Ok(found)
}

async fn text(ctx: &Context, path: &Path) -> Option<String> {
    let bytes = ctx.host.read_file(path).await.ok().flatten()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

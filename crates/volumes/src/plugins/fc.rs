//! Disks of a Fibre Channel network. The network shows them to the node by itself; they only have to be found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::disk::Shown;
use super::{Request, scsi};
use crate::attach;
use crate::failure::{Failure, Step};
use crate::port::told;
use crate::volumes::Context;

pub const FOLDER: &str = "kubernetes.io~fc";
const PLUGIN: &str = "plugins/kubernetes.io/fc";
const BY_PATH: &str = "/dev/disk/by-path";
const BY_ID: &str = "/dev/disk/by-id";
const TOOL_LIMIT: Duration = Duration::from_secs(60);

pub struct Disk {
    name: String,
    ports: Vec<String>,
    unit: i32,
    ids: Vec<String>,
    fs_type: String,
    read_only: bool,
}

impl Disk {
    pub fn of(name: &str, source: &api::FCVolumeSource, read_only: bool) -> Self {
        Self {
            name: name.to_owned(),
            ports: source.target_wwns.clone().unwrap_or_default(),
            unit: source.lun.unwrap_or_default(),
            // The kernel writes blanks so.
            ids: source.wwids.iter().flatten().map(|id| id.replace(' ', "_")).collect(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only,
        }
    }

    /// As folders name it.
    fn id(&self) -> String {
        match self.ports.is_empty() {
            true => self.ids.join("-"),
            false => format!("{}-lun-{}", self.ports.join("-"), self.unit),
        }
    }

    /// As controllers name it.
    fn unique_name(&self) -> String {
        match self.ports.is_empty() {
            true => format!("kubernetes.io/fc/[{}]", self.ids.join(" ")),
            false => format!("kubernetes.io/fc/[{}]:{}", self.ports.join(" "), self.unit),
        }
    }

    pub fn global(&self, root: &Path, block: bool) -> PathBuf {
        let plugin = root.join(PLUGIN);
        if block { plugin.join("volumeDevices").join(self.id()) } else { plugin.join(self.id()) }
    }
}

pub async fn set_up(
    request: &Request<'_>,
    disk: &Disk,
    options: Vec<String>,
) -> Result<MountedVolume, Failure> {
    let global = disk.global(&request.ctx.root_dir, false);
    let _held = request.ctx.locks.hold(&global).await;
    let device = attach(request, disk).await?;
    let shown =
        Shown { plugin: FOLDER, name: &disk.name, source: &global, read_only: disk.read_only, options };
    scsi::mount_and_show(request, &device, &disk.fs_type, &global, shown).await
}

pub async fn attach(request: &Request<'_>, disk: &Disk) -> Result<PathBuf, Failure> {
    let ctx = request.ctx;
    if ctx.api.is_some() {
        let volume = disk.unique_name();
        ctx.attachments.want(&volume, &request.id.uid);
        attach::check(&ctx.storage.borrow(), &volume)?;
    }
    let missing = || Failure::at(Step::Mount("MountVolume.WaitForAttach failed"), "no fc disk found");
    if let (_, Some(map)) = find(ctx, disk).await {
        return Ok(map);
    }
    rescan(ctx).await;
    let (single, map) = find(ctx, disk).await;
    map.or(single).ok_or_else(missing)
}

/// The disk, and the multipath device that joins all ways to it.
async fn find(ctx: &Context, disk: &Disk) -> (Option<PathBuf>, Option<PathBuf>) {
    let by_port = !disk.ports.is_empty();
    let folder = Path::new(if by_port { BY_PATH } else { BY_ID });
    let names = ctx.host.names(folder).await.unwrap_or_default();
    let wanted = if by_port { &disk.ports } else { &disk.ids };
    let mut single = None;
    for id in wanted {
        let fits = |name: &&String| match by_port {
            true => {
                let end = format!("fc-0x{id}-lun-{}", disk.unit);
                **name == end || (name.starts_with("pci-") && name.ends_with(&format!("-{end}")))
            }
            false => **name == format!("scsi-{id}"),
        };
        let Some(name) = names.iter().find(fits) else { continue };
        let Ok(device) = ctx.host.real_path(&folder.join(name)).await else { continue };
        if let Some(map) = scsi::multipath(ctx, &device).await {
            return (Some(device), Some(map));
        }
        single = Some(device);
    }
    (single, None)
}

async fn rescan(ctx: &Context) {
    let hosts = Path::new("/sys/class/scsi_host");
    for host in ctx.host.names(hosts).await.unwrap_or_default() {
        let scan = hosts.join(host).join("scan");
        if let Err(error) = ctx.host.write_file(&scan, b"- - -").await {
            tracing::warn!(path = %scan.display(), %error, "Failed to look for new disks");
        }
    }
}

/// Unmounts and detaches the disks that no pod sees any more.
pub async fn sweep(ctx: &Context) -> Result<(), String> {
    let plugin = ctx.root_dir.join(PLUGIN);
    let names = ctx.host.names(&plugin).await.map_err(|error| told("open", &plugin, &error))?;
    for name in names.iter().filter(|name| *name != "volumeDevices") {
        let global = plugin.join(name);
        let _held = ctx.locks.hold(&global).await;
        if scsi::is_used(ctx, &global).await? {
            continue;
        }
        let table =
            ctx.host.mounts(&global).await.map_err(|error| told("read mounts of", &global, &error))?;
        super::disk::take_away(ctx, &global, false).await?;
        for mounted in table {
            detach(ctx, Path::new(&mounted.source)).await?;
        }
    }
    let maps = plugin.join("volumeDevices");
    for name in ctx.host.names(&maps).await.unwrap_or_default() {
        let global = maps.join(&name);
        let _held = ctx.locks.hold(&global).await;
        if ctx.host.names(&global).await.is_ok_and(|pods| pods.is_empty()) {
            let folder = Path::new(if name.contains("-lun-") { BY_PATH } else { BY_ID });
            let links = ctx.host.names(folder).await.unwrap_or_default();
            if let Some(link) = links.iter().find(|link| link.contains(&name)) {
                detach(ctx, &folder.join(link)).await?;
            }
            ctx.host.remove_folder(&global).await.map_err(|error| told("remove", &global, &error))?;
        }
    }
    Ok(())
}

async fn detach(ctx: &Context, device: &Path) -> Result<(), String> {
    let Ok(real) = ctx.host.real_path(device).await else { return Ok(()) };
    let map = match real.to_string_lossy().starts_with("/dev/dm-") {
        true => Some(real.clone()),
        false => scsi::multipath(ctx, &real).await,
    };
    let devices = match &map {
        Some(map) => {
            let ways = scsi::ways(ctx, map).await;
            let path = map.to_string_lossy();
            let end = ctx.host.run("multipath", &["-f", &path], TOOL_LIMIT).await;
            let end = end.map_err(|error| format!("failed to flush multipath device {path}: {error}"))?;
            if !end.is_success() {
                return Err(format!(
                    "failed to flush multipath device {path}: exit status {}\n{}",
                    end.code, end.output
                ));
            }
            ways
        }
        None => vec![real],
    };
    for device in devices {
        let path = device.to_string_lossy();
        let Some(name) = path.strip_prefix("/dev/") else {
            return Err(format!("fc detach disk: invalid device name: {path}"));
        };
        let flushed = ctx.host.run("blockdev", &["--flushbufs", &path], TOOL_LIMIT).await;
        if !flushed.is_ok_and(|end| end.is_success()) {
            tracing::warn!(device = %path, "Failed to flush a device that goes away");
        }
        scsi::delete(ctx, name).await;
    }
    Ok(())
}

//! Giving back targets that no pod needs any more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tracing::warn;

use super::PLUGIN;
use super::login::iscsiadm;
use crate::plugins::{disk, scsi};
use crate::port::told;
use crate::volumes::Context;

const LIMIT: Duration = Duration::from_secs(60);
/// `iscsiadm` has nothing to log out of, or to delete.
const NOTHING_THERE: [i32; 2] = [2, 21];

/// Unmounts the disks that no pod sees any more, and logs out of their targets.
pub async fn sweep(ctx: &Context) -> Result<(), String> {
    let plugin = ctx.root_dir.join(PLUGIN);
    for global in folders(ctx, &plugin).await? {
        let _held = ctx.locks.hold(&global).await;
        if !scsi::is_used(ctx, &global).await? {
            for _ in
                ctx.host.mounts(&global).await.map_err(|error| told("read mounts of", &global, &error))?
            {
                ctx.host.unmount(&global, false).await.map_err(|error| told("unmount", &global, &error))?;
            }
            detach(ctx, &plugin, &global).await?;
        }
    }
    for global in folders(ctx, &plugin.join("volumeDevices")).await? {
        let _held = ctx.locks.hold(&global).await;
        let names = ctx.host.names(&global).await.map_err(|error| told("open", &global, &error))?;
        if names.iter().all(|name| name == "iscsi.json") {
            detach(ctx, &plugin, &global).await?;
        }
    }
    Ok(())
}

/// The folders of disks below those of interfaces.
async fn folders(ctx: &Context, base: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let names = ctx.host.names(base).await.map_err(|error| told("open", base, &error))?;
    for interface in names.iter().filter(|name| name.starts_with("iface-")) {
        let interface = base.join(interface);
        let disks = ctx.host.names(&interface).await.map_err(|error| told("open", &interface, &error))?;
        found.extend(disks.into_iter().map(|disk| interface.join(disk)));
    }
    Ok(found)
}

/// What `iscsi.json` says, or, where there is none, the folder's name.
struct Saved {
    portals: Vec<String>,
    target: String,
    unit: u32,
    interface: String,
    is_copy: bool,
}

impl Saved {
    async fn of(ctx: &Context, global: &Path) -> Result<Self, String> {
        let file = global.join("iscsi.json");
        let json = ctx.host.read_file(&file).await.map_err(|error| told("open", &file, &error))?;
        if let Some(json) = json.and_then(|json| serde_json::from_slice::<Value>(&json).ok()) {
            let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
            let portals = json["Portals"].as_array().into_iter().flatten();
            let portals: Vec<String> =
                portals.filter_map(|portal| portal.as_str().map(str::to_owned)).collect();
            let copy = portals.first().map(|portal| format!("{portal}:{}", text("VolName")));
            return Ok(Self {
                target: text("Iqn"),
                unit: text("Lun").parse().unwrap_or_default(),
                is_copy: !text("InitiatorName").is_empty() && copy == Some(text("Iface")),
                interface: text("Iface"),
                portals,
            });
        }
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let malformed = || format!("iscsi detach disk: malformatted mnt path: {}", global.display());
        let folder = name(global).ok_or_else(malformed)?;
        let interface = global.parent().and_then(name).unwrap_or_default();
        let (disk, unit) = folder.rsplit_once("-lun-").ok_or_else(malformed)?;
        let (portal, target) = disk.split_once('-').ok_or_else(malformed)?;
        Ok(Self {
            portals: vec![portal.to_owned()],
            target: target.to_owned(),
            unit: unit.parse().unwrap_or_default(),
            interface: interface.strip_prefix("iface-").unwrap_or_default().to_owned(),
            is_copy: false,
        })
    }
}

/// The folder goes last: by it an interrupted logout is found again.
async fn detach(ctx: &Context, plugin: &Path, global: &Path) -> Result<(), String> {
    let saved = Saved::of(ctx, global).await?;
    delete_disks(ctx, &saved).await;
    {
        let _held = ctx.locks.hold(Path::new(&saved.target)).await;
        if !is_busy(ctx, plugin, &saved).await? {
            log_out(ctx, &saved)
                .await
                .map_err(|error| format!("failed to finish detachISCSIDisk, err: {error}"))?;
        }
    }
    let file = global.join("iscsi.json");
    ctx.host.remove_file(&file).await.map_err(|error| told("remove", &file, &error))?;
    disk::take_away(ctx, global, false).await
}

async fn delete_disks(ctx: &Context, saved: &Saved) {
    let disks = scsi::disks(ctx, &saved.target, saved.unit).await.unwrap_or_default();
    let mut maps = Vec::new();
    for disk in &disks {
        maps.extend(scsi::multipath(ctx, &Path::new("/dev").join(disk)).await);
    }
    maps.sort();
    maps.dedup();
    for map in maps {
        let path = map.to_string_lossy();
        if !ctx.host.run("multipath", &["-f", &path], LIMIT).await.is_ok_and(|end| end.is_success()) {
            warn!(device = %path, "Failed to flush a multipath device");
        }
    }
    for disk in disks {
        scsi::delete(ctx, &disk).await;
    }
}

/// Whether another disk of the same target is there.
async fn is_busy(ctx: &Context, plugin: &Path, saved: &Saved) -> Result<bool, String> {
    let Some(portal) = saved.portals.first() else { return Ok(true) };
    let prefix = format!("{portal}-{}", saved.target);
    let mut all = folders(ctx, plugin).await?;
    all.extend(folders(ctx, &plugin.join("volumeDevices")).await?);
    let of_target = all
        .iter()
        .filter(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    Ok(of_target.count() > 1)
}

async fn log_out(ctx: &Context, saved: &Saved) -> Result<(), String> {
    let ignored = |code: Option<i32>| code.is_some_and(|code| NOTHING_THERE.contains(&code));
    for portal in &saved.portals {
        let node = ["-m", "node", "-p", portal, "-T", &saved.target];
        for verb in [&["--logout"][..], &["-o", "delete"]] {
            let args = [&node[..], verb, &["-I", &saved.interface]].concat();
            match iscsiadm(ctx, &args).await {
                Err(refused) if !ignored(refused.code) => return Err(refused.why),
                _ => {}
            }
        }
    }
    if saved.is_copy {
        match iscsiadm(ctx, &["-m", "iface", "-I", &saved.interface, "-o", "delete"]).await {
            Err(refused) if !ignored(refused.code) => return Err(refused.why),
            _ => {}
        }
    }
    Ok(())
}

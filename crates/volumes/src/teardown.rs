//! Taking volumes away. What is there is read from disk and from the mount table, so it does not matter which life of
//! the agent, or whose, has made it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crablet_model::events::Event;
use crablet_model::{PodRef, PodUid};
use tokio::time::Instant;
use tracing::warn;

use crate::block;
use crate::failure::FAILED_UNMOUNT;
use crate::figures;
use crate::layout::{EMPTY_DIR, PodLayout};
use crate::plugins::{self, disk, empty_dir, fc, iscsi, local, nfs};
use crate::port::told;
use crate::said::Telling;
use crate::slow::{self, Slow};
use crate::volumes::{Context, Volumes};

impl Volumes {
    /// Unmounts and removes all volumes and sub paths of the pod. Absent is fine.
    pub async fn tear_down(&self, id: &PodRef) -> Result<(), String> {
        let entry = self.entry(id);
        // A set-up that hangs on a driver or a server is not waited for.
        entry.leaving.say(true);
        let mut state = entry.state.lock().await;
        entry.leaving.say(false);
        if state.gone {
            return Ok(());
        }
        // Whatever comes of it, nothing counts as set up any more.
        state.mounted.clear();
        state.disk_names.clear();
        let layout = PodLayout::new(&self.ctx.root_dir, &id.uid);
        if let Err(error) = take_down(&self.ctx, id, &layout, &mut state.slow_to_go).await {
            let telling = state.said_of_all.say(&error, self.ctx.clock.now());
            if telling == Telling::News {
                // Of a pod that nobody knows any more only the log can tell.
                warn!(pod = id.object_ref(), podUID = id.uid.as_str(), "{error}");
            }
            if telling != Telling::Known {
                self.ctx.events.emit(Event::warning(id, FAILED_UNMOUNT, error.clone()));
            }
            return Err(error);
        }
        state.gone = true;
        self.forget(&id.uid);
        Ok(())
    }
}

/// Where volumes of drivers of CSI lie.
pub(crate) const CSI: &str = "kubernetes.io~csi";

impl Volumes {
    /// What the last life of the agent has left: whose volumes still count as in use, and which disks nobody needs.
    pub(crate) async fn look_back(&self) {
        let ctx = &self.ctx;
        let pods = ctx.root_dir.join("pods");
        let mut strangers = BTreeSet::new();
        for uid in ctx.host.names(&pods).await.unwrap_or_default() {
            let uid = PodUid::new(uid);
            let layout = PodLayout::new(&ctx.root_dir, &uid);
            for base in [layout.volumes(), layout.devices()] {
                let plugins = ctx.host.names(&base).await.unwrap_or_default();
                for plugin in &plugins {
                    match ctx.host.names(&base.join(plugin)).await {
                        Ok(volumes) => figures::rebuilt(volumes.len() as u64, 0),
                        Err(_) => figures::rebuilt(0, 1),
                    }
                }
                if plugins.iter().any(|plugin| [CSI, iscsi::FOLDER, fc::FOLDER].contains(&plugin.as_str())) {
                    strangers.insert(uid.clone());
                }
            }
        }
        // What is staged has to be known before anything counts as unused.
        if let Some(csi) = &ctx.csi
            && let Err(error) = csi.look_back().await
        {
            // The Node says what it said before until a later look succeeds.
            warn!(error, "Failed to look for staged volumes");
            return;
        }
        let before = ctx.storage.borrow().in_use.clone();
        ctx.attachments.start(strangers, &before);
        sweep(ctx, &[local::FOLDER, iscsi::FOLDER, fc::FOLDER].map(str::to_owned).into()).await;
    }
}

async fn take_down(
    ctx: &Context,
    id: &PodRef,
    layout: &PodLayout,
    slow: &mut BTreeMap<String, Slow>,
) -> Result<(), String> {
    let uid = &id.uid;
    if leads_elsewhere(ctx, layout.pod()).await? {
        return Err(format!("{} leads elsewhere: remove it by hand", layout.pod().display()));
    }
    // They are mounts of what lies in the volumes, which would stay busy.
    remove_sub_paths(ctx, &layout.sub_paths()).await?;
    let mut errors = Vec::new();
    let mut plugins = BTreeSet::new();
    for (base, is_device) in [(layout.volumes(), false), (layout.devices(), true)] {
        if unlinked(ctx, &base).await? {
            continue;
        }
        for plugin in names(ctx, &base).await? {
            let folder = base.join(&plugin);
            if unlinked(ctx, &folder).await? {
                continue;
            }
            let before = errors.len();
            for volume in names(ctx, &folder).await? {
                let work = Box::pin(async {
                    match is_device {
                        false => remove_volume(ctx, uid, layout, &plugin, &volume).await.map_err(|error| {
                            format!("UnmountVolume.TearDown failed for volume {volume:?} : {error}")
                        }),
                        true => remove_device(ctx, uid, &plugin, &volume).await.map_err(|error| {
                            format!("UnmapVolume.UnmapBlockVolume failed for volume {volume:?} : {error}")
                        }),
                    }
                });
                let begun = Instant::now();
                let slow = slow.entry(volume.clone()).or_insert_with(|| Slow::since(ctx.clock.now()));
                let tell = |since| {
                    let text = slow::text_of_teardown(&volume, since);
                    ctx.events.emit(Event::warning(id, FAILED_UNMOUNT, text));
                };
                let removed = slow.watch(work, tell).await;
                let name = if is_device { "unmap_volume" } else { "volume_unmount" };
                figures::operation(&plugin.replace('~', "/"), name, removed.is_ok(), begun.elapsed());
                errors.extend(removed.err());
            }
            if errors.len() == before {
                remove_folder(ctx, &folder).await?;
            }
            plugins.insert(plugin);
        }
        if errors.is_empty() {
            remove_folder(ctx, &base).await?;
        }
    }
    if let Some(csi) = &ctx.csi {
        // Published devices whose link a death has kept from being made, or has taken away too early.
        for volume in csi.mapped(uid).await? {
            remove_device(ctx, uid, CSI, &volume).await?;
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    sweep(ctx, &plugins).await;
    let markers = layout.markers();
    ctx.host.remove_tree(&markers).await.map_err(|error| told("remove", &markers, &error))
}

async fn remove_volume(
    ctx: &Context,
    uid: &PodUid,
    layout: &PodLayout,
    plugin: &str,
    volume: &str,
) -> Result<(), String> {
    let folder = layout.volume(plugin, volume);
    if plugins::is_of_files(plugin) {
        let marker = if plugin == EMPTY_DIR { volume.to_owned() } else { format!("wrapped_{volume}") };
        return empty_dir::remove(ctx, layout, &marker, &folder).await;
    }
    match (plugin, &ctx.csi) {
        (nfs::FOLDER, _) => disk::take_away(ctx, &folder, true).await,
        (local::FOLDER | iscsi::FOLDER | fc::FOLDER, _) => disk::take_away(ctx, &folder, false).await,
        (CSI, Some(csi)) => csi.tear_down(uid, volume).await,
        _ => Err(unknown(plugin)),
    }
}

async fn remove_device(ctx: &Context, uid: &PodUid, plugin: &str, volume: &str) -> Result<(), String> {
    let maps = global_maps(ctx, uid, plugin, volume).await?;
    for global in &maps {
        let _held = ctx.locks.hold(global).await;
        block::unmap(ctx, uid, plugin, volume, global).await?;
    }
    if plugin == CSI {
        match &ctx.csi {
            Some(csi) => csi.unmap(uid, volume).await?,
            None => return Err(unknown(plugin)),
        }
    }
    // The link is the last to go, and stays where nothing else was found.
    let link = PodLayout::new(&ctx.root_dir, uid).device(plugin, volume);
    ctx.host.remove_file(&link).await.map_err(|error| told("remove", &link, &error))
}

/// Where the pod's device is bound. Only some plugins name the place by the volume, so the others are searched.
async fn global_maps(
    ctx: &Context,
    uid: &PodUid,
    plugin: &str,
    volume: &str,
) -> Result<Vec<PathBuf>, String> {
    let own = block::global_map(&ctx.root_dir, plugin, volume);
    match plugin {
        local::FOLDER => Ok(vec![own]),
        CSI => Ok(vec![own.join("dev")]),
        iscsi::FOLDER | fc::FOLDER => {
            let base = own.parent().map(Path::to_owned).unwrap_or(own);
            let mut found = Vec::new();
            let mut folders = vec![base];
            // Two levels: interfaces, and disks below them.
            for _ in 0..2 {
                let mut deeper = Vec::new();
                for folder in &folders {
                    deeper.extend(names(ctx, folder).await?.into_iter().map(|name| folder.join(name)));
                }
                found.extend(deeper.iter().cloned());
                folders = deeper;
            }
            let mut holding = Vec::new();
            for folder in found {
                if names(ctx, &folder).await?.iter().any(|name| name == uid.as_str()) {
                    holding.push(folder);
                }
            }
            Ok(holding)
        }
        _ => Err(unknown(plugin)),
    }
}

fn unknown(plugin: &str) -> String {
    let name = plugin.replace('~', "/");
    format!("volumes of plugin {name:?} are not supported yet: unmount and remove it by hand")
}

/// Disks that were mounted for the node, and that no pod sees any more. Who waits for the pod's end does not wait for
/// that: what fails is tried again with the next pod that has such a volume, and when the agent starts.
pub(crate) async fn sweep(ctx: &Context, plugins: &BTreeSet<String>) {
    for plugin in plugins {
        let swept = match plugin.as_str() {
            local::FOLDER => local::sweep(ctx).await,
            iscsi::FOLDER => iscsi::sweep(ctx).await,
            fc::FOLDER => fc::sweep(ctx).await,
            _ => continue,
        };
        if let Err(error) = swept {
            warn!(plugin, error, "UnmountDevice failed");
        }
    }
}

async fn remove_sub_paths(ctx: &Context, folder: &Path) -> Result<(), String> {
    // Most pods have none, and the mount table of a full node is long.
    if ctx.host.kind(folder).await.map_err(|error| told("stat", folder, &error))?.is_none() {
        return Ok(());
    }
    let mounts = ctx.host.mounts(folder).await.map_err(|error| told("read mounts of", folder, &error))?;
    // The last one mounted is the first one to go.
    for mounted in mounts.iter().rev() {
        ctx.host.unmount(&mounted.path, false).await.map_err(|error| {
            format!("error cleaning subpath mount {}", told("unmount", &mounted.path, &error))
        })?;
    }
    ctx.host.remove_tree(folder).await.map_err(|error| told("remove", folder, &error))
}

/// Nobody but an administrator can have put a link here, and what it leads to is not the pod's. The link goes.
async fn unlinked(ctx: &Context, folder: &Path) -> Result<bool, String> {
    let is_link = leads_elsewhere(ctx, folder).await?;
    if is_link {
        ctx.host.remove_file(folder).await.map_err(|error| told("remove", folder, &error))?;
    }
    Ok(is_link)
}

/// Whether the folder itself is a link. What lies above it is somebody else's business.
async fn leads_elsewhere(ctx: &Context, folder: &Path) -> Result<bool, String> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(false) };
    let real =
        async { io::Result::Ok((ctx.host.real_path(folder).await?, ctx.host.real_path(parent).await?)) };
    match real.await {
        Ok((folder, parent)) => Ok(folder != parent.join(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(told("lstat", folder, &error)),
    }
}

async fn names(ctx: &Context, folder: &Path) -> Result<Vec<String>, String> {
    ctx.host.names(folder).await.map_err(|error| told("open", folder, &error))
}

async fn remove_folder(ctx: &Context, folder: &Path) -> Result<(), String> {
    ctx.host.remove_folder(folder).await.map_err(|error| told("remove", folder, &error))
}

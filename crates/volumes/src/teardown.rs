//! Taking volumes away. What is there is read from disk and from the mount table, so it does not matter which life of
//! the agent, or whose, has made it.

use std::path::Path;

use crablet_model::PodRef;

use crate::layout::{EMPTY_DIR, PodLayout};
use crate::plugins;
use crate::plugins::empty_dir;
use crate::port::told;
use crate::volumes::{Context, Volumes};

impl Volumes {
    /// Unmounts and removes all volumes and sub paths of the pod. Absent is fine.
    pub async fn tear_down(&self, id: &PodRef) -> Result<(), String> {
        let entry = self.entry(id);
        let mut state = entry.state.lock().await;
        if state.gone {
            return Ok(());
        }
        // Whatever comes of it, nothing counts as set up any more.
        state.mounted.clear();
        take_down(&self.ctx, &PodLayout::new(&self.ctx.root_dir, &id.uid)).await?;
        state.gone = true;
        self.forget(&id.uid);
        Ok(())
    }
}

async fn take_down(ctx: &Context, layout: &PodLayout) -> Result<(), String> {
    // They are mounts of what lies in the volumes, which would stay busy.
    remove_sub_paths(ctx, &layout.sub_paths()).await?;
    let volumes = layout.volumes();
    let mut errors = Vec::new();
    for plugin in names(ctx, &volumes).await? {
        let folder = volumes.join(&plugin);
        for volume in names(ctx, &folder).await? {
            if let Err(error) = remove_volume(ctx, layout, &plugin, &volume).await {
                errors.push(format!("UnmountVolume.TearDown failed for volume {volume:?} : {error}"));
            }
        }
        if errors.is_empty() {
            remove_folder(ctx, &folder).await?;
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    remove_folder(ctx, &volumes).await?;
    let markers = layout.markers();
    ctx.host.remove_tree(&markers).await.map_err(|error| told("remove", &markers, &error))
}

async fn remove_volume(ctx: &Context, layout: &PodLayout, plugin: &str, volume: &str) -> Result<(), String> {
    if !plugins::owns(plugin) {
        let name = plugin.replace('~', "/");
        return Err(format!(
            "volumes of plugin {name:?} are not supported yet: unmount and remove it by hand"
        ));
    }
    let marker = if plugin == EMPTY_DIR { volume.to_owned() } else { format!("wrapped_{volume}") };
    empty_dir::remove(ctx, layout, &marker, &layout.volume(plugin, volume)).await
}

async fn remove_sub_paths(ctx: &Context, folder: &Path) -> Result<(), String> {
    // Most pods have none, and the mount table of a full node is long.
    if ctx.host.kind(folder).await.map_err(|error| told("stat", folder, &error))?.is_none() {
        return Ok(());
    }
    let mounts = ctx.host.mounts(folder).await.map_err(|error| told("read mounts of", folder, &error))?;
    // The last one mounted is the first one to go.
    for mounted in mounts.iter().rev() {
        ctx.host.unmount(&mounted.path).await.map_err(|error| {
            format!("error cleaning subpath mount {}", told("unmount", &mounted.path, &error))
        })?;
    }
    ctx.host.remove_tree(folder).await.map_err(|error| told("remove", folder, &error))
}

async fn names(ctx: &Context, folder: &Path) -> Result<Vec<String>, String> {
    ctx.host.names(folder).await.map_err(|error| told("open", folder, &error))
}

async fn remove_folder(ctx: &Context, folder: &Path) -> Result<(), String> {
    ctx.host.remove_folder(folder).await.map_err(|error| told("remove", folder, &error))
}

//! A file per kind of volume.
//!
//! | module | volume | backing |
//! |---|---|---|
//! | `empty_dir` | `emptyDir` | a folder, tmpfs or huge pages; also below the four that follow |
//! | `config_map` | `configMap` | files on disk |
//! | `secret` | `secret` | files on tmpfs |
//! | `downward_api` | `downwardAPI` | files on tmpfs |
//! | `projected` | `projected` | files on tmpfs |
//! | `host_path` | `hostPath` | the path itself |
//! | `nfs` | `nfs` | a folder of another machine |
//! | `local` | persistent `local` | a folder or disk of the node |
//! | `iscsi`, `fc` | `iscsi`, `fc` | disks of a storage network |
//! | `persistent` | `persistentVolumeClaim`, `ephemeral` | what the claim is bound to, drivers of CSI included |
//!
//! | module | what the plugins share |
//! |---|---|
//! | `files` | volumes of files: backing, mount points of volumes nested in them, writing |
//! | `nested` | which volumes are mounted inside another |
//! | `size` | how large a memory-backed volume may become |
//! | `trust` | certificates of cluster trust bundles, for `projected` |
//! | `disk`, `format`, `scsi` | volumes that are mounted elsewhere and shown to pods |

mod config_map;
pub(crate) mod disk;
mod downward_api;
pub(crate) mod empty_dir;
pub(crate) mod fc;
mod files;
mod format;
mod host_path;
pub(crate) mod iscsi;
pub(crate) mod local;
mod nested;
pub(crate) mod nfs;
pub(crate) mod persistent;
mod projected;
mod scsi;
mod secret;
mod size;
mod trust;

use std::io;
use std::path::Path;

use crablet_model::events::Event;
use crablet_model::{PodRef, api};
use crablet_planner::pod::config::MountedVolume;
use jiff::Timestamp;

use crate::csi::{CsiRequest, CsiSource};
use crate::failure::{Failure, Step};
use crate::layout::PodLayout;
use crate::pod::Owners;
use crate::port::{GroupChange, reason};
use crate::slow::Slow;
use crate::volumes::Context;

/// One volume of a pod that shall be set up.
pub(crate) struct Request<'a> {
    pub ctx: &'a Context,
    pub id: &'a PodRef,
    pub layout: PodLayout,
    pub pod: &'a api::Pod,
    pub spec: &'a api::PodSpec,
    pub owners: Owners,
    pub volume: &'a api::Volume,
    /// It is there already and shall only show what is true now.
    pub again: bool,
    /// Tells of it when it takes long.
    pub slow: &'a Slow,
}

impl Request<'_> {
    fn namespace(&self) -> &str {
        &self.id.namespace
    }

    fn name(&self) -> &str {
        &self.volume.name
    }

    /// `fsGroupChangePolicy`
    fn on_root_mismatch(&self) -> bool {
        let context = self.spec.security_context.as_ref();
        context.and_then(|context| context.fs_group_change_policy.as_deref()) == Some("OnRootMismatch")
    }

    async fn give(&self, folder: &Path, change: GroupChange) -> Result<(), String> {
        let told =
            |error: io::Error| format!("applyFSGroup failed for vol {}: {}", self.name(), reason(&error));
        let ctx = self.ctx;
        self.slow.is_told_elsewhere();
        crate::ownership::give(&*ctx.host, &*ctx.events, self.id, folder, change).await.map_err(told)
    }

    fn warn(&self, reason: &'static str, text: String) {
        self.ctx.events.emit(Event::warning(self.id, reason, text));
    }

    fn csi<'a>(&'a self, source: CsiSource<'a>) -> CsiRequest<'a> {
        CsiRequest {
            id: self.id,
            pod: self.pod,
            source,
            fs_group: self.owners.group,
            context: None,
            on_root_mismatch: self.on_root_mismatch(),
            again: self.again,
        }
    }
}

pub(crate) struct Ready {
    pub mounted: MountedVolume,
    /// When a token in it has to be renewed.
    pub refresh_at: Option<Timestamp>,
    /// Its name on disk, where that is not the pod's.
    pub disk_name: Option<String>,
}

impl From<MountedVolume> for Ready {
    fn from(mounted: MountedVolume) -> Self {
        Self { mounted, refresh_at: None, disk_name: None }
    }
}

/// Whether the volume shows something that may change.
pub(crate) fn shows(volume: &api::Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Of volumes of drivers.
pub(crate) const CSI_PLUGIN: &str = "kubernetes.io/csi";

/// Upstream's name of what makes the volume, also where a claim stands for it and only its place tells. `None` where
/// nothing does, or nobody knows.
pub(crate) fn plugin_name(volume: &api::Volume, path: Option<&str>) -> Option<&'static str> {
    let kinds = [
        (volume.empty_dir.is_some(), "kubernetes.io/empty-dir"),
        (volume.config_map.is_some(), "kubernetes.io/configmap"),
        (volume.secret.is_some(), "kubernetes.io/secret"),
        (volume.downward_api.is_some(), "kubernetes.io/downward-api"),
        (volume.projected.is_some(), "kubernetes.io/projected"),
        (volume.host_path.is_some(), "kubernetes.io/host-path"),
        (volume.nfs.is_some(), "kubernetes.io/nfs"),
        (volume.iscsi.is_some(), "kubernetes.io/iscsi"),
        (volume.fc.is_some(), "kubernetes.io/fc"),
        (volume.csi.is_some(), CSI_PLUGIN),
    ];
    if let Some((_, name)) = kinds.into_iter().find(|(is_it, _)| *is_it) {
        return Some(name);
    }
    let places = [
        ("kubernetes.io~csi", CSI_PLUGIN),
        ("kubernetes.io~local-volume", "kubernetes.io/local-volume"),
        ("kubernetes.io~nfs", "kubernetes.io/nfs"),
        ("kubernetes.io~iscsi", "kubernetes.io/iscsi"),
        ("kubernetes.io~fc", "kubernetes.io/fc"),
    ];
    let is_claim = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    let path = Path::new(path.filter(|_| is_claim)?);
    let found = places.into_iter().find(|(folder, _)| path.iter().any(|part| part == *folder));
    Some(found.map_or("kubernetes.io/host-path", |(_, name)| name))
}

/// Whether a folder below `volumes` was made by a plugin of files.
pub(crate) fn is_of_files(folder: &str) -> bool {
    [layout_name::CONFIG_MAP, layout_name::SECRET, layout_name::DOWNWARD_API, layout_name::PROJECTED]
        .contains(&folder)
        || folder == crate::layout::EMPTY_DIR
}

mod layout_name {
    pub const CONFIG_MAP: &str = "kubernetes.io~configmap";
    pub const SECRET: &str = "kubernetes.io~secret";
    pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
    pub const PROJECTED: &str = "kubernetes.io~projected";
}

pub(crate) async fn set_up(request: &Request<'_>) -> Result<Ready, Failure> {
    let volume = request.volume;
    if let Some(source) = &volume.empty_dir {
        return Ok(empty_dir::set_up(request, source).await?.into());
    }
    if let Some(source) = &volume.host_path {
        return Ok(host_path::set_up(request, source).await?.into());
    }
    if let Some(source) = &volume.config_map {
        return config_map::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.secret {
        return secret::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.downward_api {
        return Ok(downward_api::set_up(request, source).await?.into());
    }
    if let Some(source) = &volume.projected {
        return projected::set_up(request, source).await;
    }
    if let Some((claim, read_only)) = crate::claims::wanted(&request.id.name, volume) {
        return persistent::set_up(request, &claim, read_only).await;
    }
    if let Some(source) = &volume.nfs {
        let read_only = source.read_only.unwrap_or(false);
        return nfs::set_up(request, request.name(), source, read_only, Vec::new()).await.map(Ready::from);
    }
    if let Some(source) = &volume.iscsi {
        let disk = iscsi::Disk::of_pod(request.name(), source);
        return iscsi::set_up(request, &disk, Vec::new()).await.map(Ready::from);
    }
    if let Some(source) = &volume.fc {
        let disk = fc::Disk::of(request.name(), source, source.read_only.unwrap_or(false));
        return fc::set_up(request, &disk, Vec::new()).await.map(Ready::from);
    }
    if let Some(source) = &volume.csi {
        return inline_csi(request, source).await;
    }
    if volume.image.is_some() {
        // The runtime mounts it: there is nothing to do but to name it.
        return Ok(MountedVolume { read_only: true, ..Default::default() }.into());
    }
    Err(Failure::from(match kind_of_other(volume) {
        Some(kind) => format!("volumes of kind `{kind}` are not supported yet"),
        None => "no volume plugin matched".to_owned(),
    }))
}

/// A volume of a driver that lives and dies with its pod.
async fn inline_csi(request: &Request<'_>, source: &api::CSIVolumeSource) -> Result<Ready, Failure> {
    let Some(csi) = &request.ctx.csi else { return Err(no_csi(&source.driver)) };
    let wish = request.csi(CsiSource::Inline { name: request.name(), source });
    let published = csi.set_up(&wish).await.map_err(of_driver)?;
    let read_only = source.read_only.unwrap_or(false);
    let host_path = published.path.display().to_string();
    let mounted = MountedVolume { host_path, read_only, relabel: !read_only, ..Default::default() };
    Ok(Ready { mounted, refresh_at: published.refresh_at, disk_name: None })
}

fn no_csi(driver: &str) -> Failure {
    format!("driver name {driver} not found in the list of registered CSI drivers").into()
}

/// A driver that is not there yet may come any moment.
fn of_driver(failure: crate::csi::Failure) -> Failure {
    let is_missing = failure.message.contains("not found in the list of registered CSI drivers");
    let step = step_of(failure.step);
    Failure { waits: is_missing, ..Failure::at(step, failure.message) }
}

fn step_of(step: &'static str) -> Step {
    match step {
        "MountVolume.WaitForAttach" => Step::Mount("MountVolume.WaitForAttach failed"),
        "MountVolume.MountDevice" => Step::Mount("MountVolume.MountDevice failed"),
        "MountVolume.Setup failed while expanding volume" => {
            Step::Mount("MountVolume.Setup failed while expanding volume")
        }
        "MapVolume.MarkVolumeAsMounted failed while expanding volume" => {
            Step::Map("MapVolume.MarkVolumeAsMounted failed while expanding volume")
        }
        "MapVolume.WaitForAttach" => Step::Map("MapVolume.WaitForAttach failed"),
        "MapVolume.SetUpDevice" => Step::Map("MapVolume.SetUpDevice failed"),
        "MapVolume.MapPodDevice" => Step::Map("MapVolume.MapPodDevice failed"),
        _ => Step::Mount("MountVolume.SetUp failed"),
    }
}

/// The field that says what the volume is, by the API's name.
fn kind_of_other(volume: &api::Volume) -> Option<String> {
    let json = serde_json::to_value(volume).ok()?;
    json.as_object()?.keys().find(|key| *key != "name").cloned()
}

/// A missing mode would be silently wrong: the API server always sets it.
fn default_mode(mode: Option<i32>) -> Result<u32, String> {
    mode.map(|mode| mode as u32 & 0o777)
        .ok_or_else(|| "no defaultMode used, not even the default value for it".to_owned())
}

fn mode_or(own: Option<i32>, default: u32) -> u32 {
    own.map_or(default, |mode| mode as u32 & 0o777)
}

/// Several errors in one text, each once, as upstream joins them.
fn joined(errors: Vec<String>) -> String {
    let mut once: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !once.contains(&error) {
            once.push(error);
        }
    }
    match once.len() {
        1 => once.swap_remove(0),
        _ => format!("[{}]", once.join(", ")),
    }
}

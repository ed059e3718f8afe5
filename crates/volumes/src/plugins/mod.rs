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
//!
//! | module | what the plugins share |
//! |---|---|
//! | `files` | volumes of files: backing, mount points of volumes nested in them, writing |
//! | `nested` | which volumes are mounted inside another |
//! | `size` | how large a memory-backed volume may become |

mod config_map;
mod downward_api;
pub(crate) mod empty_dir;
mod files;
mod host_path;
mod nested;
mod projected;
mod secret;
mod size;

use crablet_model::{PodRef, api};
use crablet_planner::pod::config::MountedVolume;
use jiff::Timestamp;

use crate::layout::PodLayout;
use crate::pod::Owners;
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
}

impl Request<'_> {
    fn namespace(&self) -> &str {
        &self.id.namespace
    }

    fn name(&self) -> &str {
        &self.volume.name
    }
}

pub(crate) struct Ready {
    pub mounted: MountedVolume,
    /// When a token in it has to be renewed.
    pub refresh_at: Option<Timestamp>,
}

impl From<MountedVolume> for Ready {
    fn from(mounted: MountedVolume) -> Self {
        Self { mounted, refresh_at: None }
    }
}

/// Whether the volume shows something that may change.
pub(crate) fn shows(volume: &api::Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether a folder below `volumes` was made by one of these plugins.
pub(crate) fn owns(folder: &str) -> bool {
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

pub(crate) async fn set_up(request: &Request<'_>) -> Result<Ready, String> {
    let volume = request.volume;
    if let Some(source) = &volume.empty_dir {
        return empty_dir::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.host_path {
        return host_path::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.config_map {
        return config_map::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.secret {
        return secret::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.downward_api {
        return downward_api::set_up(request, source).await.map(Ready::from);
    }
    if let Some(source) = &volume.projected {
        return projected::set_up(request, source).await;
    }
    Err(match kind_of_other(volume) {
        Some(kind) => format!("volumes of kind `{kind}` are not supported yet"),
        None => "no volume plugin matched".to_owned(),
    })
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

//! What a pod is told of itself, as files.

use crablet_model::api;
use crablet_planner::pod::config::{MountedVolume, volume_field, volume_resource};

use super::{Request, default_mode, files, joined, layout_name, mode_or};
use crate::payload::{Payload, PayloadFile, clean};
use crate::plugins::empty_dir::Medium;

pub async fn set_up(
    request: &Request<'_>,
    source: &api::DownwardAPIVolumeSource,
) -> Result<MountedVolume, String> {
    let mode = default_mode(source.default_mode)?;
    let payload = collect(request, source.items.as_deref().unwrap_or_default(), mode)?;
    files::show(request, layout_name::DOWNWARD_API, Medium::Memory, payload).await
}

pub fn collect(
    request: &Request<'_>,
    items: &[api::DownwardAPIVolumeFile],
    mode: u32,
) -> Result<Payload, String> {
    let mut payload = Payload::default();
    let mut errors = Vec::new();
    let node = request.ctx.node.borrow().clone();
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => volume_field(request.pod, field),
            (None, Some(field)) => volume_resource(request.pod, &node, field),
            (None, None) => Ok(String::new()),
        };
        match value {
            Ok(value) => {
                let mode = mode_or(item.mode, mode);
                let file = PayloadFile { content: value.into_bytes(), mode, owner: None };
                payload.add(&clean(&item.path), file)?;
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    if errors.is_empty() { Ok(payload) } else { Err(joined(errors)) }
}

//! A config map as files.

use crablet_apiserver::ObjectError;
use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::{Request, default_mode, files, layout_name, mode_or};
use crate::failure::Failure;
use crate::payload::{Payload, PayloadFile};
use crate::plugins::empty_dir::Medium;

pub async fn set_up(
    request: &Request<'_>,
    source: &api::ConfigMapVolumeSource,
) -> Result<MountedVolume, Failure> {
    let optional = source.optional.unwrap_or(false);
    let mode = default_mode(source.default_mode)?;
    let items = source.items.as_deref().unwrap_or_default();
    let payload = fetch(request, &source.name, items, mode, optional).await?;
    Ok(files::show(request, layout_name::CONFIG_MAP, Medium::Disk, payload).await?)
}

/// The files of a config map. An optional one that does not exist has none.
pub async fn fetch(
    request: &Request<'_>,
    name: &str,
    items: &[api::KeyToPath],
    mode: u32,
    optional: bool,
) -> Result<Payload, Failure> {
    let found = match request.ctx.objects.config_map(request.namespace(), name).await {
        Err(ObjectError::NotFound(_)) if optional => None,
        answer => Some(answer?),
    };
    let (text, binary) = match &found {
        Some(map) => (map.data.as_ref(), map.binary_data.as_ref()),
        None => (None, None),
    };
    let mut payload = Payload::default();
    let file = |content: &[u8], mode| PayloadFile { content: content.to_vec(), mode, owner: None };
    if items.is_empty() {
        for (key, value) in text.into_iter().flatten() {
            payload.add(key, file(value.as_bytes(), mode))?;
        }
        for (key, value) in binary.into_iter().flatten() {
            payload.add(key, file(&value.0, mode))?;
        }
        return Ok(payload);
    }
    for item in items {
        let of_text = || text.and_then(|map| map.get(&item.key)).map(|value| value.as_bytes());
        let of_binary = || binary.and_then(|map| map.get(&item.key)).map(|value| value.0.as_slice());
        match of_text().or_else(of_binary) {
            Some(content) => payload.add(&item.path, file(content, mode_or(item.mode, mode)))?,
            None if optional => {}
            None => {
                let text = format!("configmap references non-existent config key: {}", item.key);
                return Err(Failure::from(text).waiting());
            }
        }
    }
    Ok(payload)
}

//! A secret as files, which never touch a disk.

use crablet_apiserver::ObjectError;
use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;

use super::{Request, default_mode, files, layout_name, mode_or};
use crate::failure::Failure;
use crate::payload::{Payload, PayloadFile};
use crate::plugins::empty_dir::Medium;

pub async fn set_up(
    request: &Request<'_>,
    source: &api::SecretVolumeSource,
) -> Result<MountedVolume, Failure> {
    let optional = source.optional.unwrap_or(false);
    let mode = default_mode(source.default_mode)?;
    let items = source.items.as_deref().unwrap_or_default();
    let name = source.secret_name.as_deref().unwrap_or_default();
    let payload = fetch(request, name, items, mode, optional).await?;
    Ok(files::show(request, layout_name::SECRET, Medium::Memory, payload).await?)
}

/// The files of a secret. An optional one that does not exist has none.
pub async fn fetch(
    request: &Request<'_>,
    name: &str,
    items: &[api::KeyToPath],
    mode: u32,
    optional: bool,
) -> Result<Payload, Failure> {
    let found = match request.ctx.objects.secret(request.namespace(), name).await {
        Err(ObjectError::NotFound(_)) if optional => None,
        answer => Some(answer?),
    };
    let data = found.as_ref().and_then(|secret| secret.data.as_ref());
    let mut payload = Payload::default();
    let file = |content: &[u8], mode| PayloadFile { content: content.to_vec(), mode, owner: None };
    if items.is_empty() {
        for (key, value) in data.into_iter().flatten() {
            payload.add(key, file(&value.0, mode))?;
        }
        return Ok(payload);
    }
    for item in items {
        match data.and_then(|data| data.get(&item.key)) {
            Some(value) => payload.add(&item.path, file(&value.0, mode_or(item.mode, mode)))?,
            None if optional => {}
            None => {
                let text = format!("references non-existent secret key: {}", item.key);
                return Err(Failure::from(text).waiting());
            }
        }
    }
    Ok(payload)
}

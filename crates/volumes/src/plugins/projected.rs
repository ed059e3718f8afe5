//! Several sources in one folder of files.

use crablet_apiserver::TokenWanted;
use crablet_model::api;
use jiff::Timestamp;

use super::{
    Ready, Request, config_map, default_mode, downward_api, files, joined, layout_name, secret, trust,
};
use crate::certificates::CertificateWanted;
use crate::failure::Failure;
use crate::payload::{Payload, PayloadFile};
use crate::plugins::empty_dir::Medium;

/// What the API server puts where a manifest says nothing.
const TOKEN_SECONDS: i64 = 3600;

pub async fn set_up(request: &Request<'_>, source: &api::ProjectedVolumeSource) -> Result<Ready, Failure> {
    let mode = default_mode(source.default_mode)?;
    let mut payload = Payload::default();
    let mut failures = Vec::new();
    let mut refresh_at: Option<Timestamp> = None;
    for (index, source) in source.sources.iter().flatten().enumerate() {
        match project(request, index, source, mode).await {
            Ok((files, refresh)) => {
                // Later sources win.
                payload.add_all(files);
                refresh_at = [refresh_at, refresh].into_iter().flatten().min();
            }
            Err(failure) => failures.push(failure),
        }
    }
    if !failures.is_empty() {
        let waits = failures.iter().all(|failure| failure.waits);
        let text = joined(failures.into_iter().map(|failure| failure.text).collect());
        return Err(Failure { waits, ..Failure::from(text) });
    }
    let mounted = files::show(request, layout_name::PROJECTED, Medium::Memory, payload).await?;
    Ok(Ready { mounted, refresh_at, disk_name: None })
}

async fn project(
    request: &Request<'_>,
    index: usize,
    source: &api::VolumeProjection,
    mode: u32,
) -> Result<(Payload, Option<Timestamp>), Failure> {
    if let Some(source) = &source.secret {
        let items = source.items.as_deref().unwrap_or_default();
        let optional = source.optional.unwrap_or(false);
        return secret::fetch(request, &source.name, items, mode, optional).await.map(|files| (files, None));
    }
    if let Some(source) = &source.config_map {
        let items = source.items.as_deref().unwrap_or_default();
        let optional = source.optional.unwrap_or(false);
        return config_map::fetch(request, &source.name, items, mode, optional)
            .await
            .map(|files| (files, None));
    }
    if let Some(source) = &source.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return Ok((downward_api::collect(request, items, mode)?, None));
    }
    if let Some(source) = &source.service_account_token {
        return token(request, source, mode).await;
    }
    if let Some(source) = &source.cluster_trust_bundle {
        return trust::project(request, source, mode).await;
    }
    if let Some(source) = &source.pod_certificate {
        return Ok((certificate(request, index, source, mode)?, None));
    }
    Ok((Payload::default(), None))
}

async fn token(
    request: &Request<'_>,
    source: &api::ServiceAccountTokenProjection,
    mode: u32,
) -> Result<(Payload, Option<Timestamp>), Failure> {
    let wanted = TokenWanted {
        pod: request.id.clone(),
        service_account: request.spec.service_account_name.clone().unwrap_or_default(),
        audiences: source.audience.iter().filter(|audience| !audience.is_empty()).cloned().collect(),
        expiration_seconds: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
    };
    let token = request.ctx.objects.token(&wanted).await?;
    let mut payload = Payload::default();
    payload.add(&source.path, private(request, token.text.into_bytes(), mode))?;
    Ok((payload, Some(token.refresh_at)))
}

/// Key and certificates in one file, in one each, or both. They change together, as all files of a volume do.
fn certificate(
    request: &Request<'_>,
    index: usize,
    source: &api::PodCertificateProjection,
    mode: u32,
) -> Result<Payload, Failure> {
    let Some(certificates) = &request.ctx.certificates else {
        // Upstream's word where the gate is off or there is no API server.
        return Err("unimplemented".to_owned().into());
    };
    let wanted = CertificateWanted {
        pod: request.id,
        service_account: request.spec.service_account_name.as_deref().unwrap_or_default(),
        volume: request.name(),
        source: index,
        projection: source,
    };
    let credentials = certificates
        .credentials(&wanted)
        .map_err(|lacking| Failure { waits: !lacking.for_good, ..Failure::from(lacking.text) })?;
    let (key, chain) = (credentials.key.as_bytes(), credentials.chain.as_bytes());
    let mut payload = Payload::default();
    for (path, content) in [
        (&source.credential_bundle_path, [key, chain].concat()),
        (&source.key_path, key.to_vec()),
        (&source.certificate_chain_path, chain.to_vec()),
    ] {
        if let Some(path) = path.as_deref().filter(|path| !path.is_empty()) {
            payload.add(path, private(request, content, mode))?;
        }
    }
    Ok(payload)
}

/// Only the one who runs may read it; the pass over the group's files makes it 0640 where there is a group.
fn private(request: &Request<'_>, content: Vec<u8>, mode: u32) -> PayloadFile {
    let owners = request.owners;
    let mode = if owners.user.is_some() || owners.group.is_some() { 0o600 } else { mode };
    PayloadFile { content, mode, owner: owners.user }
}

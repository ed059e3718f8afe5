//! What a driver is told of the pod that wants a volume, if its CSIDriver asks for it.

use std::collections::BTreeMap;

use crablet_apiserver::TokenWanted;
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use serde_json::json;

use super::Csi;
use super::data::Lifecycle;
use super::request::Wish;

const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
/// What the API server takes where the CSIDriver says nothing.
const TOKEN_LIFE: i64 = 3600;

/// No `Debug`: it has tokens.
#[derive(Default)]
pub(super) struct Told {
    pub attributes: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    /// When a token among it has to be renewed.
    pub refresh_at: Option<Timestamp>,
}

/// Name, namespace and the like, for drivers with `podInfoOnMount`.
pub(super) fn pod_info(spec: Option<&CSIDriverSpec>, wish: &Wish) -> BTreeMap<String, String> {
    if spec.and_then(|spec| spec.pod_info_on_mount) != Some(true) {
        return BTreeMap::new();
    }
    let ephemeral = wish.volume.lifecycle == Lifecycle::Ephemeral;
    let info = [
        ("pod.name", wish.id.name.to_string()),
        ("pod.namespace", wish.id.namespace.to_string()),
        ("pod.uid", wish.id.uid.as_str().to_owned()),
        ("serviceAccount.name", wish.service_account.clone()),
        ("ephemeral", ephemeral.to_string()),
    ];
    info.into_iter().map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).collect()
}

/// Tokens of the pod's service account, for drivers with `tokenRequests`.
pub(super) async fn tokens(csi: &Csi, spec: Option<&CSIDriverSpec>, wish: &Wish) -> Result<Told, String> {
    let mut told = Told::default();
    let Some((spec, requests)) = spec.and_then(|spec| Some((spec, spec.token_requests.as_ref()?))) else {
        return Ok(told);
    };
    if requests.is_empty() {
        return Ok(told);
    }
    let mut by_audience = serde_json::Map::new();
    for request in requests {
        let wanted = TokenWanted {
            pod: wish.id.clone(),
            service_account: wish.service_account.clone(),
            audiences: Some(request.audience.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
            expiration_seconds: request.expiration_seconds.unwrap_or(TOKEN_LIFE),
        };
        let token = csi.tokens.token(&wanted).await.map_err(|error| error.to_string())?;
        told.refresh_at = [told.refresh_at, Some(token.refresh_at)].into_iter().flatten().min();
        let expires = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        by_audience
            .insert(request.audience.clone(), json!({ "token": token.text, "expirationTimestamp": expires }));
    }
    let all = (TOKENS.to_owned(), serde_json::Value::Object(by_audience).to_string());
    match spec.service_account_token_in_secrets == Some(true) {
        true => told.secrets.extend([all]),
        false => told.attributes.extend([all]),
    }
    Ok(told)
}

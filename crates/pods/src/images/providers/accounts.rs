//! What a program is told of a pod's service account: a token that is bound to the pod, and some of its annotations.

use std::collections::BTreeMap;

use async_trait::async_trait;
use crablet_apiserver::{Objects, TokenWanted};
use crablet_model::PodRef;

use super::config::Tokens;
use crate::images::keyring::{Coordinates, sha256_hex};

/// The API's own default for the life of a token.
const TOKEN_SECONDS: i64 = 3600;

/// A service account, as far as programs are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountView {
    pub uid: String,
    pub annotations: BTreeMap<String, String>,
}

#[async_trait]
pub trait ServiceAccounts: Send + Sync + 'static {
    /// An error is for people.
    async fn get(&self, namespace: &str, name: &str) -> Result<AccountView, String>;
}

/// What one run of a program is told.
pub(super) struct Account {
    pub coordinates: Coordinates,
    /// Never printed.
    pub token: String,
    pub annotations: BTreeMap<String, String>,
    pub per_token: bool,
    /// For whom an answer holds.
    pub key: String,
    /// Who asks the same.
    pub asked: String,
}

impl Account {
    /// `None` where the account lacks an annotation without which the program is not asked.
    pub async fn of(
        tokens: &Tokens,
        accounts: &dyn ServiceAccounts,
        objects: &dyn Objects,
        pod: &PodRef,
        name: &str,
    ) -> Result<Option<Self>, String> {
        let namespace = pod.namespace.to_string();
        let view = accounts
            .get(&namespace, name)
            .await
            .map_err(|error| format!("failed to get service account {namespace}/{name}: {error}"))?;
        let mut annotations = BTreeMap::new();
        for key in &tokens.required_annotations {
            let Some(value) = view.annotations.get(key) else {
                tracing::debug!(
                    pod = pod.object_ref(),
                    annotation = key,
                    serviceAccount = name,
                    "a credential provider is not asked: the service account lacks an annotation"
                );
                return Ok(None);
            };
            annotations.insert(key.clone(), value.clone());
        }
        for key in &tokens.optional_annotations {
            if let Some(value) = view.annotations.get(key) {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let wanted = TokenWanted {
            pod: pod.clone(),
            service_account: name.to_owned(),
            audiences: vec![tokens.audience.clone()],
            expiration_seconds: TOKEN_SECONDS,
        };
        let token = objects
            .token(&wanted)
            .await
            .map_err(|error| format!("failed to get service account token: {error}"))?
            .text;
        let noted = annotations.iter().map(|(key, value)| format!("\0{key}\0{value}")).collect::<String>();
        let hash = sha256_hex(&token);
        let of_token = if tokens.per_token { hash.as_str() } else { "" };
        Ok(Some(Self {
            key: format!("{namespace}\0{name}\0{}{noted}\0{of_token}", view.uid),
            asked: format!("{hash}{noted}"),
            coordinates: Coordinates { namespace, name: name.to_owned(), uid: view.uid },
            token,
            annotations,
            per_token: tokens.per_token,
        }))
    }
}

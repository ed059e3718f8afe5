//! `PodCertificateRequest`, as far as the node writes and reads it.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_apiserver::{ApiError, ApiServer, Call, Lane, Reflection, Verb};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;

use super::Wanted;
use super::keys::{self, KeyError};
use crate::pair::encode;

const GROUP: &str = "/apis/certificates.k8s.io/v1beta1";

/// Namespace and name of a request.
pub(super) type Name = (String, String);

/// In upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("while fetching service account: {0}")]
    Account(ApiError),
    #[error("while getting node object: {0}")]
    Node(ApiError),
    #[error("while generating keypair: {0}")]
    Key(#[from] KeyError),
    #[error("while generating keypair: it was given up")]
    GivenUp,
    #[error("while creating on API: {0}")]
    Create(ApiError),
    #[error("cannot understand the API server's answer: {0}")]
    Answer(&'static str),
}

/// A request that the API server has, with the key that it is for. Has no `Debug`.
pub(super) struct Asked {
    pub name: Name,
    pub key: Arc<str>,
    pub created: Timestamp,
}

/// What has become of a request.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Pending,
    Issued {
        chain: Arc<str>,
        refresh_at: Timestamp,
        not_after: Timestamp,
    },
    /// `Denied` or `Failed`.
    Over {
        verdict: &'static str,
        reason: String,
        message: String,
    },
}

pub(super) fn reflection(node: &str) -> Reflection {
    Reflection {
        path: format!("{GROUP}/podcertificaterequests"),
        selector: Some(format!("spec.nodeName={node}")),
        lane: Lane::Main,
        timeout: (300, 600),
    }
}

/// Makes a key and asks for a certificate for it.
pub(super) async fn ask(
    api: Arc<dyn ApiServer>,
    node: String,
    wanted: Arc<Wanted>,
) -> Result<Asked, AskError> {
    let pod = &wanted.pod;
    let account = format!("/api/v1/namespaces/{}/serviceaccounts/{}", pod.namespace, wanted.service_account);
    let account = uid_of(&*api, account).await.map_err(AskError::Account)?;
    let node_uid = uid_of(&*api, format!("/api/v1/nodes/{node}")).await.map_err(AskError::Node)?;
    let kind = wanted.key_type.clone();
    // Keys of RSA keep a thread busy for seconds.
    let made = tokio::task::spawn_blocking(move || keys::generate(&kind)).await;
    let key = made.map_err(|_| AskError::GivenUp)??;
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": &*pod.namespace,
            "generateName": "req-",
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": &*pod.name, "uid": pod.uid.as_str() },
            ],
        },
        "spec": {
            "signerName": wanted.signer,
            "podName": &*pod.name,
            "podUID": pod.uid.as_str(),
            "serviceAccountName": wanted.service_account,
            "serviceAccountUID": account,
            "nodeName": node,
            "nodeUID": node_uid,
            "maxExpirationSeconds": wanted.max_expiration_seconds,
            "stubPKCS10Request": BASE64_STANDARD.encode(&key.stub),
            "unverifiedUserAnnotations": wanted.annotations,
        },
    });
    let path = format!("{GROUP}/namespaces/{}/podcertificaterequests", pod.namespace);
    let call = Call::new(Verb::Post, Lane::Main, path).with_body(body.to_string());
    let answer = api.call(call).await.map_err(AskError::Create)?;
    let answer: Object = serde_json::from_slice(&answer).map_err(|_| AskError::Answer("it is no request"))?;
    let created = answer.metadata.creation_timestamp.ok_or(AskError::Answer("it has no creation time"))?;
    let name = (pod.namespace.to_string(), answer.metadata.name);
    Ok(Asked { name, key: key.pem.into(), created })
}

async fn uid_of(api: &dyn ApiServer, path: String) -> Result<String, ApiError> {
    let answer = api.call(Call::get(Lane::Main, path)).await?;
    let object: Object = serde_json::from_slice(&answer).unwrap_or_default();
    Ok(object.metadata.uid)
}

/// The name of a request that the watch shows, and what has become of it. `None` of what cannot be read.
pub(super) fn read(object: &[u8]) -> Option<(Name, Outcome)> {
    let Object { metadata, status } = serde_json::from_slice(object).ok()?;
    let mut outcome = Outcome::Pending;
    for condition in status.conditions {
        let verdict = match condition.r#type.as_str() {
            "Issued" => {
                let (refresh_at, not_after) = (status.begin_refresh_at?, status.not_after?);
                let chain = cleaned(&status.certificate_chain).into();
                outcome = Outcome::Issued { chain, refresh_at, not_after };
                break;
            }
            "Denied" => "Denied",
            "Failed" => "Failed",
            _ => continue,
        };
        outcome = Outcome::Over { verdict, reason: condition.reason, message: condition.message };
        break;
    }
    Some(((metadata.namespace, metadata.name), outcome))
}

/// Certificates and nothing around them.
fn cleaned(chain: &str) -> String {
    let certificates = CertificateDer::pem_slice_iter(chain.as_bytes());
    certificates.map_while(Result::ok).map(|certificate| encode("CERTIFICATE", &certificate)).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    creation_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Vec<Condition>,
    certificate_chain: String,
    begin_refresh_at: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    reason: String,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_certificates_is_left_out() {
        let block = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";
        assert_eq!(cleaned(&format!("a remark\n{block}\nanother\n{block}")), format!("{block}{block}"));
        assert_eq!(cleaned("nothing"), "");
    }
}

//! A certificate signing request at the API server: made, found again, waited for.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_apiserver::{ApiError, ApiServer, Call, Change, Lane, Verb, WatchCall};
use futures_util::StreamExt;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::names::{GROUP, Names};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// How long a request is waited for before it is made anew, as upstream does.
pub(crate) const WAIT: Duration = Duration::from_secs(15 * 60);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(16);

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("unable to generate a certificate request: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("cannot create certificate signing request: {0}")]
    Create(ApiError),
    #[error("cannot retrieve certificate signing request: {0}")]
    Retrieve(ApiError),
    #[error("retrieved csr is not compatible: {0}")]
    Incompatible(String),
    #[error(
        "cannot watch on the certificate signing request: certificate signing request is denied, reason: {reason}, message: {message}"
    )]
    Denied { reason: String, message: String },
    #[error(
        "cannot watch on the certificate signing request: certificate signing request failed, reason: {reason}, message: {message}"
    )]
    Failed { reason: String, message: String },
    #[error("cannot watch on the certificate signing request: csr {0:?} was deleted")]
    Deleted(String),
    #[error("cannot watch on the certificate signing request: csr {0:?} changed UIDs")]
    Replaced(String),
    #[error(
        "timed out waiting for certificate signing request {0:?} to be signed; `kubectl get csr` shows it"
    )]
    TimedOut(String),
    #[error("cannot understand the API server's answer: {0}")]
    Answer(String),
}

/// Who signs, and what the certificate is for.
#[derive(Clone, Copy)]
pub(crate) struct Signer {
    pub name: &'static str,
    /// In upstream's order; keys are never RSA, so that "key encipherment" is not among them.
    pub usages: [&'static str; 2],
}

pub(crate) const CLIENT: Signer = Signer {
    name: "kubernetes.io/kube-apiserver-client-kubelet",
    usages: ["digital signature", "client auth"],
};
pub(crate) const SERVING: Signer =
    Signer { name: "kubernetes.io/kubelet-serving", usages: ["digital signature", "server auth"] };

/// A request that the API server has.
pub(crate) struct Ticket {
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Csr {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    request: String,
    signer_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    certificate: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    metadata: Metadata,
    items: Vec<Csr>,
}

/// Makes a request. With a `name`, one that is there already is taken over if it is for the same key and names;
/// without one, the server gives it a name.
pub(crate) async fn create(
    api: &Arc<dyn ApiServer>,
    signer: Signer,
    names: &Names,
    key: &KeyPair,
    name: Option<&str>,
) -> Result<Ticket, RequestError> {
    let metadata = match name {
        Some(name) => json!({ "name": name }),
        None => json!({ "generateName": "csr-" }),
    };
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": {
            "request": BASE64_STANDARD.encode(names.request(key)?),
            "signerName": signer.name,
            "usages": signer.usages,
        },
    });
    let call = Call::new(Verb::Post, Lane::Main, PATH).with_body(body.to_string());
    match (api.call(call).await, name) {
        (Ok(answer), _) => {
            let csr: Csr = decode(&answer)?;
            info!(csr = csr.metadata.name, "Certificate signing request created");
            Ok(Ticket { name: csr.metadata.name, uid: csr.metadata.uid })
        }
        (Err(error), Some(name)) if error.kind == crablet_apiserver::ErrorKind::AlreadyExists => {
            let call = Call::get(Lane::Main, format!("{PATH}/{name}"));
            let csr: Csr = decode(&api.call(call).await.map_err(RequestError::Retrieve)?)?;
            compatible(&csr, signer, names, key).map_err(RequestError::Incompatible)?;
            info!(csr = name, "Certificate signing request for this node already exists, reusing it");
            Ok(Ticket { name: csr.metadata.name, uid: csr.metadata.uid })
        }
        (Err(error), _) => Err(RequestError::Create(error)),
    }
}

/// Whether a request that was found is as good as one that would be made now.
fn compatible(csr: &Csr, signer: Signer, names: &Names, key: &KeyPair) -> Result<(), String> {
    if csr.spec.signer_name != signer.name {
        return Err(format!(
            "csr signerNames differ: new {:?}, orig: {:?}",
            csr.spec.signer_name, signer.name
        ));
    }
    let unreadable = || "unable to parse new csr".to_owned();
    let pem = BASE64_STANDARD.decode(&csr.spec.request).map_err(|_| unreadable())?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).map_err(|_| unreadable())?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|_| unreadable())?;
    let info = &request.certification_request_info;
    let common_name = info.subject.iter_common_name().next().and_then(|name| name.as_str().ok());
    let organization = info.subject.iter_organization().next().and_then(|name| name.as_str().ok());
    if common_name != Some(names.common_name.as_str()) || organization != Some(GROUP) {
        return Err(format!(
            "csr subjects differ: new: {}, orig: O={GROUP}, CN={}",
            info.subject, names.common_name
        ));
    }
    if info.subject_pki.raw != key.subject_public_key_info() {
        return Err("error validating signature new CSR against old key: it is for another key".to_owned());
    }
    Ok(())
}

/// Waits until the request is signed, at most [`WAIT`]. Gives the certificates as PEM.
pub(crate) async fn wait(api: &Arc<dyn ApiServer>, ticket: &Ticket) -> Result<Vec<u8>, RequestError> {
    match timeout(WAIT, follow(api, ticket)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RequestError::TimedOut(ticket.name.clone())),
    }
}

async fn follow(api: &Arc<dyn ApiServer>, ticket: &Ticket) -> Result<Vec<u8>, RequestError> {
    let query = format!("{PATH}?fieldSelector=metadata.name%3D{}", ticket.name);
    let mut pause = FIRST_RETRY;
    loop {
        match api.call(Call::get(Lane::Main, query.clone())).await {
            Ok(answer) => {
                let list: List = decode(&answer)?;
                // The request was made before: a list without it says that it is gone.
                let csr = list.items.into_iter().find(|csr| csr.metadata.name == ticket.name);
                let csr = csr.ok_or_else(|| RequestError::Deleted(ticket.name.clone()))?;
                if let Some(certificates) = judge(&csr, ticket)? {
                    return Ok(certificates);
                }
                pause = FIRST_RETRY;
                let path = format!("{query}&resourceVersion={}", list.metadata.resource_version);
                if let Some(certificates) = observe(api, path, ticket).await? {
                    return Ok(certificates);
                }
            }
            Err(error) => debug!(csr = ticket.name, %error, "Error fetching certificate signing request"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// Watches until the watch ends, which it may do at any time; `None` then.
async fn observe(
    api: &Arc<dyn ApiServer>,
    path: String,
    ticket: &Ticket,
) -> Result<Option<Vec<u8>>, RequestError> {
    let mut events = match api.watch(WatchCall { path, lane: Lane::Objects }).await {
        Ok(events) => events,
        Err(error) => {
            debug!(csr = ticket.name, %error, "Error watching certificate signing request");
            return Ok(None);
        }
    };
    while let Some(event) = events.next().await {
        let Ok(event) = event else { return Ok(None) };
        if event.change == Change::Bookmark {
            continue;
        }
        let csr: Csr = decode(&event.object)?;
        if csr.metadata.name != ticket.name {
            continue;
        }
        if event.change == Change::Deleted {
            return Err(RequestError::Deleted(ticket.name.clone()));
        }
        if let Some(certificates) = judge(&csr, ticket)? {
            return Ok(Some(certificates));
        }
    }
    Ok(None)
}

/// The certificates if they are there, an error if they will never be.
fn judge(csr: &Csr, ticket: &Ticket) -> Result<Option<Vec<u8>>, RequestError> {
    if csr.metadata.uid != ticket.uid {
        return Err(RequestError::Replaced(ticket.name.clone()));
    }
    let mut approved = false;
    for Condition { r#type, reason, message } in &csr.status.conditions {
        let (reason, message) = (reason.clone(), message.clone());
        match r#type.as_str() {
            "Denied" => return Err(RequestError::Denied { reason, message }),
            "Failed" => return Err(RequestError::Failed { reason, message }),
            "Approved" => approved = true,
            _ => {}
        }
    }
    match csr.status.certificate.as_deref() {
        Some(certificate) if approved && !certificate.is_empty() => {
            info!(csr = ticket.name, "Certificate signing request is issued");
            let pem = BASE64_STANDARD
                .decode(certificate)
                .map_err(|error| RequestError::Answer(format!("status.certificate: {error}")))?;
            Ok(Some(pem))
        }
        _ => Ok(None),
    }
}

fn decode<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, RequestError> {
    serde_json::from_slice(answer).map_err(|error| RequestError::Answer(error.to_string()))
}

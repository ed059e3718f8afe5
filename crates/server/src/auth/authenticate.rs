//! Who asks: the client certificate tells, or a bearer token, or nobody does.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use crablet_host::Clock;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::client_ca::ClientCa;
use super::memo::Unanswered;
use super::tokens::Tokens;
use super::{UNAUTHENTICATED, with_authenticated_group};
use crate::kubelet::Peer;
use crate::ports::UserInfo;

const ANONYMOUS: &str = "system:anonymous";
/// Under which the cluster is told which certificate it was.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The attribute of a certificate's subject that holds a user's UID.
const UID_OID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// A request's author.
pub(crate) struct Who {
    pub user: Arc<UserInfo>,
    pub anonymous: bool,
}

pub(crate) struct Authenticator {
    pub clock: Arc<dyn Clock>,
    pub client_ca: Option<ClientCa>,
    pub tokens: Option<Tokens>,
    pub anonymous: bool,
}

impl Authenticator {
    /// `None`: no credentials, or none that say who it is. `Err`: credentials that are not good, which is never anonymous.
    pub async fn identify(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Result<Option<Who>, Unanswered> {
        let certificate = self.by_certificate(peer);
        if let Ok(Some(user)) = certificate {
            return Ok(Some(known(user)));
        }
        let token = match &self.tokens {
            Some(tokens) => tokens.identify(headers).await,
            None => Ok(None),
        };
        match (token, certificate) {
            (Ok(Some(user)), _) => Ok(Some(Who { user, anonymous: false })),
            (Err(why), _) => Err(why),
            (_, Err(why)) => Err(Unanswered::Failed(why)),
            _ if self.anonymous => Ok(Some(Who { user: Arc::new(nobody()), anonymous: true })),
            _ => Ok(None),
        }
    }

    fn by_certificate(&self, peer: Option<&Peer>) -> Result<Option<UserInfo>, String> {
        let (Some(ca), Some((leaf, intermediates))) =
            (&self.client_ca, peer.and_then(|peer| peer.certificates().split_first()))
        else {
            return Ok(None);
        };
        let now = Duration::from_secs(u64::try_from(self.clock.now().as_second()).unwrap_or_default());
        ca.verifier()
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(now))
            .map_err(|error| format!("verifying a client certificate failed: {error}"))?;
        user_of(leaf)
    }
}

fn known(user: UserInfo) -> Who {
    Who { user: Arc::new(with_authenticated_group(user)), anonymous: false }
}

fn nobody() -> UserInfo {
    let groups = vec![UNAUTHENTICATED.to_owned()];
    UserInfo { name: ANONYMOUS.to_owned(), groups, ..UserInfo::default() }
}

/// The user that a certificate is for. `None`: it names nobody.
fn user_of(leaf: &CertificateDer<'_>) -> Result<Option<UserInfo>, String> {
    let (_, certificate) = X509Certificate::from_der(leaf)
        .map_err(|error| format!("cannot read a client certificate: {error}"))?;
    let subject = certificate.subject();
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    // Go takes the last one of several names.
    let Some(name) = subject.iter_common_name().last().and_then(text).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let uids: Vec<_> = subject.iter_by_oid(&UID_OID).map(text).collect();
    let uid = match &uids[..] {
        [] => String::new(),
        [Some(uid)] if !uid.is_empty() => uid.clone(),
        _ => return Err("a client certificate must have one UID that is not empty, or none".to_owned()),
    };
    let fingerprint: String =
        digest(&SHA256, leaf).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(UserInfo {
        name,
        uid,
        groups: subject.iter_organization().filter_map(text).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])].into(),
    }))
}

//! Who asks: the client certificate tells, or a bearer token, or nobody does.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use crablet_host::Clock;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::sync::Semaphore;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authorize::REVIEWS_AT_A_TIME;
use super::client_ca::ClientCa;
use super::memo::Memo;
use crate::kubelet::Peer;
use crate::ports::{Reviews, UserInfo};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
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

/// Bearer tokens, as the cluster knows them.
pub(crate) struct Tokens {
    reviews: Arc<dyn Reviews>,
    users: Memo<Option<Arc<UserInfo>>>,
    remembered_for: Duration,
    turns: Semaphore,
}

impl Authenticator {
    /// `None`: no credentials, or none that say who it is. `Err`: credentials that are not good, which is never anonymous.
    pub async fn identify(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<Option<Who>, String> {
        let certificate = self.by_certificate(peer);
        if let Ok(Some(user)) = certificate {
            return Ok(Some(known(user)));
        }
        let token = match (&self.tokens, bearer_token(headers)) {
            (Some(tokens), Some(token)) => tokens.user(token).await.map(Some),
            _ => Ok(None),
        };
        match (token, certificate) {
            (Ok(Some(user)), _) => Ok(Some(Who { user, anonymous: false })),
            (Err(why), _) | (_, Err(why)) => Err(why),
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

/// Unless a group of that kind is there already.
fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    if !user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
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

/// The token of the `Authorization` header. Anything but `Bearer` is none of ours.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

impl Tokens {
    pub fn new(reviews: Arc<dyn Reviews>, remembered_for: Duration) -> Result<Self, String> {
        let (users, turns) = (Memo::new()?, Semaphore::new(REVIEWS_AT_A_TIME));
        Ok(Self { reviews, users, remembered_for, turns })
    }

    async fn user(&self, token: &str) -> Result<Arc<UserInfo>, String> {
        let key = self.users.key(token.as_bytes());
        if let Some(user) = self.users.get(&key) {
            return user.ok_or_else(invalid_token);
        }
        let _turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        // Somebody may have asked the same while this one waited.
        if let Some(user) = self.users.get(&key) {
            return user.ok_or_else(invalid_token);
        }
        let user = self.reviews.token_review(token).await?.map(with_authenticated_group).map(Arc::new);
        self.users.put(key, user.clone(), self.remembered_for);
        user.ok_or_else(invalid_token)
    }
}

fn invalid_token() -> String {
    "invalid bearer token".to_owned()
}

//! Words of a node in a cluster.

use std::path::PathBuf;
use std::time::Duration;

/// What keeps pods away that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    /// May be empty.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

/// The least version to serve with. Older ones are not spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// How it is found out who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// Who signs the certificates of clients. `None`: certificates are not looked at.
    pub client_ca_file: Option<PathBuf>,
    /// Requests without credentials are anonymous instead of refused.
    pub anonymous: bool,
    /// Ask the API server who a bearer token is.
    pub webhook: bool,
    pub webhook_cache_ttl: Duration,
}

/// How it is decided who may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// Ask the API server. Else everyone may who is known.
    pub webhook: bool,
    /// How long a "yes" is remembered.
    pub allow_ttl: Duration,
    /// How long a "no" is remembered.
    pub deny_ttl: Duration,
}

/// How changes of config maps and secrets are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// A watch for each object in use.
    Watch,
    /// Asked for again when what is known has grown old.
    Cache,
    /// Asked for each time.
    Get,
}

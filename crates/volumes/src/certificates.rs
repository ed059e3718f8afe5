//! The port to those who get certificates for pods.

use std::fmt;
use std::sync::Arc;

use crablet_model::{PodRef, PodUid, api};
use tokio::sync::broadcast;

/// The certificate that a source of a projected volume wants.
pub struct CertificateWanted<'a> {
    pub pod: &'a PodRef,
    pub service_account: &'a str,
    pub volume: &'a str,
    /// Which source of the volume, from 0.
    pub source: usize,
    pub projection: &'a api::PodCertificateProjection,
}

/// A key and the certificates for it, as PEM. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub key: Arc<str>,
    pub chain: Arc<str>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Why there is none, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCertificate {
    pub text: String,
    /// Waiting is useless.
    pub for_good: bool,
}

pub trait PodCertificates: Send + Sync + 'static {
    /// What the source shows now. Asking for it begins it.
    fn credentials(&self, wanted: &CertificateWanted<'_>) -> Result<Credentials, NoCertificate>;

    /// The pod's volumes are gone, and its keys with them.
    fn forget(&self, pod: &PodUid);

    /// Tells of pods whose certificates have changed. A receiver that lags behind has to look at all.
    fn changes(&self) -> broadcast::Receiver<PodUid>;
}

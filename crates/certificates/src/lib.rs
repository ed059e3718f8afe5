//! The certificates of a node: the one it shows to the API server, the one it serves with, and those of its pods.
//!
//! | module | what it is |
//! |---|---|
//! | [`bootstrap`] | from a token to a first client certificate and a kubeconfig that names it |
//! | [`rotation`] | [`ClientRotation`]: a new client certificate before the old one ends |
//! | [`serving`] | [`Serving`]: what the server shows, from files, from the cluster's signer, or signed by itself |
//! | [`pods`] | [`PodCertificates`](pods::PodCertificates): keys and certificates that pods find in their volumes |
//! | [`store`] | [`Store`]: upstream's files, `kubelet-client-current.pem` and those it has pointed to |
//! | `pair` | a certificate with its key: reading, and what the certificate says |
//! | `names` | whom a certificate is for, and whether one that is there suffices |
//! | `request` | a certificate signing request: made, sent, waited for |
//! | `manager` | the loop that keeps one certificate fresh, for clients and servers alike |
//! | `expiry` | noticing that the client certificate is over and nothing will mend it |
//!
//! Keys are made by the system's own source of randomness, never from a seed.

pub mod bootstrap;
mod expiry;
mod manager;
mod names;
mod pair;
pub mod pods;
mod request;
pub mod rotation;
pub mod serving;
pub mod store;

pub use bootstrap::{Bootstrap, BootstrapError, Cluster};
pub use manager::CertificateState;
pub use pair::PairError;
pub use request::RequestError;
pub use rotation::{ClientRotation, ClientSetup};
pub use serving::{Serving, ServingError, Source};
pub use store::{Store, StoreError};

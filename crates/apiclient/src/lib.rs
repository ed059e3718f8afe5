//! The real connection to the API server: HTTP/2 over TLS, as a kubeconfig describes it.
//!
//! | module | what it is |
//! |---|---|
//! | [`kubeconfig`] | the file: where the server is, whom to trust, who we are |
//! | `credentials` | what is said in the `Authorization` header: tokens, passwords, plugins |
//! | `tls` | rustls with ring; the client certificate can be changed while the agent runs |
//! | `transport` | dialling, connections, and a pool of them for each lane |
//! | `limit` | token buckets: requests per second |
//! | `request` | a call as HTTP, and failures in the words that Go's client uses |
//! | `watch` | a response that does not end, as a stream of events |
//! | `client` | [`ApiClient`]: all of it behind the port |
//!
//! Nothing is dialled before it is needed, and nothing is read from the environment.

mod client;
mod credentials;
pub mod kubeconfig;
mod limit;
mod request;
mod tls;
mod transport;
mod watch;

#[cfg(test)]
mod tests;

pub use client::{ApiClient, ClientSettings};
pub use kubeconfig::{Kubeconfig, KubeconfigError};
pub use tls::CertificateError;

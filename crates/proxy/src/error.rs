//! What can go wrong with a proxy itself. What goes wrong with a call is in its record.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on `{address}`")]
    Listen { address: String, source: io::Error },
    #[error("someone listens on `{}` already", path.display())]
    InUse { path: PathBuf },
    #[error("cannot write the record `{}`", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("cannot start the proxy's own threads")]
    Threads(#[source] io::Error),
    #[error("{what} is not usable: {why}")]
    Pem { what: &'static str, why: String },
    #[error("the {side} side's TLS settings do not fit together")]
    Tls { side: &'static str, source: rustls::Error },
    #[error("the certificate authority for clients is not usable")]
    ClientAuthority(#[source] rustls::server::VerifierBuilderError),
    #[error("`{0}` is not the address of an API server (`host:port`)")]
    Upstream(String),
    #[error("nothing like that within {within:?}: {what}")]
    Waited { what: String, within: Duration },
}

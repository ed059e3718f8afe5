//! What is said in the `Authorization` header.
//!
//! | module | what it is |
//! |---|---|
//! | `exec` | a program that knows the credentials: when it is run and what is kept |
//! | `plugin` | one run of it: what it is told and what it says |

mod exec;
mod plugin;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use tokio::time::Instant;

use exec::Exec;
pub use exec::Install;

use crate::kubeconfig::{Authorization, Kubeconfig, read_file};

/// How long what a file said is believed.
const REREAD: Duration = Duration::from_secs(60);

pub enum Credentials {
    Fixed(Option<HeaderValue>),
    File(TokenFile),
    Exec(Arc<Exec>),
}

impl Credentials {
    /// `install` takes the client certificates that a plugin gives.
    pub fn new(kubeconfig: &Kubeconfig, install: Install) -> Result<Self, String> {
        Ok(match &kubeconfig.user.authorization {
            Authorization::None => Self::Fixed(None),
            Authorization::Token(token) => Self::Fixed(Some(bearer(token)?)),
            Authorization::TokenFile(path, token) => Self::File(TokenFile {
                path: path.clone(),
                known: Mutex::new((token.as_deref().map(bearer).transpose()?, None)),
            }),
            Authorization::Basic { username, password } => {
                let text = format!("Basic {}", STANDARD.encode(format!("{username}:{password}")));
                Self::Fixed(Some(secret(&text)?))
            }
            Authorization::Exec(plugin) => {
                Self::Exec(Exec::new(plugin.as_ref().clone(), &kubeconfig.cluster, install))
            }
        })
    }

    /// The header as it should be now.
    pub async fn header(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Self::Fixed(header) => Ok(header.clone()),
            Self::File(file) => file.header().map(Some),
            Self::Exec(exec) => Exec::header(exec).await,
        }
    }

    /// The server did not accept `used`. Whether there may be something better by now.
    pub fn refused(&self, used: Option<&HeaderValue>) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::File(file) => {
                file.known.lock().unwrap_or_else(PoisonError::into_inner).1 = None;
                true
            }
            Self::Exec(exec) => {
                exec.refused(used);
                true
            }
        }
    }
}

/// A file with a token in it, which somebody replaces now and then.
pub struct TokenFile {
    path: PathBuf,
    /// With the time at which it was read.
    known: Mutex<(Option<HeaderValue>, Option<Instant>)>,
}

impl TokenFile {
    fn header(&self) -> Result<HeaderValue, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(header), Some(read)) = &*known
            && read.elapsed() < REREAD
        {
            return Ok(header.clone());
        }
        match self.read() {
            Ok(header) => {
                *known = (Some(header.clone()), Some(Instant::now()));
                Ok(header)
            }
            Err(why) => match &known.0 {
                Some(header) => {
                    tracing::warn!(error = why, "Unable to rotate token");
                    Ok(header.clone())
                }
                None => Err(why),
            },
        }
    }

    fn read(&self) -> Result<HeaderValue, String> {
        let place = self.path.display();
        let bytes =
            read_file(&self.path).map_err(|error| format!("failed to read token file {place}: {error}"))?;
        let token = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        if token.is_empty() {
            return Err(format!("read empty token from file {place}"));
        }
        bearer(token).map_err(|why| format!("token file {place}: {why}"))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {}", token.trim()))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::from_str(text)
        .map_err(|_| "the token or password has characters that a header cannot hold".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

//! A kubeconfig: what it holds and how it is read.
//!
//! | module | what it is |
//! |---|---|
//! | `fields` | taking fields out of a document, with their places in the errors |
//! | `read` | from the document to the context that is current |
//! | `parts` | what it is made of, for who writes another one |
//!
//! No message shows what the file holds: there are credentials in it.

mod fields;
mod parts;
mod read;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tls;

/// Far more than any kubeconfig, certificate or token has.
const MAX_BYTES: u64 = 16 << 20;

/// The current context of a kubeconfig. Paths in it are absolute, or relative to the working folder as the path of the
/// kubeconfig itself is.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    path: PathBuf,
    pub(crate) cluster: Cluster,
    pub(crate) user: User,
}

/// Why a kubeconfig cannot be used. Names the file and the field.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct KubeconfigError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    #[error("{0}")]
    Read(io::Error),
    /// A field and what is wrong with it, or something about the file as a whole.
    #[error("{0}")]
    Content(String),
}

/// How to reach the API server and how to know it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// As written; never empty.
    pub server: String,
    pub tls_server_name: Option<String>,
    pub insecure: bool,
    pub authority: Option<Material>,
    /// The extension that is meant for credential plugins.
    pub exec_extension: Option<Value>,
}

/// Who we are.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    pub certificate: Option<ClientCertificate>,
    pub authorization: Authorization,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientCertificate {
    pub certificate: Material,
    pub key: Material,
}

/// What goes into the header of that name. `Debug` hides the secrets.
#[derive(Clone, Default)]
pub(crate) enum Authorization {
    #[default]
    None,
    Token(String),
    /// With the token to be used while the file cannot be read.
    TokenFile(PathBuf, Option<String>),
    Basic {
        username: String,
        password: String,
    },
    Exec(Box<ExecPlugin>),
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token"),
            Self::TokenFile(path, _) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::Basic { username, .. } => {
                f.debug_struct("Basic").field("username", username).finish_non_exhaustive()
            }
            Self::Exec(plugin) => f.debug_tuple("Exec").field(&plugin.command).finish(),
        }
    }
}

/// A program that knows the credentials.
#[derive(Clone)]
pub(crate) struct ExecPlugin {
    pub api_version: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub install_hint: String,
    pub provide_cluster_info: bool,
}

/// PEM, in the kubeconfig or beside it.
#[derive(Clone)]
pub(crate) enum Material {
    Inline(Vec<u8>),
    File(PathBuf),
}

impl Material {
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Inline(bytes) => Ok(bytes.clone()),
            Self::File(path) => read_file(path),
        }
    }

    /// For messages: the file, or that it is in the kubeconfig.
    pub fn place(&self) -> String {
        match self {
            Self::Inline(_) => "in the kubeconfig".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    fn file(&self) -> Option<&Path> {
        match self {
            Self::Inline(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl Kubeconfig {
    pub fn load(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
        let fail = |why| KubeconfigError { path: path.to_owned(), why };
        let bytes = read_file(path).map_err(|error| fail(Why::Read(error)))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (cluster, user) = read::current_context(&bytes, folder).map_err(|why| fail(Why::Content(why)))?;
        Ok(Kubeconfig { path: path.to_owned(), cluster, user })
    }

    /// The file of the client certificate, if the user has one and it is in a file.
    pub fn client_certificate_file(&self) -> Option<&Path> {
        self.user.certificate.as_ref()?.certificate.file()
    }

    /// The client certificate in PEM as it is now, if the user has one.
    pub fn client_certificate(&self) -> Result<Option<Vec<u8>>, KubeconfigError> {
        let Some(pair) = &self.user.certificate else { return Ok(None) };
        let read = pair.certificate.read().map_err(|error| {
            self.error(format!("unable to read client-certificate {}: {error}", pair.certificate.place()))
        });
        read.map(Some)
    }

    /// Whether all that the kubeconfig refers to is there and can be used: the authority, the client certificate with its
    /// key, the token's file. Plugins are not run.
    pub fn check_credentials(&self) -> Result<(), KubeconfigError> {
        tls::check(self)?;
        if let Authorization::TokenFile(path, None) = &self.user.authorization {
            let token = read_file(path).map_err(|error| {
                self.error(format!("unable to read tokenFile {}: {error}", path.display()))
            })?;
            if token.trim_ascii().is_empty() {
                return Err(self.error(format!("tokenFile: {} is empty", path.display())));
            }
        }
        Ok(())
    }

    pub(crate) fn error(&self, why: String) -> KubeconfigError {
        KubeconfigError { path: self.path.clone(), why: Why::Content(why) }
    }
}

pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB"));
    }
    Ok(bytes)
}

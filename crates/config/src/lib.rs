//! What an operator may say, and what it means.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | the one table: flag, config field, default, doc, how a value is taken |
//! | [`flags`] | the command line's grammar, as upstream's parser reads it |
//! | [`file`] | the file behind `--config`: KubeletConfiguration v1beta1, strict |
//! | [`draft`] | values as they were said, each later source over the earlier one, then checked as a whole |
//! | [`settings`] | [`Settings`]: the result |
//! | [`upstream`] | names that upstream knows and this version does not support yet |
//! | [`help`] | `--help`, written from the table |
//! | [`error`] | messages for the person who typed |
//!
//! Precedence: defaults, then the file, then flags. Nothing here does I/O, and nothing is a global: the caller passes the
//! arguments, the hostname and a way to read one file.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub mod draft;
pub mod error;
pub mod explain;
pub mod file;
pub mod flags;
pub mod help;
pub mod settings;
pub mod table;
pub mod upstream;

pub use error::{Problem, UsageError};
pub use settings::{Headers, ImagePulls, Settings, local_socket};

/// The Kubernetes version whose behaviour this is, with Crablet's own as build metadata. Other programs parse it as a
/// semantic version.
pub const KUBERNETES_VERSION: &str = concat!("v1.36.4+crablet-", env!("CARGO_PKG_VERSION"));

/// What `--version` prints. kubeadm accepts `Kubernetes v<semver>` and nothing else.
pub const VERSION_LINE: &str = concat!("Kubernetes v1.36.4+crablet-", env!("CARGO_PKG_VERSION"), "\n");

/// What is known about the machine without being said.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The kernel's hostname; `--hostname-override` wins over it.
    pub hostname: String,
}

/// What the command line asks for. The texts are complete, with their last newline, and belong on stdout.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Run(Box<Settings>),
    Help(String),
    Version(String),
    /// Why is this pod the way it is? Asked of the agent that runs in `root_dir`.
    Explain {
        namespace: String,
        pod: String,
        root_dir: PathBuf,
    },
}

/// `args` are those after the program's name. `read_file` is called at most once, for `--config`.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    env: &Environment,
    read_file: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<Command, UsageError> {
    let args = flags::as_text(args)?;
    if let Some(("explain", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return explain::parse(rest);
    }
    let said = flags::scan(&args, table::by_flag)?;
    said.no_positional()?;
    if said.help {
        return Ok(Command::Help(help::text()));
    }
    if said.version {
        return Ok(Command::Version(VERSION_LINE.to_owned()));
    }
    let mut draft = draft::Draft::with_defaults()?;
    if let Some(path) = said.last("config").map(Path::new).filter(|path| !path.as_os_str().is_empty()) {
        let bytes = read_file(path).map_err(|error| file::unreadable(path, &error))?;
        file::apply(&mut draft, path, &bytes)?;
    }
    said.apply(&mut draft)?;
    draft.resolve(env).map(|settings| Command::Run(Box::new(settings)))
}

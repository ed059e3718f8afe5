//! What an operator may say, and what it means.
//!
//! | module | what it holds |
//! |---|---|
//! | [`schema`] | the one table: field, flag, kind, default, doc, effect |
//! | [`flags`] | the command line's grammar, as upstream's parser reads it |
//! | [`yaml`], [`decode`] | KubeletConfiguration v1beta1: a tree with lines, and the values in it |
//! | `flagz` | what each flag is set to, for `/flagz` |
//! | [`sources`] | defaults, the file, drop-ins and flags, put together |
//! | [`tree`] | the effective configuration: a value and its origin for every setting |
//! | [`validate`] | upstream's rules for the whole |
//! | [`gates`] | feature gates |
//! | [`settings`], [`resolve`] | [`Settings`]: the result |
//! | [`config`], [`explain`], [`pulls`], [`help`], [`reference`] | the subcommands and the texts |
//! | [`reload`] | what a change means for an agent that runs |
//! | [`error`] | messages for the person who typed |
//!
//! Precedence: defaults, then the file, then drop-ins, then flags. Nothing here is a global, and what is read is read
//! through [`Files`]. The tree is dropped once [`Settings`] are made.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub mod config;
pub mod decode;
pub mod defaults;
pub mod error;
pub mod explain;
pub mod flags;
mod flagz;
pub mod gates;
pub mod go;
pub mod help;
pub mod labels;
pub mod merge;
pub mod pulls;
pub mod reference;
pub mod reload;
pub mod removed;
pub mod resolve;
pub mod schema;
pub mod settings;
pub mod sources;
pub mod tree;
pub mod validate;
pub mod value;
pub mod version;
pub mod yaml;

pub use error::{Problem, UsageError};
pub use gates::Gates;
pub use reload::{Reload, reload_diff};
pub use settings::{
    Authentication, Authorization, ChangeDetection, Configz, CredentialProviders, Headers, ImagePulls,
    ImageVerification, LogFormat, LogStreams, Logging, Settings, Taint, TlsVersion, local_socket,
};
pub use version::{KUBERNETES_VERSION, VERSION_LINE};

use flags::Said;
use sources::Strictness;

/// What is known about the machine without being said.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The kernel's hostname; `--hostname-override` wins over it.
    pub hostname: String,
}

/// The files that configuration is read from. A closure that reads one file is enough where there are no drop-ins.
pub trait Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// What is in a folder, in any order. Symbolic links are not folders.
    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>>;

    /// A relative path starts at the working directory.
    fn absolute(&self, path: &Path) -> PathBuf;
}

#[derive(Clone, Debug)]
pub struct FolderEntry {
    pub name: OsString,
    pub is_folder: bool,
}

impl<F: Fn(&Path) -> io::Result<Vec<u8>>> Files for F {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self(path)
    }

    fn list(&self, _: &Path) -> io::Result<Vec<FolderEntry>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
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
    /// Which images are being pulled? Asked of the agent that runs in `root_dir`.
    Pulls {
        root_dir: PathBuf,
    },
    /// `crablet check`: is this machine fit for an agent with these settings?
    Check(CheckOptions),
    /// `crablet config view` and `crablet config check`: already answered, because they need nothing but what was said.
    Config(Answer),
}

#[derive(Clone, Debug, PartialEq)]
pub struct CheckOptions {
    pub settings: Box<Settings>,
    pub output: CheckOutput,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckOutput {
    #[default]
    Text,
    Json,
}

/// What to print, and whether it is good news. Complete lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub stdout: String,
    pub stderr: String,
    pub failed: bool,
}

/// `args` are those after the program's name.
pub fn parse(
    args: impl Iterator<Item = OsString>,
    env: &Environment,
    files: impl Files,
) -> Result<Command, UsageError> {
    let args = flags::as_text(args)?;
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("explain", rest)) => explain::parse(rest),
        Some(("pulls", rest)) => pulls::parse(rest),
        Some(("config", rest)) => config::parse(rest, env, &files),
        Some(("check", rest)) => check(rest, env, &files),
        _ => agent(&args, env, &files),
    }
}

fn agent(args: &[String], env: &Environment, files: &impl Files) -> Result<Command, UsageError> {
    let said = flags::scan(args, schema::by_flag, &[])?;
    said.no_positional()?;
    if said.help {
        return Ok(Command::Help(help::text()));
    }
    let reported = match said.version.as_deref().map(version::asked).transpose()? {
        Some(version::Asked::Print(text)) => return Ok(Command::Version(text)),
        Some(version::Asked::Report(version)) => Some(version),
        Some(version::Asked::Nothing) | None => None,
    };
    let mut settings = settings_of(&said, env, files)?;
    settings.flags = flagz::values(&said);
    if let Some(version) = reported {
        settings.reported_version = version.into();
    }
    Ok(Command::Run(Box::new(settings)))
}

/// `crablet check` takes the agent's own flags, and looks at the machine with its eyes.
fn check(args: &[String], env: &Environment, files: &impl Files) -> Result<Command, UsageError> {
    let said = flags::scan(args, schema::by_flag, &[("output", Some('o'))])?;
    said.no_positional()?;
    if said.help {
        return Ok(Command::Help(help::check()));
    }
    let output = match said.extra.last().map(|(_, value)| value.as_str()) {
        None | Some("text") => CheckOutput::Text,
        Some("json") => CheckOutput::Json,
        Some(other) => {
            return Err(Problem::new(format!("unknown output {other:?}"))
                .hint("give `text` or `json`")
                .into());
        }
    };
    let settings = Box::new(settings_of(&said, env, files)?);
    Ok(Command::Check(CheckOptions { settings, output }))
}

fn settings_of(said: &Said, env: &Environment, files: &impl Files) -> Result<Settings, UsageError> {
    resolve::resolve(sources::load(said, files, Strictness::Lenient)?, env)
}

//! What was typed, kept to be read again when the files that it names have changed.

use std::ffi::OsString;

use crablet_config::{Command, Environment, UsageError};

use crate::cli;

#[derive(Clone, Debug)]
pub struct CommandLine {
    args: Vec<OsString>,
    env: Environment,
}

impl CommandLine {
    /// This process's. The hostname is the one of now: a node does not change its name while it runs.
    pub fn of_this_process() -> Self {
        Self { args: std::env::args_os().skip(1).collect(), env: Environment { hostname: cli::hostname() } }
    }

    /// Reads the files that it names.
    pub fn read(&self) -> Result<Command, UsageError> {
        crablet_config::parse(self.args.iter().cloned(), &self.env, cli::config::Disk)
    }
}

//! `--runtime`: which containerd a command uses.

use std::str::FromStr;

use crablet_testbed::Flavor;

#[derive(Debug, Clone, Copy)]
pub struct Runtime(pub Flavor);

#[derive(Debug, thiserror::Error)]
#[error("it is one of `pinned` and `debian`")]
pub struct Unknown;

impl FromStr for Runtime {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Runtime, Unknown> {
        Flavor::ALL.into_iter().find(|flavor| flavor.name() == text).map(Runtime).ok_or(Unknown)
    }
}

//! `crablet pulls [--root-dir DIR]`.

use crate::Command;
use crate::error::{Problem, UsageError};
use crate::explain::root_dir;
use crate::{flags, schema};

pub const USAGE: &str = "crablet pulls [--root-dir DIR]";

pub fn parse(args: &[String]) -> Result<Command, UsageError> {
    let said = flags::scan(args, |name| schema::by_flag(name).filter(|_| name == "root-dir"), &[])?;
    if said.help {
        return Ok(Command::Help(help()));
    }
    if let Some(extra) = said.positional.first() {
        let message = format!("unexpected argument {extra:?}: pulls takes none");
        return Err(Problem::new(message).hint(USAGE).into());
    }
    Ok(Command::Pulls { root_dir: root_dir(&said) })
}

fn help() -> String {
    format!(
        "Usage: {USAGE}\n\n\
         Asks the agent that runs on this machine which images are being pulled, for whom and since when, and how many\n\
         bytes have come where the runtime says so.\n"
    )
}

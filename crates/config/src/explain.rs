//! `crablet explain [NAMESPACE/]POD [--root-dir DIR]`.

use std::path::PathBuf;

use crate::Command;
use crate::error::{Problem, UsageError};
use crate::flags::Said;
use crate::labels::is_dns_subdomain;
use crate::{flags, schema};

pub const USAGE: &str = "crablet explain [NAMESPACE/]POD [--root-dir DIR]";

pub fn parse(args: &[String]) -> Result<Command, UsageError> {
    let said = flags::scan(args, |name| schema::by_flag(name).filter(|_| name == "root-dir"), &[])?;
    if said.help {
        return Ok(Command::Help(help()));
    }
    let usage = format!("{USAGE}; for example `crablet explain default/web-node1`");
    let [pod] = said.positional.as_slice() else {
        let message = match said.positional.get(1) {
            None => "explain needs the name of a pod".to_owned(),
            Some(extra) => format!("unexpected argument {extra:?}: explain takes one pod"),
        };
        return Err(Problem::new(message).hint(usage).into());
    };
    let (namespace, pod) = pod.split_once('/').unwrap_or(("default", pod));
    for name in [namespace, pod] {
        if !is_dns_subdomain(name) {
            let message = format!("{name:?} cannot be the name of a pod or namespace");
            return Err(Problem::new(message).hint(usage).into());
        }
    }
    Ok(Command::Explain { namespace: namespace.to_owned(), pod: pod.to_owned(), root_dir: root_dir(&said) })
}

/// Where the agent that is asked has its files.
pub(crate) fn root_dir(said: &Said) -> PathBuf {
    let default = schema::by_flag("root-dir").and_then(|setting| setting.default).unwrap_or_default();
    PathBuf::from(said.last("root-dir").unwrap_or(default))
}

fn help() -> String {
    format!(
        "Usage: {USAGE}\n\n\
         Asks the agent that runs on this machine why a pod is the way it is, and prints its latest decisions.\n\
         Without a namespace, `default` is meant. The name of a static pod ends in the node's name.\n"
    )
}

//! Which test programs belong to `--only unit`, `sim` and `runtime`, decided by name so that a new file finds its place:
//! programs called `sim*` are the simulation; the other programs in `tests/` of `crablet` and `crablet-testbed`, and those
//! called `runtime*`, run on real runtimes; all else (and whatever sits beside the code) is a unit test.

use std::str::FromStr;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    Unit,
    Sim,
    Runtime,
}

#[derive(Debug, thiserror::Error)]
#[error("it is one of `unit`, `sim` and `runtime`")]
pub struct Unknown;

impl FromStr for Only {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Only, Unknown> {
        match text {
            "unit" => Ok(Only::Unit),
            "sim" => Ok(Only::Sim),
            "runtime" => Ok(Only::Runtime),
            _ => Err(Unknown),
        }
    }
}

impl Only {
    pub fn needs_runtime(self) -> bool {
        self == Only::Runtime
    }
}

/// Cargo's arguments that choose the programs of these kinds.
pub fn arguments(wanted: &[Only]) -> Result<Vec<String>> {
    let metadata = workspace::metadata()?;
    let mut arguments: Vec<String> = vec!["--workspace".into()];
    if wanted.contains(&Only::Unit) {
        arguments.extend(["--lib".into(), "--bins".into()]);
    }
    let mut chosen = 0;
    for package in metadata["packages"].as_array().context("cargo lists packages")? {
        // Without dependencies' packages: those carry a registry as their source.
        if !package["source"].is_null() {
            continue;
        }
        for name in test_programs(package) {
            if wanted.contains(&kind_of(package["name"].as_str().unwrap_or_default(), name)) {
                arguments.extend(["--test".into(), name.into()]);
                chosen += 1;
            }
        }
    }
    if chosen == 0 && !wanted.contains(&Only::Unit) {
        anyhow::bail!("there is no test program of that kind yet");
    }
    Ok(arguments)
}

fn test_programs(package: &Value) -> impl Iterator<Item = &str> {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str())
}

fn kind_of(package: &str, program: &str) -> Only {
    if program.starts_with("sim") {
        Only::Sim
    } else if package == "crablet" || package == "crablet-testbed" || program.starts_with("runtime") {
        Only::Runtime
    } else {
        Only::Unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_their_place_by_name() {
        assert_eq!(kind_of("crablet", "simulation"), Only::Sim);
        assert_eq!(kind_of("crablet", "restart"), Only::Runtime);
        assert_eq!(kind_of("crablet-planner", "properties"), Only::Unit);
        assert_eq!(kind_of("crablet-proxy", "runtime"), Only::Runtime);
        assert_eq!(kind_of("crablet-proxy", "cri"), Only::Unit);
    }
}

//! The folders that other programs on a node expect, with upstream's modes.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use crablet_config::Settings;

/// For the agent, and for who is in its group.
const INNER: u32 = 0o750;
/// Checkpoints hold the memory of containers.
const SECRET: u32 = 0o700;
/// Log shippers of any user read here.
const PUBLIC: u32 = 0o755;

/// Makes those that are missing. What is there already keeps its mode.
pub fn make(settings: &Settings) -> anyhow::Result<()> {
    for (path, mode) in wanted(settings) {
        let made = DirBuilder::new().recursive(true).mode(mode).create(&path);
        made.with_context(|| format!("cannot make the folder {}", path.display()))?;
    }
    Ok(())
}

fn wanted(settings: &Settings) -> Vec<(PathBuf, u32)> {
    let below = |name: &str| Path::join(&settings.root_dir, name);
    let mut folders = vec![
        (settings.root_dir.clone(), INNER),
        (below("pods"), INNER),
        (below("plugins"), INNER),
        (below("plugins_registry"), INNER),
        (below("pod-resources"), INNER),
        (settings.pod_logs_dir.clone(), INNER),
        (settings.container_logs_dir.clone(), PUBLIC),
    ];
    if settings.feature_gates.enabled("ContainerCheckpoint") {
        folders.push((below("checkpoints"), SECRET));
    }
    folders
}

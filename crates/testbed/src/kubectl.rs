//! A `kubectl` of an earlier time. Up to v1.29 it speaks SPDY alone where newer ones speak WebSocket, and such clients are
//! everywhere. Built from the Go module in `go/kubectl-old`.

use std::path::PathBuf;

use anyhow::Result;

use crate::gobuild::{Module, Program};

/// The version that `go/kubectl-old/go.mod` pins.
pub const OLD_VERSION: &str = "v1.29.6";

const MODULE: Module = Module {
    name: "kubectl-old",
    go_mod: include_str!("../go/kubectl-old/go.mod"),
    go_sum: include_str!("../go/kubectl-old/go.sum"),
};

const OLD: Program = Program {
    link_flags: "-X k8s.io/component-base/version.gitVersion=v1.29.6 \
                 -X k8s.io/component-base/version.gitMajor=1 \
                 -X k8s.io/component-base/version.gitMinor=29",
    ..Program::plain("kubectl", "k8s.io/kubernetes/cmd/kubectl", "2 minutes")
};

/// Builds it if it is missing, and gives its path.
pub fn ensure_old() -> Result<PathBuf> {
    Ok(MODULE.ensure(&[OLD])?.join(OLD.name))
}

pub fn has_old() -> bool {
    MODULE.has(&[OLD])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_and_the_pinned_version_are_one() {
        assert!(MODULE.go_mod.contains(&format!("k8s.io/kubernetes {OLD_VERSION}")));
        assert!(OLD.link_flags.contains(&format!("gitVersion={OLD_VERSION} ")));
    }
}

//! The pinned runtime: a new containerd with its shim, `ctr`, runc and CNI plugins, built from the Go module in
//! `go/runtime` (versions and checksums are in its `go.mod` and `go.sum`). Distributions lag years behind; CRI's
//! event stream, for one, is only in containerd 2. Built only when a test or a bench asks for it.

use std::path::PathBuf;

use anyhow::Result;

use crate::gobuild::{Module, Program};
use crate::packages;

const MODULE: Module = Module {
    name: "runtime",
    go_mod: include_str!("../go/runtime/go.mod"),
    go_sum: include_str!("../go/runtime/go.sum"),
};

const PROGRAMS: &[Program] = &[
    plain("containerd", "github.com/containerd/containerd/v2/cmd/containerd", "a minute"),
    plain(
        "containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        SECONDS,
    ),
    plain("ctr", "github.com/containerd/containerd/v2/cmd/ctr", SECONDS),
    plain("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local", SECONDS),
    plain("bridge", "github.com/containernetworking/plugins/plugins/main/bridge", SECONDS),
    plain("loopback", "github.com/containernetworking/plugins/plugins/main/loopback", SECONDS),
    plain("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap", SECONDS),
    // runc enters namespaces in C before Go's runtime starts, and seccomp filters come from libseccomp.
    Program { cgo: true, tags: "seccomp", ..plain("runc", "github.com/opencontainers/runc", SECONDS) },
];

const SECONDS: &str = "seconds";

const fn plain(name: &'static str, package: &'static str, takes: &'static str) -> Program {
    // btrfs would need its C headers, and nothing here uses it.
    Program { tags: "no_btrfs", ..Program::plain(name, package, takes) }
}

pub fn is_built() -> bool {
    MODULE.has(PROGRAMS)
}

/// Builds what is missing (minutes the first time) and gives the folder of the binaries.
pub fn ensure() -> Result<PathBuf> {
    if !is_built() {
        packages::ensure_build()?;
    }
    MODULE.ensure(PROGRAMS)
}

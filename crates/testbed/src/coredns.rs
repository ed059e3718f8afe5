//! CoreDNS, built from the Go module in `go/coredns`: the name server of clusters whose services must work.

use std::path::PathBuf;

use anyhow::Result;

use crate::gobuild::{Module, Program};

const MODULE: Module = Module {
    name: "coredns",
    go_mod: include_str!("../go/coredns/go.mod"),
    go_sum: include_str!("../go/coredns/go.sum"),
};

const PROGRAM: Program = Program::plain("coredns", "github.com/coredns/coredns", "2 minutes");

/// The program, built when it is missing.
pub fn ensure() -> Result<PathBuf> {
    Ok(MODULE.ensure(&[PROGRAM])?.join(PROGRAM.name))
}

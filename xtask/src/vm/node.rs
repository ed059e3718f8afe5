//! A node with a kubelet in it: which program, its unit, its configuration and the pods to run.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use crablet_testbed::vm::Vm;
use crablet_testbed::{kube, say};

use crate::workspace;

/// What is asked for on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubelet {
    Crablet,
    Upstream,
    /// Some kubelet; it is taken for one like upstream's unless its name says otherwise.
    At(PathBuf),
}

impl FromStr for Kubelet {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Kubelet, Self::Err> {
        Ok(match text {
            "crablet" => Kubelet::Crablet,
            "upstream" => Kubelet::Upstream,
            path => Kubelet::At(path.into()),
        })
    }
}

impl Kubelet {
    fn is_crablet(&self) -> bool {
        match self {
            Kubelet::Crablet => true,
            Kubelet::Upstream => false,
            Kubelet::At(path) => {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("crablet"))
            }
        }
    }

    pub fn kind(&self) -> &'static str {
        if self.is_crablet() { "crablet" } else { "upstream" }
    }

    /// Builds it if it is ours to build.
    pub fn binary(&self) -> Result<PathBuf> {
        match self {
            Kubelet::Crablet => {
                say::step("building crablet");
                workspace::build_crablet()
            }
            Kubelet::Upstream => Ok(kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name)),
            Kubelet::At(path) if path.is_file() => Ok(path.clone()),
            Kubelet::At(path) => {
                bail!("no file `{}`\nhint: `--kubelet` takes `crablet`, `upstream` or a path", path.display())
            }
        }
    }
}

/// A machine with the kubelet as a unit that is not started; `script` is a program that begins with `#!`.
pub fn vm(kubelet: &Kubelet, script: String) -> Result<Vm> {
    Ok(Vm::new(script)
        .kubelet(&kubelet.binary()?)
        .file("/etc/systemd/system/kubelet.service", include_str!("guest/kubelet.service"))
        .file("/etc/kubernetes/kubelet.yaml", include_str!("guest/kubelet.yaml"))
        .file("/root/web.yaml", include_str!("guest/web.yaml"))
        .file("/root/exact.yaml", include_str!("guest/exact.yaml"))
        .file("/root/idle.yaml", include_str!("guest/idle.yaml")))
}

/// One of our own scripts, with what it stands on.
pub fn script(kubelet: &Kubelet, text: &str) -> String {
    format!("#!/bin/sh\nset -u\nkind={}\n{}\n{text}", kubelet.kind(), include_str!("guest/node.sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_by_its_name_whose_kubelet_it_is() {
        let is_crablet = |text: &str| text.parse::<Kubelet>().unwrap().is_crablet();
        assert!(is_crablet("crablet") && is_crablet("/some/where/crablet-old"));
        assert!(!is_crablet("upstream") && !is_crablet("/some/where/kubelet"));
    }

    #[test]
    fn our_scripts_know_whom_they_run() {
        let text = script(&Kubelet::Upstream, "step hello");
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("kind=upstream\n"));
        assert!(text.ends_with("step hello"));
    }
}

//! The programs of a flavour, wherever they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Flavor;
use crate::process::output_of;
use crate::{packages, pinned};

#[derive(Debug)]
pub struct Binaries {
    pub containerd: PathBuf,
    pub ctr: PathBuf,
    pub runc: PathBuf,
    pub cni_plugins: PathBuf,
    pub major_version: u32,
}

impl Binaries {
    pub fn find(flavor: Flavor) -> Result<Binaries> {
        packages::ensure_runtime()?;
        let need = |name: &str| packages::program(name).with_context(|| format!("no `{name}` on the path"));
        let (containerd, ctr, runc, cni_plugins) = match flavor {
            Flavor::Debian => {
                let cni = packages::cni_plugins().context("no CNI plugins found")?;
                (need("containerd")?, need("ctr")?, need("runc")?, cni)
            }
            Flavor::Pinned => {
                let bin = pinned::ensure()?;
                (bin.join("containerd"), bin.join("ctr"), bin.join("runc"), bin)
            }
        };
        let said = output_of(Command::new(&containerd).arg("--version"))?;
        let major_version =
            parse_major(&said).with_context(|| format!("cannot read the version in `{said}`"))?;
        Ok(Binaries { containerd, ctr, runc, cni_plugins, major_version })
    }

    /// The daemon looks for its shim on the path: it must find the one that it was built with.
    pub fn path(&self) -> Result<std::ffi::OsString> {
        let own = self.containerd.parent().map(Path::to_owned);
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        Ok(std::env::join_paths(own.into_iter().chain(std::env::split_paths(&inherited)).chain(system))?)
    }
}

/// `containerd github.com/containerd/containerd 1.6.20~ds1 ...` is 1.
fn parse_major(said: &str) -> Option<u32> {
    said.split_whitespace().nth(2)?.trim_start_matches('v').split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_major;

    #[test]
    fn versions_of_both_flavours_are_read() {
        assert_eq!(
            parse_major("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1"),
            Some(1)
        );
        assert_eq!(parse_major("containerd github.com/containerd/containerd/v2 2.3.7+unknown "), Some(2));
    }
}

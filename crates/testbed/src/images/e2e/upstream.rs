//! Files that come from Kubernetes' own source: programs, certificates, pictures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::super::archive::File;
use crate::gobuild::{Module, Program};
use crate::process::output_of;
use crate::{coredns, kube, packages};

/// The example of an API server of one's own, at the version that belongs to [`kube::VERSION`].
const SAMPLE_APISERVER_MODULE: Module = Module {
    name: "sample-apiserver",
    go_mod: include_str!("../../../go/sample-apiserver/go.mod"),
    go_sum: include_str!("../../../go/sample-apiserver/go.sum"),
};
const SAMPLE_APISERVER: Program = Program::plain("sample-apiserver", "k8s.io/sample-apiserver", "2 minutes");

/// What the images run of Kubernetes' own.
pub const PROGRAMS: &[Program] =
    &[kube::AGNHOST, kube::NONEWPRIVS, kube::REGRESSION_ISSUE_74839, kube::SAMPLE_DEVICE_PLUGIN];

/// The built programs and the source that they are built from.
pub struct Upstream {
    programs: PathBuf,
    sample_apiserver: PathBuf,
    coredns: PathBuf,
    /// `test/images` of the source.
    images: PathBuf,
}

impl Upstream {
    pub fn ensure() -> Result<Upstream> {
        Ok(Upstream {
            programs: kube::ensure(PROGRAMS)?,
            sample_apiserver: SAMPLE_APISERVER_MODULE
                .ensure(&[SAMPLE_APISERVER])?
                .join(SAMPLE_APISERVER.name),
            coredns: coredns::ensure()?,
            images: source()?.join("test/images"),
        })
    }

    /// A program as an executable file at `path`, with mode bits beside those of every program.
    pub fn program(&self, program: &Program, path: &str, extra_mode: u32) -> Result<File> {
        Ok(File::plain(path, 0o755 | extra_mode, read(&self.programs.join(program.name))?))
    }

    pub fn sample_apiserver(&self) -> Result<File> {
        Ok(File::plain("sample-apiserver", 0o755, read(&self.sample_apiserver)?))
    }

    /// A name server: specs of the pods' DNS settings start it out of agnhost's image.
    pub fn coredns(&self) -> Result<File> {
        Ok(File::plain("coredns", 0o755, read(&self.coredns)?))
    }

    /// A file of `test/images` at `path`.
    pub fn file(&self, source: &str, path: &str) -> Result<File> {
        Ok(File::plain(path, 0o644, read(&self.images.join(source))?))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The folder of Kubernetes' source in Go's module cache, fetched there when it is missing.
fn source() -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Download {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    let Some(go) = packages::program("go") else { bail!("no `go` is on the path") };
    let mut command = Command::new(go);
    command.args(["mod", "download", "-json"]).arg(format!("k8s.io/kubernetes@{}", kube::VERSION));
    // Outside of any module, so that it is about this one alone.
    command.current_dir("/").env("GOWORK", "off").env("GOTOOLCHAIN", "local").env_remove("GOFLAGS");
    let download: Download = serde_json::from_str(&output_of(&mut command)?)
        .context("`go mod download` did not say where Kubernetes' source is")?;
    Ok(download.dir)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Empty files in place of all programs and of the given files of the source.
    pub fn stand_in(dir: &Path, files: &[&str]) -> Upstream {
        let upstream = Upstream {
            programs: dir.join("programs"),
            sample_apiserver: dir.join("sample-apiserver"),
            coredns: dir.join("coredns"),
            images: dir.join("images"),
        };
        let programs = PROGRAMS.iter().map(|program| upstream.programs.join(program.name));
        let others = [upstream.sample_apiserver.clone(), upstream.coredns.clone()];
        let files = files.iter().map(|file| upstream.images.join(file));
        for path in programs.chain(others).chain(files) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        upstream
    }

    #[test]
    fn the_sample_api_server_belongs_to_the_pinned_version() {
        let version = kube::VERSION.replace("v1.", "v0.");
        assert!(SAMPLE_APISERVER_MODULE.go_mod.contains(&format!("k8s.io/sample-apiserver {version}")));
    }
}

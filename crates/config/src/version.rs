//! `--version`, in the forms that other programs parse.

use crate::error::Problem;
use crate::go;

const NUMBERS: &str = "v1.36.4";

/// The Kubernetes version whose behaviour this is, with Crablet's own as build metadata. Other programs parse it as a
/// semantic version.
pub const KUBERNETES_VERSION: &str = concat!("v1.36.4+crablet-", env!("CARGO_PKG_VERSION"));

/// What `--version` prints. kubeadm accepts `Kubernetes v<semver>` and nothing else.
pub const VERSION_LINE: &str = concat!("Kubernetes v1.36.4+crablet-", env!("CARGO_PKG_VERSION"), "\n");

/// What the value of `--version` asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Print(String),
    /// Run, and report this version.
    Report(String),
    Nothing,
}

pub fn asked(value: &str) -> Result<Asked, Problem> {
    if value == "raw" {
        return Ok(Asked::Print(raw()));
    }
    if value.starts_with('v') {
        let matches =
            value.strip_prefix(NUMBERS).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '+']));
        let message = format!(
            "invalid argument {value:?} for \"--version\" flag: version {value:?} must match major/minor/patch of default version {NUMBERS:?}"
        );
        return if matches { Ok(Asked::Report(value.to_owned())) } else { Err(Problem::new(message)) };
    }
    match go::parse_bool(value) {
        Some(true) => Ok(Asked::Print(VERSION_LINE.to_owned())),
        Some(false) => Ok(Asked::Nothing),
        None => Err(Problem::new(format!(
            "invalid argument {value:?} for \"--version\" flag: give `true`, `raw` or a version such as `{NUMBERS}-mine`"
        ))),
    }
}

/// As Go prints upstream's version record.
fn raw() -> String {
    format!(
        "version.Info{{Major:\"1\", Minor:\"36\", EmulationMajor:\"\", EmulationMinor:\"\", \
         MinCompatibilityMajor:\"\", MinCompatibilityMinor:\"\", GitVersion:{KUBERNETES_VERSION:?}, GitCommit:\"\", \
         GitTreeState:\"\", BuildDate:\"1970-01-01T00:00:00Z\", GoVersion:\"\", Compiler:\"rustc\", \
         Platform:\"{}/{}\"}}\n",
        std::env::consts::OS,
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    )
}

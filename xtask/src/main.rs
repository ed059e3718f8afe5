//! Developer commands: `cargo xtask <command>`.

mod args;
mod bench;
mod demo;
#[cfg(feature = "protos")]
mod protos;
mod table;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use crablet_testbed::guard;

use crate::args::Args;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo [--once | --keep | --stop]   run Crablet with the pods in `examples/` on a containerd of its own
         --once   show the pods, then remove everything
         --keep   leave it running in the background
         --stop   remove what `--keep` left running
  test [--only unit|sim|runtime]    check everything; the last line counts the tests
  bench idle [--pods N] [--seconds N] [--runtime pinned|debian] [--upstream PATH]
                                    what Crablet costs while nothing happens, beside upstream's kubelet
  protos                            generate the gRPC code again";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            // After Ctrl-C the error is only an echo of it, and the cleaning thread ends the process.
            guard::let_it_finish();
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut args = Args::from_env();
    match args.command().as_deref() {
        Some("demo") => demo::run(args),
        Some("test") => test::run(args),
        Some("bench") => bench::run(args),
        Some("protos") => protos(),
        None | Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => bail!("no command `{other}`\n\n{USAGE}"),
    }
}

#[cfg(feature = "protos")]
fn protos() -> Result<ExitCode> {
    protos::run()?;
    Ok(ExitCode::SUCCESS)
}

/// The generator's dependencies are many and its use is rare: they are behind a feature.
#[cfg(not(feature = "protos"))]
fn protos() -> Result<ExitCode> {
    eprintln!("the generator is behind a feature; run it with");
    println!("cargo run -p xtask --features protos -- protos");
    Ok(ExitCode::SUCCESS)
}

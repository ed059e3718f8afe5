//! Developer commands: `cargo xtask <command>`.

mod args;
mod bench;
mod cluster;
mod conformance;
mod demo;
#[cfg(feature = "protos")]
mod protos;
mod recorder;
mod runtime;
mod table;
mod test;
mod vm;
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
  cluster [--kubelet crablet|upstream] [--runtime pinned|debian] [--addons] [--once]
          [--binary PATH]
                                    a control plane and one node to play with; Ctrl-C removes it
         --addons    kube-proxy and CoreDNS, so that services work
         --once      show the node, then remove everything
  conformance [--suite shared|node|full|wide] [--kubelet crablet|upstream] [--runtime pinned|debian]
              [--focus RE] [--skip RE] [--procs N] [--serial] [--record] [--binary PATH]
                                    upstream's own specs as judges; results of both kubelets side by side
         --suite     `shared` (the default): NodeConformance in a cluster; `node`: the node suite's own, which starts
                     the kubelet itself; `full`: Conformance, in a cluster with kube-proxy and CoreDNS;
                     `wide`: pods and volumes without such a mark, as far as their drivers are to be had
         --serial    the specs that must run alone, instead of the others
         --record    keep each call to the runtime and each request to the API server
  conformance --report              write `docs/conformance.md` again from what is known
  vm [--kubelet crablet|upstream|PATH] [--script FILE] [--minutes N]
                                    boot a Debian node with systemd and cgroup v2, run a script in it, exit with its code
         --kubelet   `crablet` unless said; it is a unit `kubelet.service` that the script starts
         --script    without one: static pods, and what the node looks like
  vm --join [--kubelet crablet|upstream|PATH]
                                    `kubeadm join` makes such a node part of a real cluster: it runs pods, is rebooted,
                                    and leaves by `kubeadm reset`
  vm --test [--kubelet crablet|upstream|PATH]
                                    the tests that need such a node, with both kubelets; the last line counts them
  bench idle [--pods N] [--seconds N] [--runtime pinned|debian] [--upstream PATH]
                                    what Crablet costs while nothing happens, beside upstream's kubelet
  bench node [--rounds N] [--pods N] [--idle SECONDS] [--reactions N] [--only crablet|upstream]
             [--binary PATH]
                                    the same work in a cluster on both kubelets, beside a bare CRI client; writes
                                    `docs/benchmarks.md`, unless only one kubelet is asked for
         --binary    this build of Crablet instead of a release build
  bench sessions [--rounds N] [--seconds N] [--followers N] [--sessions N] [--only crablet|upstream]
                 [--binary PATH]
                                    what `logs -f` and `exec` cost both kubelets; writes
                                    `docs/benchmarks-sessions.md`, unless only one kubelet is asked for
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
        Some("cluster") => cluster::run(args),
        Some("conformance") => conformance::run(args),
        Some("vm") => vm::run(args),
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

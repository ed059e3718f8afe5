//! `vm`: a whole node in a virtual machine, with systemd and cgroup v2, for one kubelet and one script.

mod join;
mod node;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crablet_testbed::vm::Vm;
use crablet_testbed::{guard, say};

use self::node::Kubelet;
use crate::args::Args;

/// Each with both kubelets. Boots are slow, so they are few.
const TESTS: &[(&str, Test)] =
    &[("static_pods", Test::Script(include_str!("guest/static_pods.sh"))), ("kubeadm_join", Test::Join)];

#[derive(Debug, Clone, Copy)]
enum Test {
    /// A script in a machine that is alone.
    Script(&'static str),
    Join,
}

impl Test {
    fn run(self, kubelet: &Kubelet) -> Result<u8> {
        match self {
            Test::Script(text) => boot(node::vm(kubelet, node::script(kubelet, text))?),
            Test::Join => join::run(kubelet),
        }
    }
}

pub fn run(mut args: Args) -> Result<ExitCode> {
    let (test, join) = (args.flag("--test"), args.flag("--join"));
    let kubelet: Option<Kubelet> = args.value("--kubelet")?;
    let script: Option<PathBuf> = args.value("--script")?;
    let minutes: Option<u64> = args.value("--minutes")?;
    args.done()?;
    guard::install()?;
    if test && join {
        bail!("`--test` and `--join` are two commands");
    }
    if test || join {
        if script.is_some() || minutes.is_some() {
            bail!("`--test` and `--join` bring their own scripts and deadlines");
        }
        if test {
            return run_tests(kubelet);
        }
        return Ok(ExitCode::from(join::run(&kubelet.unwrap_or(Kubelet::Crablet))?));
    }
    let kubelet = kubelet.unwrap_or(Kubelet::Crablet);
    let text = match script {
        Some(path) => {
            fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?
        }
        None => node::script(&kubelet, include_str!("guest/facts.sh")),
    };
    let mut vm = node::vm(&kubelet, text)?;
    if let Some(minutes) = minutes {
        vm = vm.deadline(Duration::from_secs(minutes * 60));
    }
    Ok(ExitCode::from(boot(vm)?))
}

/// Shows the script's output as it comes, and gives its exit code.
fn boot(vm: Vm) -> Result<u8> {
    let mut out = std::io::stdout();
    let show = |bytes: &[u8]| {
        // A reader that went away does not end the machine half-way.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    };
    Ok(vm.run_showing(show)?.exit_code)
}

/// Runs all of them, with both kubelets or with the given one, also after a failure.
fn run_tests(only: Option<Kubelet>) -> Result<ExitCode> {
    let kubelets = only.map_or_else(|| vec![Kubelet::Upstream, Kubelet::Crablet], |only| vec![only]);
    let (mut passed, mut failed) = (0, 0);
    for ((name, test), kubelet) in TESTS.iter().flat_map(|test| kubelets.iter().map(move |k| (test, k))) {
        let name = format!("{name}_with_{}", kubelet.kind());
        say::step(format!("test {name}"));
        let result = test.run(kubelet);
        // After Ctrl-C every test fails, and none of it is worth showing.
        if result.is_err() {
            guard::let_it_finish();
        }
        let word = match result {
            Ok(0) => "ok".to_owned(),
            Ok(code) => format!("FAILED (exit code {code})"),
            Err(error) => format!("FAILED\nerror: {error:#}"),
        };
        if word == "ok" {
            passed += 1
        } else {
            failed += 1
        }
        println!("test {name} ... {word}");
    }
    println!("\n{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `vm`: a whole node in a virtual machine, with systemd and cgroup v2, for one kubelet and one script.

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

/// Each is one boot, since boots are slow.
const TESTS: &[(&str, Kubelet, &str)] = &[
    ("static_pods_with_upstream", Kubelet::Upstream, include_str!("guest/static_pods.sh")),
    ("static_pods_with_crablet", Kubelet::Crablet, include_str!("guest/static_pods.sh")),
];

pub fn run(mut args: Args) -> Result<ExitCode> {
    let test = args.flag("--test");
    let kubelet: Option<Kubelet> = args.value("--kubelet")?;
    let script: Option<PathBuf> = args.value("--script")?;
    let minutes: Option<u64> = args.value("--minutes")?;
    args.done()?;
    guard::install()?;
    if test {
        if script.is_some() || minutes.is_some() {
            bail!("`--test` brings its own scripts and deadlines");
        }
        return run_tests(kubelet.as_ref());
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

/// Runs all of them, or those with one kubelet, also after a failure.
fn run_tests(only: Option<&Kubelet>) -> Result<ExitCode> {
    let (mut passed, mut failed) = (0, 0);
    for (name, kubelet, script) in
        TESTS.iter().filter(|(_, kubelet, _)| only.is_none_or(|only| only == kubelet))
    {
        say::step(format!("test {name}"));
        let result = node::vm(kubelet, node::script(kubelet, script)).and_then(boot);
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
    if passed + failed == 0 {
        bail!("no test with that kubelet\nhint: `--test` takes `--kubelet crablet` or `--kubelet upstream`");
    }
    println!("\n{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

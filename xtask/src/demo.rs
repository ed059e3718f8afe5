//! `demo`: Crablet with the pods in `examples/`, on a containerd of its own, and everything removed at the end.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crablet_testbed::agent::PodLine;
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{
    Agent, Containerd, Flavor, Snapshot, StartOptions, guard, http, images, packages, say, scratch,
};

use crate::args::Args;
use crate::{table, workspace};

/// How long all pods may take to come up.
const START: Duration = Duration::from_secs(120);
/// The example that does one thing and ends.
const ENDS: &str = "once-";
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub fn run(mut args: Args) -> Result<ExitCode> {
    let (once, keep, stop) = (args.flag("--once"), args.flag("--keep"), args.flag("--stop"));
    args.done()?;
    if [once, keep, stop].iter().filter(|chosen| **chosen).count() > 1 {
        bail!("`--once`, `--keep` and `--stop` exclude each other");
    }
    guard::install()?;
    if stop {
        match scratch::remove_kept()? {
            0 => say::step("no demo is running in the background"),
            _ => say::step("stopped the demo and removed all it made"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let demo = Demo::start()?;
    demo.show()?;
    if keep {
        demo.keep()?;
    } else if once {
        demo.remove()?;
    } else {
        demo.linger()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fields are dropped in this order: first the agent, then the runtime with all folders.
struct Demo {
    agent: Agent,
    containerd: Containerd,
    snapshot: Snapshot,
}

impl Demo {
    fn start() -> Result<Demo> {
        packages::ensure_runtime()?;
        say::step("building crablet");
        let binary = workspace::build_crablet()?;
        say::step("starting containerd in a folder of its own");
        let containerd = Containerd::start(StartOptions::new(Flavor::Debian))?;
        say::step("starting crablet with the pods in `examples/`");
        let agent = Agent::builder(binary, &containerd).node_name("demo").build()?;
        let manifests = put_examples(&agent)?;
        let started = Instant::now();
        agent.start()?;
        let mut progress = Progress::default();
        let snapshot = agent.wait_for(START, |snapshot| {
            progress.show(snapshot);
            snapshot.pods.len() >= manifests && snapshot.pods.iter().all(is_settled)
        })?;
        say::step(format!("all pods are up, {:.1} s after crablet's start", started.elapsed().as_secs_f32()));
        Ok(Demo { agent, containerd, snapshot })
    }

    fn show(&self) -> Result<()> {
        let heading =
            ["NAME", "NAMESPACE", "PHASE", "READY", "RESTARTS", "ADDRESS"].map(String::from).to_vec();
        let mut rows: Vec<_> = self.snapshot.pods.iter().map(row).collect();
        rows.sort();
        println!("\n{}", table::render(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()));
        let web = self.snapshot.pod("web").context("no pod `web` among the examples")?;
        let address = Agent::address_of(web, images::WEB_PORT)?;
        println!("http://{address}/ says: {}", fetch(address)?.trim());
        Ok(())
    }

    /// Stays until Ctrl-C, and shows what changes meanwhile.
    fn linger(self) -> Result<()> {
        self.hints();
        say::step("press Ctrl-C to stop; everything that was made is removed then");
        guard::interruption_is_success();
        let mut progress = Progress::default();
        progress.remember(&self.snapshot);
        self.agent.wait_for(A_YEAR, |snapshot| {
            progress.show(snapshot);
            false
        })?;
        Ok(())
    }

    fn keep(self) -> Result<()> {
        self.hints();
        say::step("it runs on in the background; `cargo xtask demo --stop` stops it and removes all it made");
        self.containerd.keep()?;
        self.agent.keep();
        Ok(())
    }

    fn remove(self) -> Result<()> {
        say::step("removing everything");
        self.agent.stop()?;
        self.containerd.stop()
    }

    fn hints(&self) {
        let socket = self.agent.socket();
        let socket = socket.display();
        say::step("how to talk to it");
        say::note(format!("the manifests (edit, add, remove):  {}", self.agent.manifest_dir().display()));
        say::note(format!("its pods:     curl --unix-socket {socket} http://localhost/pods"));
        say::note(format!("its changes:  curl --no-buffer --unix-socket {socket} http://localhost/watch"));
        say::note(format!(
            "its reasons:  curl --unix-socket {socket} http://localhost/explain/default/web-demo"
        ));
        say::note(format!("its log:      {}", self.agent.log_path().display()));
    }
}

/// A container that was just started may not listen yet, and nothing outside it tells when it does.
fn fetch(address: SocketAddr) -> Result<String> {
    let deadline = Deadline::after(Duration::from_secs(10));
    let ask = || http::tcp(address, "GET", "/", deadline).and_then(http::Response::text);
    let mut answer = ask();
    wait::until(deadline, || {
        if answer.is_err() {
            answer = ask();
        }
        answer.is_ok()
    });
    answer
}

/// Copies the examples into the agent's manifest folder; says how many there are.
fn put_examples(agent: &Agent) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(workspace::root().join("examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            agent.put_manifest(&name, &fs::read_to_string(&path)?)?;
            count += 1;
        }
    }
    Ok(count)
}

fn is_settled(pod: &PodLine) -> bool {
    match pod.phase.as_str() {
        "Running" => pod.ready && !pod.name.starts_with(ENDS),
        phase => phase == "Succeeded" || phase == "Failed",
    }
}

fn row(pod: &PodLine) -> Vec<String> {
    let ready = if pod.ready { "yes" } else { "no" };
    let cells = [&pod.name, &pod.namespace, &pod.phase, ready, &pod.restarts.to_string(), &pod.pod_ip];
    cells.map(String::from).to_vec()
}

/// Says each change once.
#[derive(Default)]
struct Progress {
    seen: BTreeMap<String, String>,
}

impl Progress {
    fn remember(&mut self, snapshot: &Snapshot) {
        self.seen = snapshot.pods.iter().map(|pod| (pod.name.clone(), summary(pod))).collect();
    }

    fn show(&mut self, snapshot: &Snapshot) {
        for pod in &snapshot.pods {
            let summary = summary(pod);
            if self.seen.get(&pod.name) != Some(&summary) {
                say::note(format!("{}: {summary}", pod.name));
            }
        }
        let is_gone = |name: &&String| !snapshot.pods.iter().any(|pod| pod.name == **name);
        for name in self.seen.keys().filter(is_gone) {
            say::note(format!("{name}: gone"));
        }
        self.remember(snapshot);
    }
}

fn summary(pod: &PodLine) -> String {
    let mut words = vec![pod.phase.to_lowercase()];
    if pod.ready {
        words.push("ready".into());
    }
    if pod.restarts > 0 {
        words.push(format!("{} restarts", pod.restarts));
    }
    if !pod.desired {
        words.push("being removed".into());
    }
    words.join(", ")
}

//! Runs one suite against one kubelet: everything is built, started, watched and removed here.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet, NodeOptions};
use crablet_testbed::scratch::Scratch;
use crablet_testbed::suites::ginkgo::{self, Run};
use crablet_testbed::suites::node::{self, World};
use crablet_testbed::suites::registry;
use crablet_testbed::suites::report::Report;
use crablet_testbed::{Containerd, StartOptions, images, kube, packages, say};

use super::facts::Facts;
use super::options::{Options, Suite};
use super::progress::Progress;
use crate::recorder::Recorder;

/// How a run ended, and on what kind of machine.
pub struct Verdict {
    pub report: Report,
    pub facts: Facts,
}

/// Runs the suite; what it leaves for people goes into `folder`.
pub fn judge(options: &Options, folder: &Path) -> Result<Verdict> {
    let program = if options.suite.starts_the_kubelet() { kube::E2E_NODE } else { kube::E2E };
    let bin = kube::ensure(&[kube::GINKGO, program])?;
    let (ginkgo, suite) = (bin.join(kube::GINKGO.name), bin.join(program.name));
    let count = ginkgo::selected(&ginkgo, &suite, &options.selection, folder)?;
    if count == 0 {
        bail!(
            "no spec is selected: `--focus` and `--skip` are regular expressions on names of this suite's specs"
        );
    }
    let job = Job { options, folder, ginkgo, suite, processes: options.processes.min(count) };
    let images = images::e2e::ensure()?;
    let kubelet = options.which.kubelet(options.binary.as_deref())?;
    let started = Instant::now();
    let Verdict { report, facts } = if options.suite.starts_the_kubelet() {
        job.on_the_machine(kubelet, images)?
    } else {
        job.in_a_cluster(kubelet, images)?
    };
    Ok(Verdict { report, facts: facts.with("minutes", started.elapsed().as_secs().div_ceil(60)) })
}

struct Job<'a> {
    options: &'a Options,
    folder: &'a Path,
    ginkgo: PathBuf,
    suite: PathBuf,
    processes: usize,
}

/// What a suite is given to run with.
struct Ground<'a> {
    scratch: &'a Scratch,
    working_folder: PathBuf,
    flags: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

impl Job<'_> {
    fn in_a_cluster(&self, kubelet: Kubelet, images: Vec<PathBuf>) -> Result<Verdict> {
        say::step("starting a cluster with one node");
        let addons = self.options.suite == Suite::Full;
        let cluster =
            Cluster::start(ClusterOptions { images, addons, ..ClusterOptions::new(self.options.flavor) })?;
        let recorder = self.options.record.then(|| Recorder::of_node(&cluster, self.folder)).transpose()?;
        let partners = NodeOptions {
            runtime_endpoint: recorder.as_ref().map(Recorder::runtime_endpoint),
            api_server: recorder.as_ref().and_then(Recorder::api_server),
            ..NodeOptions::new(kubelet)
        };
        let joined = cluster.join(partners).inspect_err(|_| self.keep_logs(cluster.dir()))?;
        registry::start(cluster.containerd())?;
        let facts = Facts::of(cluster.containerd());
        let working_folder = cluster.dir().join("suite");
        fs::create_dir_all(&working_folder)?;
        let report = self.run(Ground {
            scratch: cluster.containerd().scratch(),
            flags: cluster_flags(&cluster, &working_folder),
            environment: Vec::new(),
            working_folder,
        });
        self.keep_logs(cluster.dir());
        drop(joined);
        drop(recorder);
        say::step("removing the cluster");
        cluster.stop()?;
        Ok(Verdict { report: report?, facts })
    }

    fn on_the_machine(&self, kubelet: Kubelet, images: Vec<PathBuf>) -> Result<Verdict> {
        packages::ensure_cluster()?;
        node::check_machine()?;
        say::step("starting containerd in a folder of its own");
        let containerd = Containerd::start(StartOptions::new(self.options.flavor))?;
        containerd.import(&images)?;
        registry::start(&containerd)?;
        let facts = Facts::of(&containerd);
        let recorder =
            self.options.record.then(|| Recorder::of_runtime(&containerd, self.folder)).transpose()?;
        let endpoint = recorder.as_ref().map_or_else(|| containerd.endpoint(), Recorder::runtime_endpoint);
        let world = World::prepare(&containerd, &kubelet, &endpoint)?;
        let report = self.run(Ground {
            scratch: containerd.scratch(),
            working_folder: world.folder.clone(),
            flags: world.flags.clone(),
            environment: world.environment.clone(),
        });
        self.keep_logs(&world.logs);
        self.keep_logs(containerd.scratch().dir());
        drop(recorder);
        say::step("removing the node");
        containerd.stop()?;
        Ok(Verdict { report: report?, facts })
    }

    fn run(&self, ground: Ground<'_>) -> Result<Report> {
        let run = Run {
            ginkgo: self.ginkgo.clone(),
            suite: self.suite.clone(),
            selection: &self.options.selection,
            processes: self.processes,
            flags: ground.flags,
            environment: ground.environment,
            folder: ground.working_folder,
            report: self.folder.join("report.json"),
            log: self.folder.join("suite.log"),
        };
        say::step(format!("running the suite; all it says is in `{}`", run.log.display()));
        let mut progress = Progress::new(self.processes);
        let status = run.carry_out(ground.scratch, |event| progress.hear(event));
        progress.end();
        let status = status?;
        if !run.report.exists() {
            bail!("the suite left no report ({status})\nhint: see `{}`", run.log.display());
        }
        Report::read(&run.report)
    }

    /// Copies the logs out of a folder that is about to go. What cannot be copied is no reason to fail.
    fn keep_logs(&self, from: &Path) {
        let logs = self.folder.join("logs");
        let _ = fs::create_dir_all(&logs);
        for entry in fs::read_dir(from).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let _ = fs::copy(&path, logs.join(entry.file_name()));
            }
        }
    }
}

/// For a cluster of one node, without a cloud around it and without pods of its own to wait for.
fn cluster_flags(cluster: &Cluster, working_folder: &Path) -> Vec<OsString> {
    let flag = |name: &str, path: &Path| OsString::from(format!("--{name}={}", path.display()));
    let fixed = ["--provider=skeleton", "--num-nodes=1", "--disable-log-dump", "--node-os-distro=debian"];
    let mut flags: Vec<OsString> = fixed.map(OsString::from).to_vec();
    flags.extend([
        flag("kubeconfig", &cluster.kubeconfig()),
        flag("kubectl-path", &cluster.bin().join(kube::KUBECTL.name)),
        flag("report-dir", &working_folder.join("report")),
        flag("e2e-output-dir", working_folder),
    ]);
    flags
}

/// Makes an empty folder for what a run leaves.
pub fn fresh_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))
}

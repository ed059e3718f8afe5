//! A real containerd of our own: own folders, own socket, own network; started, killed, started again, removed.

mod binaries;
mod config;
mod leftovers;
mod ready;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::binaries::Binaries;
pub use self::leftovers::Leftovers;
use self::ready::ReadySocket;
use crate::network::Network;
use crate::process::output_of;
use crate::scratch::Scratch;
use crate::wait::{self, Deadline};
use crate::{guard, images, packages, pinned, say, teardown};

/// The kernel's limit for a socket's path.
const LONGEST_SOCKET_PATH: usize = 107;

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The distribution's: Debian 12 has 1.6, without CRI's event stream.
    Debian,
    /// The one that `go/runtime` pins: 2.3.7, built when first asked for.
    Pinned,
}

impl Flavor {
    pub const ALL: [Flavor; 2] = [Flavor::Debian, Flavor::Pinned];

    pub fn name(self) -> &'static str {
        match self {
            Flavor::Debian => "debian",
            Flavor::Pinned => "pinned",
        }
    }

    /// The flavours that tests are to run on: `CRABLET_TEST_RUNTIMES=debian,pinned` (any part of it, or `none`).
    /// Without it: what is there already, so that a plain `cargo test` neither installs nor builds anything.
    pub fn under_test() -> Vec<Flavor> {
        let wanted = std::env::var("CRABLET_TEST_RUNTIMES").ok();
        let chosen = |flavor: &Flavor| match &wanted {
            Some(list) => list.split(',').any(|name| name.trim() == flavor.name()),
            None => flavor.is_there() && rustix::process::geteuid().is_root(),
        };
        Flavor::ALL.into_iter().filter(chosen).collect()
    }

    fn is_there(self) -> bool {
        packages::runtime_is_there() && (self == Flavor::Debian || pinned::is_built())
    }
}

/// How to start it.
#[derive(Debug, Clone)]
pub struct StartOptions {
    pub flavor: Flavor,
    /// `info`, or `debug` to see every call in the log.
    pub log_level: &'static str,
    /// Whether the test images are there from the start.
    pub import_images: bool,
}

impl StartOptions {
    pub fn new(flavor: Flavor) -> StartOptions {
        StartOptions { flavor, log_level: "info", import_images: true }
    }
}

/// A running containerd. Dropping it removes everything it made.
#[derive(Debug)]
pub struct Containerd {
    flavor: Flavor,
    log_level: &'static str,
    binaries: Binaries,
    scratch: Scratch,
    network: Network,
    daemon: Mutex<Option<Child>>,
    removed: bool,
}

impl Containerd {
    pub fn start(options: StartOptions) -> Result<Containerd> {
        if !rustix::process::geteuid().is_root() {
            bail!("running containers needs root");
        }
        let binaries = Binaries::find(options.flavor)?;
        let (scratch, network) = Scratch::claim()?;
        // From here on, dropping it cleans up.
        let containerd = Containerd {
            flavor: options.flavor,
            log_level: options.log_level,
            binaries,
            scratch,
            network,
            daemon: Mutex::new(None),
            removed: false,
        };
        containerd.write_config()?;
        containerd.start_daemon_again()?;
        if options.import_images {
            containerd.import_all()?;
        }
        Ok(containerd)
    }

    /// For `--container-runtime-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.scratch.socket().display())
    }

    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub fn network(&self) -> Network {
        self.network
    }

    /// The daemon's process, while it runs.
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.lock().unwrap().as_ref().map(Child::id)
    }

    /// Runs `ctr` in Kubernetes' namespace and gives what it printed.
    pub fn ctr(&self, args: &[&str]) -> Result<String> {
        output_of(self.ctr_command().args(args))
    }

    /// The same, not yet run: for a caller that wants its pipes.
    pub fn ctr_command(&self) -> Command {
        let mut command = Command::new(&self.binaries.ctr);
        command.arg("--address").arg(self.scratch.socket()).args(["--namespace", "k8s.io"]);
        command
    }

    /// Runs a command in a container without a pod, to its end, and gives its output.
    pub fn run(&self, image: &str, id: &str, command: &[&str]) -> Result<String> {
        output_of(self.run_command("--rm").args([image, id]).args(command))
    }

    /// Starts a command in a container without a pod, and lets it run.
    pub fn run_detached(&self, image: &str, id: &str, command: &[&str]) -> Result<()> {
        output_of(self.run_command("--detach").args([image, id]).args(command))?;
        Ok(())
    }

    /// `ctr` takes nothing of this from the daemon's configuration.
    fn run_command(&self, how: &str) -> Command {
        let mut ctr = self.ctr_command();
        ctr.args(["run", how, "--snapshotter", self.snapshotter()]);
        ctr.arg("--runc-binary").arg(&self.binaries.runc).arg("--runc-root").arg(self.scratch.runc_root());
        ctr.arg("--fifo-dir").arg(self.scratch.dir().join("fifo"));
        ctr
    }

    /// Imports archives of images.
    pub fn import(&self, archives: &[PathBuf]) -> Result<()> {
        for archive in archives {
            let path = archive.to_string_lossy();
            self.ctr(&["images", "import", "--snapshotter", self.snapshotter(), &path])?;
        }
        Ok(())
    }

    /// Imports the test images and waits until the CRI side of the daemon knows them.
    pub fn import_all(&self) -> Result<()> {
        self.import(&images::ensure()?)?;
        // CRI takes images over on the daemon's internal event, and marks each one then: nothing else tells.
        let managed = || self.ctr(&["images", "ls", "-q", "labels.\"io.cri-containerd.image\"==managed"]);
        let all_known = || {
            let known = managed().unwrap_or_default();
            images::ALL.iter().all(|image| known.lines().any(|line| line == *image))
        };
        if !wait::until(Deadline::after(Duration::from_secs(20)), all_known) {
            bail!("containerd imported the images, but its CRI side does not know them:\n{}", managed()?);
        }
        Ok(())
    }

    /// SIGKILL for the daemon alone. Shims and containers live on, as they would on a node.
    pub fn kill9_daemon(&self) -> Result<()> {
        let Some(mut child) = self.daemon.lock().unwrap().take() else { bail!("containerd does not run") };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts the daemon on the state that is there, and waits until it serves.
    pub fn start_daemon_again(&self) -> Result<()> {
        let mut daemon = self.daemon.lock().unwrap();
        if daemon.is_some() {
            bail!("containerd runs already");
        }
        guard::refuse_when_stopping()?;
        let ready = ReadySocket::bind(&self.scratch.dir().join("ready.sock"))?;
        let log = fs::File::options().create(true).append(true).open(self.scratch.containerd_log())?;
        let mut command = Command::new(&self.binaries.containerd);
        command
            .arg("--config")
            .arg(self.scratch.containerd_config())
            .args(["--log-level", self.log_level])
            .env("PATH", self.binaries.path()?)
            .env("NOTIFY_SOCKET", &ready.path)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Out of the terminal's group: Ctrl-C is for us, and we stop things in order.
            .process_group(0);
        let child = command.spawn().context("cannot start `containerd`")?;
        let child = daemon.insert(child);
        self.scratch.note_process("containerd", child.id())?;
        if let Err(error) = ready.wait(child.id()) {
            let mut child = daemon.take().expect("it was just put there");
            let _ = child.kill();
            let _ = child.wait();
            return Err(error.context(format!("containerd did not start:\n{}", self.log_tail(20))));
        }
        Ok(())
    }

    /// The last lines of the daemon's log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail_of(&self.scratch.containerd_log(), lines)
    }

    /// What is there of it and of its pods; also right after [`Containerd::stop`] would be too late to ask.
    pub fn leftovers(&self) -> Leftovers {
        let alive = self.daemon.lock().unwrap().is_some();
        let list = |kind: &str| {
            let filter = format!("labels.\"io.cri-containerd.kind\"{kind}sandbox");
            let listed = if alive { self.ctr(&["containers", "ls", "-q", &filter]).ok() } else { None };
            listed.map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let from_disk = || fs::read_dir(self.scratch.state().join("io.containerd.runtime.v2.task/k8s.io"));
        let containers = list("!=").unwrap_or_else(|| {
            from_disk()
                .into_iter()
                .flatten()
                .filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into()))
                .collect()
        });
        Leftovers::find(&self.scratch, self.network, containers, list("==").unwrap_or_default())
    }

    /// Removes everything and checks that nothing is left.
    pub fn stop(mut self) -> Result<()> {
        self.remove()?;
        let left = Leftovers::find(&self.scratch, self.network, Vec::new(), Vec::new());
        if !left.nothing() {
            bail!("after the removal there is still:\n{left}");
        }
        Ok(())
    }

    /// Leaves everything running for later, e.g. for `demo --keep`.
    pub fn keep(mut self) -> Result<Scratch> {
        self.scratch.keep()?;
        self.removed = true;
        Ok(self.scratch.clone())
    }

    fn remove(&mut self) -> Result<()> {
        if self.removed {
            return Ok(());
        }
        self.removed = true;
        if let Some(mut child) = self.daemon.get_mut().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        teardown::remove(&self.scratch)
    }

    fn write_config(&self) -> Result<()> {
        let socket = self.scratch.socket();
        let longest = self.scratch.shim_sockets().as_os_str().len() + 1 + 64;
        if longest > LONGEST_SOCKET_PATH {
            bail!("`{}` is too long for sockets\nhint: set `TMPDIR` to a shorter path", socket.display());
        }
        for folder in [self.scratch.cni_conf(), self.scratch.shim_sockets()] {
            fs::create_dir_all(folder)?;
        }
        fs::write(self.scratch.cni_conf().join("10-crablet.conflist"), self.network.conflist(&self.scratch))?;
        let inputs = config::Inputs {
            major_version: self.binaries.major_version,
            runc: &self.binaries.runc,
            cni_plugins: &self.binaries.cni_plugins,
            snapshotter: self.snapshotter(),
        };
        fs::write(self.scratch.containerd_config(), config::text(&self.scratch, &inputs))?;
        Ok(())
    }

    /// Overlay on overlay does not work, and in a container the temporary folder often is one: copies then.
    fn snapshotter(&self) -> &'static str {
        const OVERLAYFS: i64 = 0x794c_7630;
        let on_overlay = rustix::fs::statfs(self.scratch.dir()).is_ok_and(|stat| stat.f_type == OVERLAYFS);
        if on_overlay { "native" } else { "overlayfs" }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            say::note(format!("could not remove all of containerd: {error:#}"));
        }
    }
}

/// The last lines of a text file, for error messages.
pub(crate) fn tail_of(path: &Path, lines: usize) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

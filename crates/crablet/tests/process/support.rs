//! An agent with a home of its own, and nobody around it but us: its supervisor.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crablet_testbed::agent::free_port;
use crablet_testbed::process::{ProcessId, wait_child};
use crablet_testbed::wait::{self, Changes, Deadline};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const CRABLET: &str = env!("CARGO_BIN_EXE_crablet");

/// Folders and a configuration file, removed at the end.
pub struct Home {
    dir: TempDir,
    pub healthz: u16,
}

impl Home {
    pub fn new() -> Result<Self> {
        let home = Self { dir: tempfile::tempdir()?, healthz: free_port()? };
        fs::create_dir(home.path("manifests"))?;
        home.configure("")?;
        Ok(home)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A configuration with these lines added.
    pub fn configuration(&self, lines: &str) -> String {
        format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}}}\n\
             authorization: {{mode: AlwaysAllow}}\nfailCgroupV1: false\nfailSwapOn: false\n\
             staticPodPath: {}\npodLogsDir: {}\ncontainerRuntimeEndpoint: unix://{}\n{lines}\n",
            self.path("manifests").display(),
            self.path("pod-logs").display(),
            self.path("no-runtime.sock").display(),
        )
    }

    /// Replaced in one step, as configuration management does it.
    pub fn configure(&self, lines: &str) -> Result<()> {
        fs::write(self.path("config.new"), self.configuration(lines))?;
        Ok(fs::rename(self.path("config.new"), self.path("config.yaml"))?)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(CRABLET);
        command
            .arg("--config")
            .arg(self.path("config.yaml"))
            .arg("--root-dir")
            .arg(self.path("root"))
            .arg("--container-logs-dir")
            .arg(self.path("container-logs"))
            .args(["--hostname-override", "node1", "--healthz-port", &self.healthz.to_string()])
            .args(args);
        command
    }

    pub fn start(&self, args: &[&str]) -> Result<Running> {
        Running::start(self.command(args), self.dir.path())
    }
}

/// A started process. Killed when dropped.
pub struct Running {
    pub child: Child,
    log: PathBuf,
    told: UnixDatagram,
}

impl Running {
    /// Its log and its supervisor's socket are in `home`.
    pub fn start(mut command: Command, home: &Path) -> Result<Self> {
        let number = fs::read_dir(home)?.count();
        let (log, socket) = (home.join(format!("log-{number}")), home.join(format!("notify-{number}")));
        let told = UnixDatagram::bind(&socket)?;
        told.set_read_timeout(Some(PATIENCE))?;
        let file = File::create(&log)?;
        command.env("NOTIFY_SOCKET", &socket).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: command.spawn()?, log, told })
    }

    pub fn id(&self) -> ProcessId {
        ProcessId::of(self.child.id()).expect("a child that was not waited for has an entry")
    }

    /// Waits until it tells its supervisor this.
    pub fn wait_told(&self, state: &str) -> Result<()> {
        let mut buffer = [0; 256];
        loop {
            let length = self.told.recv(&mut buffer).with_context(|| {
                format!("it never said {state}; its log:\n{}", self.log().unwrap_or_default())
            })?;
            if &buffer[..length] == state.as_bytes() {
                return Ok(());
            }
        }
    }

    pub fn wait_ready(&self) -> Result<()> {
        self.wait_told("READY=1")
    }

    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Waits until a line of its log has all of these, and gives it.
    pub fn wait_log(&self, parts: &[&str]) -> Result<String> {
        let deadline = Deadline::after(PATIENCE);
        let changes = Changes::of(&self.log)?;
        loop {
            changes.drain();
            let log = self.log()?;
            if let Some(line) = log.lines().find(|line| parts.iter().all(|part| line.contains(part))) {
                return Ok(line.to_owned());
            }
            if deadline.passed() {
                bail!("no line with {parts:?} in its log:\n{log}");
            }
            wait::readable(&[changes.fd().as_fd()], deadline)?;
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        self.id().signal(signal);
    }

    /// Waits for its end.
    pub fn wait_end(&mut self) -> Result<ExitStatus> {
        let status = wait_child(&mut self.child, PATIENCE)?;
        status.with_context(|| format!("it does not end; its log:\n{}", self.log().unwrap_or_default()))
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(rustix::process::Signal::TERM);
        self.wait_end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

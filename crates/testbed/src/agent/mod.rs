//! The `crablet` binary as a child process, driven and watched from outside as an administrator would.

mod builder;
mod snapshot;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

pub use self::builder::{AgentBuilder, free_port};
pub use self::snapshot::{PodLine, RuntimeLine, Snapshot};
use crate::containerd::{Containerd, tail_of};
use crate::scratch::Scratch;
use crate::wait::{self, Changes, Deadline};
use crate::{guard, http, process};

/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How long the agent may take to leave after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(20);

/// An agent with its folders. All methods take `&self`: one thread may wait while another kills and restarts.
/// Dropping it kills it; its folders go with the runtime's.
pub struct Agent {
    name: String,
    binary: PathBuf,
    scratch: Scratch,
    endpoint: String,
    node_name: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    home: PathBuf,
    ports: Ports,
    life: Mutex<Life>,
}

#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub healthz: u16,
    pub read_only: u16,
}

/// `NotStarted → Running → Stopped → Running → ...`; `Running → Left` when it ended without being asked to.
enum Life {
    NotStarted,
    Running(Child),
    /// We ended it; it may be started again.
    Stopped,
    /// It ended by itself: whoever waits for something should hear that at once.
    Left(ExitStatus),
}

impl Agent {
    pub fn builder(binary: impl AsRef<Path>, containerd: &Containerd) -> AgentBuilder {
        AgentBuilder::new(binary.as_ref(), containerd)
    }

    pub fn start(&self) -> Result<()> {
        let mut life = self.life.lock().unwrap();
        if let Life::Running(_) = *life {
            bail!("the agent runs already");
        }
        guard::refuse_when_stopping()?;
        let log = fs::File::options().create(true).append(true).open(self.log_path())?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start `{}`", self.binary.display()))?;
        self.scratch.note_process(&self.name, child.id())?;
        *life = Life::Running(child);
        Ok(())
    }

    /// The command line, as it is run.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("--pod-manifest-path")
            .arg(self.manifest_dir())
            .args(["--container-runtime-endpoint", &self.endpoint])
            .arg("--root-dir")
            .arg(self.root_dir())
            .args(["--hostname-override", &self.node_name])
            .args(["--healthz-port", &self.ports.healthz.to_string()])
            .args(["--read-only-port", &self.ports.read_only.to_string()])
            .arg("--config")
            .arg(self.home.join("config.yaml"))
            .arg("--container-logs-dir")
            .arg(self.container_logs_dir())
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn pid(&self) -> Option<u32> {
        match &*self.life.lock().unwrap() {
            Life::Running(child) => Some(child.id()),
            _ => None,
        }
    }

    /// SIGKILL: what a crash or the OOM killer does.
    pub fn kill9(&self) -> Result<()> {
        let mut life = self.life.lock().unwrap();
        let Life::Running(child) = &mut *life else { bail!("the agent does not run") };
        child.kill()?;
        child.wait()?;
        *life = Life::Stopped;
        Ok(())
    }

    /// SIGTERM and a wait, then SIGKILL. The error says that it had to be killed, or how it failed.
    pub fn stop(&self) -> Result<()> {
        let mut life = self.life.lock().unwrap();
        let Life::Running(child) = &mut *life else { return Ok(()) };
        kill_process(Pid::from_child(child), Signal::TERM)?;
        let left = process::wait_child(child, FAREWELL)?;
        if left.is_none() {
            child.kill()?;
            child.wait()?;
        }
        *life = Life::Stopped;
        match left {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the agent left with {status} after SIGTERM\n{}", self.log_tail(20)),
            None => bail!(
                "the agent did not leave within {} s of SIGTERM\n{}",
                FAREWELL.as_secs(),
                self.log_tail(20)
            ),
        }
    }

    /// [`Agent::stop`] and [`Agent::start`].
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    pub fn ports(&self) -> Ports {
        self.ports
    }

    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn root_dir(&self) -> PathBuf {
        self.home.join("root")
    }

    pub fn manifest_dir(&self) -> PathBuf {
        self.home.join("manifests")
    }

    pub fn pod_logs_dir(&self) -> PathBuf {
        self.home.join("pod-logs")
    }

    pub fn container_logs_dir(&self) -> PathBuf {
        self.home.join("container-logs")
    }

    pub fn log_path(&self) -> PathBuf {
        self.home.join("agent.log")
    }

    pub fn log_tail(&self, lines: usize) -> String {
        tail_of(&self.log_path(), lines)
    }

    /// The local API's socket.
    pub fn socket(&self) -> PathBuf {
        self.root_dir().join("crablet.sock")
    }

    /// Puts a manifest into the folder in one step: a name that is ignored first, then the real one.
    pub fn put_manifest(&self, name: &str, text: &str) -> Result<()> {
        let temporary = self.manifest_dir().join(format!(".{name}.new"));
        fs::write(&temporary, text)?;
        fs::rename(&temporary, self.manifest_dir().join(name))?;
        Ok(())
    }

    pub fn remove_manifest(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifest_dir().join(name))
            .with_context(|| format!("cannot remove manifest `{name}`"))
    }

    /// A GET on one of the agent's ports, on the loopback address.
    pub fn http_get(&self, port: u16, path: &str) -> Result<(u16, String)> {
        let response = http::tcp((Ipv4Addr::LOCALHOST, port).into(), "GET", path, Deadline::after(REQUEST))?;
        Ok((response.status, response.text()?))
    }

    /// A request to the local API.
    pub fn unix(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let response = http::unix(&self.socket(), method, path, body, Deadline::after(REQUEST))?;
        Ok((response.status, response.text()?))
    }

    /// Waits until the agent reports what `condition` wants, and gives that report. Connects again when the agent was
    /// restarted meanwhile. The error shows the last report and the end of the agent's log.
    pub fn wait_for(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&Snapshot) -> bool,
    ) -> Result<Snapshot> {
        let deadline = Deadline::after(limit);
        let mut last = None;
        loop {
            match self.follow(deadline, &mut condition, &mut last) {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Ok(None) if !deadline.passed() => continue,
                Ok(None) => return Err(self.disappointment(limit, &last, anyhow!("the deadline passed"))),
                Err(error) => return Err(self.disappointment(limit, &last, error)),
            }
        }
    }

    /// Follows one connection; `None` when it ended without what was wanted.
    fn follow(
        &self,
        deadline: Deadline,
        condition: &mut impl FnMut(&Snapshot) -> bool,
        last: &mut Option<Snapshot>,
    ) -> Result<Option<Snapshot>> {
        let Some(response) = self.connect(deadline)? else { return Ok(None) };
        if response.status != 200 {
            let status = response.status;
            bail!("`GET /watch` answered {status}: {}", response.text().unwrap_or_default());
        }
        for line in response.lines() {
            // A broken stream is a killed agent or the deadline: the caller looks at both.
            let Ok(line) = line else { return Ok(None) };
            if line.is_empty() {
                continue;
            }
            let snapshot: Snapshot = serde_json::from_str(&line)
                .with_context(|| format!("a report that cannot be read: {line}"))?;
            if condition(&snapshot) {
                return Ok(Some(snapshot));
            }
            *last = Some(snapshot);
        }
        Ok(None)
    }

    /// Connects as soon as the agent listens. Fails when it ended by itself.
    fn connect(&self, deadline: Deadline) -> Result<Option<http::Response>> {
        let changes = Changes::of(&self.root_dir())?;
        while let Some(left) = deadline.left() {
            // Forget first, then try: what happens after the try wakes the wait below.
            changes.drain();
            if let Ok(response) = http::unix(&self.socket(), "GET", "/watch", "", deadline) {
                return Ok(Some(response));
            }
            let process = self.running()?;
            // A socket is bound before it listens, and only the first makes an event: look again after a moment.
            let short = Deadline::after(left.min(Duration::from_millis(250)));
            match &process {
                Some(process) => wait::readable(&[changes.fd(), process.as_fd()], short)?,
                None => wait::readable(&[changes.fd()], short)?,
            };
        }
        Ok(None)
    }

    /// A descriptor that is readable once the agent ended; none while we keep it stopped.
    fn running(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        let mut life = self.life.lock().unwrap();
        if let Life::Running(child) = &mut *life {
            match child.try_wait()? {
                None => return Ok(Some(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)),
                Some(status) => *life = Life::Left(status),
            }
        }
        match &*life {
            Life::Left(status) => bail!("the agent ended by itself: {status}"),
            _ => Ok(None),
        }
    }

    fn disappointment(&self, limit: Duration, last: &Option<Snapshot>, why: anyhow::Error) -> anyhow::Error {
        let last = last.as_ref().map_or("none\n".into(), Snapshot::to_string);
        anyhow!(
            "waited up to {} s for the agent: {why:#}\nlast report: {last}end of its log:\n{}",
            limit.as_secs(),
            self.log_tail(30)
        )
    }

    /// Waits until `text` is in the agent's log.
    pub fn wait_for_log(&self, limit: Duration, text: &str) -> Result<()> {
        let deadline = Deadline::after(limit);
        let changes = Changes::of(&self.log_path())?;
        loop {
            changes.drain();
            if String::from_utf8_lossy(&fs::read(self.log_path())?).contains(text) {
                return Ok(());
            }
            let process = self.running()?;
            let fds: Vec<_> =
                std::iter::once(changes.fd()).chain(process.as_ref().map(|fd| fd.as_fd())).collect();
            if deadline.passed() {
                bail!(
                    "`{text}` is not in the agent's log after {} s:\n{}",
                    limit.as_secs(),
                    self.log_tail(30)
                );
            }
            wait::readable(&fds, deadline)?;
        }
    }

    /// Where a pod's container port is reached from this machine.
    pub fn address_of(pod: &PodLine, port: u16) -> Result<SocketAddr> {
        let ip = pod.pod_ip.parse().with_context(|| format!("pod `{}` has no address", pod.name))?;
        Ok(SocketAddr::new(ip, port))
    }

    /// Lets it run on after this process; its runtime must be kept as well.
    pub fn keep(self) {
        *self.life.lock().unwrap() = Life::Stopped;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Life::Running(child) = self.life.get_mut().unwrap() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! A CSI driver of our own whose volumes are folders and files on this machine, as a process that tests can kill.
//!
//! | module | what it is |
//! |---|---|
//! | [`service`] | the driver: identity, controller, node, registration |
//! | `store` | its volumes, on disk, so that they outlive it |
//! | `faults` | what tests make it do wrong, and what it was asked |
//! | [`sanity`] | the public `csi-sanity`, which judges it |
//!
//! The program is `csi-hostpath` of this crate. It ends when its standard input does, so that none outlives its test.

mod faults;
pub mod sanity;
pub mod service;
mod store;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::mounts;
use crate::wait::{self, Deadline};

pub use faults::{Fault, Seen};

const START: Duration = Duration::from_secs(30);

/// How the driver is run. Everything of it lies below `home`.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    pub name: String,
    pub home: PathBuf,
    pub node_id: String,
    /// Where it registers with a kubelet: `<root-dir>/plugins_registry`.
    pub registry: Option<PathBuf>,
    /// Of `stage`, `stats`, `expand`, `condition`, `single-writers`, `mount-group`.
    pub capabilities: Vec<String>,
    pub max_volumes: i64,
    /// `key=value`, where the node is.
    pub topology: Option<String>,
}

impl DriverOptions {
    pub fn new(name: &str, home: &Path) -> Self {
        Self {
            name: name.to_owned(),
            home: home.to_owned(),
            node_id: "node-of-the-driver".to_owned(),
            registry: None,
            capabilities: ["stage", "stats", "expand"].map(String::from).to_vec(),
            max_volumes: 0,
            topology: None,
        }
    }

    pub fn endpoint(&self) -> PathBuf {
        self.home.join("csi.sock")
    }

    fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--name={}", self.name),
            format!("--home={}", self.home.display()),
            format!("--node-id={}", self.node_id),
            format!("--capabilities={}", self.capabilities.join(",")),
            format!("--max-volumes={}", self.max_volumes),
        ];
        all.extend(self.registry.iter().map(|path| format!("--registry={}", path.display())));
        all.extend(self.topology.iter().map(|place| format!("--topology={place}")));
        all
    }

    /// The way back, for the program itself.
    pub fn from_arguments(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::new("", Path::new(""));
        for argument in arguments {
            let Some((name, value)) = argument.split_once('=') else {
                bail!("`{argument}` is not understood")
            };
            match name {
                "--name" => options.name = value.to_owned(),
                "--home" => options.home = value.into(),
                "--node-id" => options.node_id = value.to_owned(),
                "--registry" => options.registry = Some(value.into()),
                "--capabilities" => {
                    options.capabilities =
                        value.split(',').filter(|c| !c.is_empty()).map(String::from).collect();
                }
                "--max-volumes" => options.max_volumes = value.parse().context("`--max-volumes`")?,
                "--topology" => options.topology = Some(value.to_owned()),
                _ => bail!("`{argument}` is not understood"),
            }
        }
        if options.name.is_empty() || options.home.as_os_str().is_empty() {
            bail!("`--name` and `--home` are needed");
        }
        Ok(options)
    }
}

/// The driver as a child. Dropping it ends it and takes its mounts away.
pub struct Driver {
    options: DriverOptions,
    child: Option<Child>,
}

impl Driver {
    pub fn start(options: DriverOptions) -> Result<Self> {
        fs::create_dir_all(&options.home)?;
        let mut driver = Self { options, child: None };
        driver.restart()?;
        Ok(driver)
    }

    /// Starts it, again if it runs.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9();
        let log = fs::File::options().create(true).append(true).open(self.options.home.join("driver.log"))?;
        let program = program()?;
        let child = Command::new(&program)
            .args(self.options.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        self.child = Some(child);
        let endpoint = self.options.endpoint();
        let serves = || std::os::unix::net::UnixStream::connect(&endpoint).is_ok();
        if !wait::until(Deadline::after(START), serves) {
            bail!("the CSI driver does not serve at `{}`", endpoint.display());
        }
        Ok(())
    }

    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it as a good driver ends: its sockets go with it.
    pub fn retire(&mut self) {
        self.kill9();
        let _ = fs::remove_file(self.options.endpoint());
        if let Some(registry) = &self.options.registry {
            let _ = fs::remove_file(service::registration_socket(registry, &self.options.name));
        }
    }

    pub fn options(&self) -> &DriverOptions {
        &self.options
    }

    /// A volume of this many bytes; gives its handle.
    pub fn create_volume(&self, name: &str, bytes: i64) -> Result<String> {
        Ok(store::Store::new(&self.options.home).create(name, bytes)?.id)
    }

    /// The folder whose content a mounted volume shows.
    pub fn content(&self, volume: &str) -> PathBuf {
        store::Store::new(&self.options.home).content(volume)
    }

    /// The volume is unwell from now on.
    pub fn make_sick(&self, volume: &str, why: &str) -> Result<()> {
        store::Store::new(&self.options.home).make_sick(volume, why)
    }

    /// How large the node has made it.
    pub fn size_on_node(&self, volume: &str) -> Option<i64> {
        store::Store::new(&self.options.home).find(volume).ok().flatten().map(|volume| volume.node_bytes)
    }

    /// Of a method, or of `<method>@<volume>`.
    pub fn fault(&self, method: &str, fault: &Fault) -> Result<()> {
        faults::set(&self.options.home, method, Some(fault))
    }

    pub fn heal(&self, method: &str) -> Result<()> {
        faults::set(&self.options.home, method, None)
    }

    /// All that it was asked, by any life of it.
    pub fn seen(&self) -> Vec<Seen> {
        faults::seen(&self.options.home)
    }

    /// The methods that were begun, without those that only ask.
    pub fn changes(&self) -> Vec<String> {
        let asks = ["NodeGetCapabilities", "NodeGetInfo", "NodeGetVolumeStats"];
        let begun = self.seen().into_iter().filter(|seen| seen.begun && !asks.contains(&&*seen.method));
        begun.map(|seen| seen.method).collect()
    }

    /// Forgets what it was asked.
    pub fn forget_seen(&self) -> Result<()> {
        faults::forget(&self.options.home)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.retire();
        let _ = store::Store::new(&self.options.home).let_go_of_devices();
        let _ = mounts::remove_below(&self.options.home);
    }
}

/// Beside the tests that are running; built if it is not there or older than its source, since only tests of this crate
/// and of the whole workspace build it by themselves.
fn program() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder =
        test.ancestors().find(|path| path.join("deps").is_dir()).context("not a program of cargo")?;
    let path = folder.join("csi-hostpath");
    if !is_fresh(&path) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "crablet-testbed", "--bin", "csi-hostpath"]);
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if !build.status().context("cannot run `cargo`")?.success() || !path.exists() {
            bail!("`csi-hostpath` cannot be built");
        }
    }
    Ok(path)
}

fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    let Some(built) = changed(program) else { return false };
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/csi")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if changed(&path).is_some_and(|changed| changed > built) {
            return false;
        }
    }
    true
}

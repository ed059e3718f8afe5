//! What the machine is like. Plain values, so that a test can make up any machine.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crablet_cri::CriError;
use crablet_cri::client::preflight::Description;
use crablet_model::cgroup::CgroupDriver;
use crablet_model::runtime::RuntimeVersion;
use jiff::Timestamp;

/// A fact, or why it could not be had.
pub type Read<T> = Result<T, Unread>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The machine did not answer in time: a hung mount, say.
    TooLate,
    Failed(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLate => write!(f, "no answer within {} s", super::read::LIMIT.as_secs()),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Facts {
    pub privileges: Read<Privileges>,
    pub kernel: Read<Kernel>,
    pub sysctls: Read<Sysctls>,
    pub cgroups: Read<Cgroups>,
    pub swaps: Read<Vec<Swap>>,
    pub memory: Read<Memory>,
    pub runtime: Read<Runtime>,
    pub disks: Vec<Disk>,
    pub listeners: Read<Vec<Listener>>,
    pub processes: Read<Vec<Process>>,
    pub clock: Clock,
    pub resolv_conf: Read<String>,
    pub machine_id: Read<String>,
    pub static_pods: Read<Option<Owned>>,
    pub credentials: Credentials,
    pub open_files: Read<OpenFiles>,
    pub tools: Read<Vec<String>>,
    pub security: Read<Security>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    pub uid: u32,
    /// A bit for each, as the kernel numbers them.
    pub capabilities: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    pub overlay: Module,
    pub br_netfilter: Module,
    /// Names below `/proc/self/ns`.
    pub namespaces: Vec<String>,
    pub seccomp: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Module {
    /// In the kernel, or loaded.
    Here,
    /// A file of the kernel's modules.
    Loadable,
    #[default]
    Absent,
}

/// By dotted name. Those that this kernel does not have are left out.
pub type Sysctls = BTreeMap<&'static str, i64>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    pub version: CgroupVersion,
    /// Those that can be used: mounted (version 1) or offered by the root (version 2).
    pub controllers: Vec<String>,
    pub read_only: bool,
    /// The name of process 1.
    pub init: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    None,
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    pub name: String,
    pub kib: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub socket: Socket,
    /// Sockets of runtimes in the places where they usually are.
    pub other_sockets: Vec<PathBuf>,
    /// `None`: there is no socket to ask.
    pub answers: Option<Answers>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    Here,
    Missing,
    /// Something that is not a socket has its name.
    SomethingElse,
    Unreadable(String),
}

/// What the runtime said to each question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    pub version: Result<RuntimeVersion, CriError>,
    pub description: Result<Description, CriError>,
    pub cgroup_driver: Result<Option<CgroupDriver>, CriError>,
    pub image_filesystems: Result<Vec<PathBuf>, CriError>,
    pub events: Result<(), CriError>,
    /// The image of every sandbox and whether it is here, if the runtime tells.
    pub sandbox_image: Option<(String, Result<bool, CriError>)>,
    /// The runtime's CNI folders, if it tells.
    pub cni: Option<Cni>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cni {
    pub configuration_dir: PathBuf,
    /// `None`: cannot be listed.
    pub configurations: Option<Vec<String>>,
    pub plugin_dir: PathBuf,
    pub plugins: Option<Vec<String>>,
}

/// A folder that the agent or the runtime writes to, and the file system below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub role: DiskRole,
    pub path: PathBuf,
    pub state: Read<DiskState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRole {
    Root,
    PodLogs,
    Images,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskState {
    /// The folder itself, or the nearest one above it that exists.
    pub existing: PathBuf,
    pub space: Amount,
    pub inodes: Amount,
    pub mount: Option<Mount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub total: u64,
    pub free: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub kind: String,
    pub options: Vec<String>,
    /// The options of the file system, as opposed to those of this mount of it.
    pub super_options: Vec<String>,
    /// Mounts below it are seen in other mount namespaces.
    pub shared: bool,
}

/// Somebody listens on a port that the agent wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    /// `None`: not found out.
    pub holder: Option<Process>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    pub now: Timestamp,
    /// systemd-timesyncd says that it has set the clock.
    pub synchronised: bool,
}

/// Who may change a file or folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub folder: bool,
}

/// Files that let the agent prove who it is, and tell who others are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credentials {
    pub kubeconfig: Option<Read<Kubeconfig>>,
    /// Is there anything under the name of the bootstrap kubeconfig?
    pub bootstrap: bool,
    pub certificates: Vec<Certificate>,
    /// Files that nobody else may read.
    pub secrets: Vec<Secret>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubeconfig {
    pub server: String,
    pub insecure: bool,
    pub identity: Identity,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    Certificate,
    Token,
    Program,
    Password,
    #[default]
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub role: &'static str,
    /// The path, or what it is a part of.
    pub source: String,
    /// Of each certificate in it.
    pub validity: Read<Vec<Validity>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub role: &'static str,
    pub path: PathBuf,
    pub owned: Read<Owned>,
}

/// `u64::MAX` means no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    pub soft: u64,
    pub hard: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    pub app_armor: bool,
    /// `None`: not in this kernel, or off. `Some(true)`: enforcing.
    pub selinux: Option<bool>,
}

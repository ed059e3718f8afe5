//! What is asked of a container runtime, and what it reports: CRI's meaning without its wire format.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;

pub use crate::env_value::EnvValue;
use crate::ids::PodUid;
pub use crate::resources::LinuxResources;

pub type Map = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    Ready,
    NotReady,
}

/// One sandbox as an inspection saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub uid: PodUid,
    pub name: String,
    pub namespace: String,
    pub attempt: u32,
    pub state: SandboxState,
    pub created_at: Timestamp,
    /// Empty in listings: only a status call knows addresses.
    pub ips: Vec<IpAddr>,
    /// The sandbox uses the node's network. Only a status call knows.
    pub host_network: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running { started_at: Timestamp },
    Exited(Exit),
    Unknown,
}

impl ContainerState {
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Exited(exit) => Some(exit),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub reason: String,
    pub message: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

/// One container instance as an inspection saw it. Pod, name and restart count come from the labels and annotations
/// that the agent put on it, so that a restarted agent knows its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub sandbox_id: String,
    pub uid: PodUid,
    pub name: String,
    pub restart_count: u32,
    /// `io.kubernetes.container.hash`, empty where it is missing.
    pub hash: String,
    pub created_at: Timestamp,
    pub state: ContainerState,
    /// The image as the runtime names it.
    pub image: String,
    /// What the API calls `imageID`.
    pub image_ref: String,
    pub annotations: Map,
    pub log_path: String,
    /// Host path of the termination message file, when the container has one mounted.
    pub termination_file: Option<String>,
    /// The user the runtime says the container runs as.
    pub user: Option<ContainerUser>,
    /// What the runtime says that the container may use; `None` where it does not say.
    pub resources: Option<LinuxResources>,
    /// What the runtime says it sends to end the container, as the API names it; `None` where it does not say.
    pub stop_signal: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUser {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

/// An entry of a container listing: enough to see that something changed, not enough to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerListing {
    pub id: String,
    pub sandbox_id: String,
    pub uid: PodUid,
    pub pod_name: String,
    pub pod_namespace: String,
    pub name: String,
    pub state: ListedState,
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedState {
    Created,
    Running,
    Exited,
    Unknown,
}

/// Everything the runtime has of one pod, newest first: sandboxes by attempt, containers by restart count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRuntime {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

impl PodRuntime {
    /// Sandboxes by attempt, then age, then id, as upstream sorts them. Containers by restart count first, where upstream has
    /// their age first: of one container it is the same, unless the clock was set back. What a call made that nobody waited
    /// for any longer, beside an instance that runs, comes last.
    pub fn sorted(mut self) -> Self {
        let late = self.latecomers();
        self.sandboxes.sort_by(|a, b| {
            (b.attempt, b.created_at).cmp(&(a.attempt, a.created_at)).then_with(|| a.id.cmp(&b.id))
        });
        self.containers.sort_by(|a, b| {
            let is_late = |c: &Container| late.contains(&c.id);
            (is_late(a), b.restart_count, b.created_at)
                .cmp(&(is_late(b), a.restart_count, a.created_at))
                .then_with(|| a.id.cmp(&b.id))
        });
        self
    }

    /// Ids of instances that were only created while another one of the same container runs beside them.
    fn latecomers(&self) -> Vec<String> {
        let runs_beside = |late: &Container| {
            let same = |c: &&Container| c.name == late.name && c.sandbox_id == late.sandbox_id;
            self.containers.iter().filter(same).any(|c| c.state.is_running())
        };
        let created = self.containers.iter().filter(|c| c.state == ContainerState::Created);
        created.filter(|c| runs_beside(c)).map(|c| c.id.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Instances of one container, newest first.
    pub fn instances<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(move |c| c.name == name)
    }
}

/// What the runtime says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Why it is not ready, in the runtime's words; `None` when it is.
    pub problem: Option<String>,
    /// The same of its network.
    pub network_problem: Option<String>,
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it can do `supplementalGroupsPolicy`; `None` where it does not say.
    pub supplemental_groups_policy: Option<bool>,
}

impl RuntimeStatus {
    pub fn is_ready(&self) -> bool {
        self.problem.is_none() && self.network_problem.is_none()
    }

    /// All problems in one line.
    pub fn message(&self) -> String {
        let problems: Vec<&str> =
            [&self.problem, &self.network_problem].into_iter().flatten().map(String::as_str).collect();
        problems.join(", ")
    }
}

/// A way to run a sandbox, such as runc or a virtual machine. The default one often has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeHandler {
    pub name: String,
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    pub runtime_name: String,
    pub runtime_version: String,
    pub api_version: String,
}

/// A hint that something happened to a pod. Facts come from the inspection that it triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// `None` where the runtime did not say which pod: then every pod is looked at.
    pub uid: Option<PodUid>,
    pub container_id: String,
    pub kind: RuntimeEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeEventKind {
    Created,
    Started,
    Stopped,
    Deleted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    #[default]
    Pod,
    Container,
    Node,
    /// That of another container, which `target_id` names.
    Target,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    /// Whose processes are seen with [`NamespaceMode::Target`]; empty otherwise.
    pub target_id: String,
    /// The node's users that stand for the pod's; `None` where they are the same.
    pub users: Option<IdRange>,
}

/// Users and groups of the node, as many as a pod has, from the one that is root to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    pub host_id: u32,
    pub length: u32,
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecurityProfile {
    #[default]
    RuntimeDefault,
    Unconfined,
    /// One of the node's own: a file for seccomp, a name for AppArmor.
    Localhost(String),
}

/// Which groups of the image's own a container's user has besides those that the pod names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupsPolicy {
    /// All that the image gives to the user.
    #[default]
    Merge,
    /// None.
    Strict,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    pub protocol: Protocol,
    pub container_port: i32,
    pub host_port: i32,
    pub host_ip: String,
}

/// The parts of an SELinux label; what is empty is the runtime's to choose. A node without SELinux pays no heed to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelinuxLabel {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    pub name: String,
    pub namespace: String,
    pub uid: PodUid,
    pub attempt: u32,
    pub hostname: String,
    pub log_directory: String,
    pub dns: DnsConfig,
    pub port_mappings: Vec<PortMapping>,
    pub labels: Map,
    pub annotations: Map,
    pub cgroup_parent: String,
    /// Empty for the runtime's default.
    pub runtime_handler: String,
    pub sysctls: Map,
    pub namespaces: NamespaceOptions,
    pub privileged: bool,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub supplemental_groups: Vec<i64>,
    pub groups_policy: GroupsPolicy,
    pub seccomp: SecurityProfile,
    pub selinux: Option<SelinuxLabel>,
    /// What the pod's containers need together, without overhead.
    pub resources: LinuxResources,
    /// What the sandbox itself needs; nothing is set where it is not known.
    pub overhead: LinuxResources,
}

/// Which mounts that are made later show on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
    pub readonly: bool,
    pub selinux_relabel: bool,
    pub propagation: Propagation,
    /// What is mounted below is read-only, too.
    pub recursive_read_only: bool,
    /// The mount shows an image instead of a path of the host.
    pub image: Option<ImageMount>,
    /// As the pod's: files belong to the same numbers inside.
    pub users: Option<IdRange>,
}

/// An image, or a folder in it, as a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMount {
    pub image_ref: String,
    pub user_specified_image: String,
    /// Empty for all of it.
    pub sub_path: String,
}

/// A device of the node that a container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub container_path: String,
    pub host_path: String,
    /// Of `r`, `w` and `m`.
    pub permissions: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub add: Vec<String>,
    pub drop: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSecurity {
    pub privileged: bool,
    /// `None` where the pod says nothing of capabilities.
    pub capabilities: Option<Capabilities>,
    pub namespaces: NamespaceOptions,
    pub run_as_user: Option<i64>,
    /// Used when the image names its user and no numeric one was asked for.
    pub run_as_username: String,
    pub run_as_group: Option<i64>,
    pub readonly_rootfs: bool,
    pub supplemental_groups: Vec<i64>,
    pub groups_policy: GroupsPolicy,
    pub no_new_privs: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub seccomp: SecurityProfile,
    /// `None` leaves it to the runtime.
    pub apparmor: Option<SecurityProfile>,
    pub selinux: Option<SelinuxLabel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerConfig {
    pub name: String,
    pub attempt: u32,
    /// What the runtime is asked to run: an image id, or the reference that the pull returned.
    pub image_ref: String,
    pub user_specified_image: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub env: Vec<(String, EnvValue)>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub labels: Map,
    pub annotations: Map,
    /// Relative to the sandbox's log directory.
    pub log_path: String,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub resources: LinuxResources,
    /// Bytes of huge pages by their size (`2MB`); every size that the machine has is named.
    pub hugepage_limits: Vec<(String, u64)>,
    /// Bytes of memory and swap together; 0 says nothing.
    pub memory_swap_limit: i64,
    /// Files of cgroup v2 and what is to be written there.
    pub unified: Map,
    pub security: ContainerSecurity,
    /// What ends it, as the API names it; `None`: what its image says.
    pub stop_signal: Option<String>,
}

/// What a container that runs may use from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUpdate {
    pub resources: LinuxResources,
    /// As in [`ContainerConfig`].
    pub hugepage_limits: Vec<(String, u64)>,
    pub memory_swap_limit: i64,
    pub unified: Map,
}

/// An entry of the list of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedImage {
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    pub size: u64,
}

/// A part of an image that is on its way to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// As the runtime calls it, like `layer-sha256:…`.
    pub name: String,
    /// How many bytes are there.
    pub bytes: u64,
    /// How many there will be, where that is known.
    pub of: Option<u64>,
}

/// An image that is present on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub size: u64,
    /// The image's user, numeric or by name.
    pub uid: Option<i64>,
    pub username: String,
}

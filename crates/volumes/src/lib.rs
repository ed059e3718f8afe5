//! The volumes of pods: folders, mounts and files that containers get to see.
//!
//! ```text
//!   set_up(pod) ──> claims ──> plugins/* ──> VolumeHost (folders, payloads, mounts, tools)
//!        │ waits                  ^   ├────> Objects (config maps, secrets, tokens)
//!        └ attach                 │   └────> csi (drivers)
//!   updates (one task) ───────────┘ <── Objects::changes, pod_changed, token refresh times, the Node
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`port`] | [`VolumeHost`]: the file system and the mount table; [`VolumeEvents`]: who is told of failures |
//! | [`linux`] | the real one |
//! | `fake` | (feature `fake`) a host in memory that survives the agent's death |
//! | [`payload`] | what a volume of files shall hold, and which paths it may name |
//! | `plugins` | a file per kind of volume |
//! | [`csi`] | volumes of drivers |
//! | `claims` | from a claim to the volume that is bound to it |
//! | `migrated` | volumes on clouds' disks of old, in the words of their CSI drivers |
//! | [`attach`] | volumes that a controller attaches first |
//! | `certificates` | [`PodCertificates`]: who gets certificates for pods |
//! | `block` | volumes that containers get as devices |
//! | `devices`, `tenants` | what pods share: disks mounted once for the node; volumes for one pod at a time |
//! | [`selinux`] | mounts that carry their label |
//! | `ownership` | giving a volume to a group, with progress |
//! | `failure` | why a volume cannot be had, in upstream's words |
//! | `layout` | where things lie below `pods/<uid>` |
//! | `pod` | what of a pod matters to its volumes |
//! | `volumes` | [`Volumes`]: all pods, sub paths |
//! | `set_up` | setting up, and waiting for what others have to do first |
//! | `said` | telling of what keeps failing, and not too often |
//! | `slow` | telling what a pod waits for, and since when |
//! | `teardown` | taking away, also what an earlier life of the agent has left |
//! | [`figures`] | how often, how long and how full, for Prometheus |
//! | `growth` | the task that looks whether volumes in use have grown in the cluster |
//! | `updates` | the task that renders volumes again when what they show has changed |
//! | [`stats`] | how full volumes are |
//!
//! What is on disk has upstream's names and modes, so that either agent can take over the other's pods. Nothing is
//! remembered on disk besides: markers and the mount table say what is there.
//!
//! Absent so far: disk quotas, FlexVolume, disks of clouds that a pod names itself. A pod that asks for a kind of
//! volume that is not known gets an error that names it.

pub mod attach;
mod block;
mod certificates;
mod claims;
pub mod csi;
mod devices;
mod failure;
#[cfg(feature = "fake")]
pub mod fake;
pub mod figures;
mod growth;
mod layout;
pub mod linux;
mod migrated;
mod ownership;
pub mod payload;
mod plugins;
mod pod;
pub mod port;
mod said;
pub mod selinux;
mod set_up;
mod slow;
pub mod stats;
mod teardown;
mod tenants;
mod updates;
mod volumes;

pub use attach::NodeStorage;
pub use certificates::{CertificateWanted, Credentials, NoCertificate, PodCertificates};
pub use linux::LinuxVolumeHost;
pub use port::{VolumeEvents, VolumeHost};
pub use volumes::{VolumePorts, VolumeSettings, Volumes};

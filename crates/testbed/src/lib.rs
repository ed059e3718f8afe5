//! The test bed: real parts for tests, benches and the demo. Synchronous, so that a test reads from top to bottom.
//!
//! | module | what it gives |
//! |---|---|
//! | [`containerd`] | a real containerd of our own (the distribution's or the pinned one), and proof that it left nothing |
//! | [`agent`] | the `crablet` binary as a child: start, kill -9, manifests, waiting for what it reports |
//! | [`images`] | images made on the spot, without a registry |
//! | [`images::e2e`], [`debian`] | the images of upstream's suites, and the root file systems under them |
//! | [`csi`] | a CSI driver of our own, as a process, and the public suite that judges it |
//! | [`kubeadm`] | what `kubeadm init` leaves in a cluster, so that machines may join |
//! | [`kubelet_port`] | a kubelet's port 10250: requests and sessions, many at once (the one part that is asynchronous) |
//! | [`gate`] | each change to the file system that a program makes, let through, failed, held or deadly |
//! | [`fuse`] | a file system that falls silent, fails and comes back |
//! | [`pty`] | a program at a terminal |
//! | [`http`] | the few lines of HTTP/1.1 that tests need, over TCP and unix sockets |
//! | [`packages`], [`pinned`], [`cache`] | what must be installed or built first, and where it is kept |
//! | [`scratch`], [`teardown`], [`guard`] | folders that know how to be removed: on drop, on Ctrl-C, by the next run |
//!
//! Deliberately absent: no stand-ins for the runtime (the fake that speaks CRI lives beside its port, in
//! `crates/cri`), and no way to use a containerd that someone else runs on the machine.

pub mod agent;
pub mod cache;
mod cgroups;
pub mod cluster;
pub mod containerd;
pub mod coredns;
pub mod csi;
pub mod daemon;
pub mod debian;
pub mod fuse;
pub mod gate;
pub mod gobuild;
pub mod guard;
pub mod http;
pub mod images;
pub mod kube;
pub mod kubeadm;
pub mod kubectl;
pub mod kubelet_port;
pub mod longrun;
mod mounts;
pub mod network;
pub mod packages;
pub mod pinned;
pub mod process;
pub mod pty;
pub mod say;
pub mod scratch;
pub mod sha256;
pub mod suites;
pub mod teardown;
pub mod traces;
pub mod upstream;
pub mod vm;
pub mod wait;

pub use agent::{Agent, Snapshot};
pub use containerd::{Containerd, Flavor, Leftovers, StartOptions};

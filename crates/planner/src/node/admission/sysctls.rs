//! Kernel settings that pods may change: those that are safe in a pod's own namespaces, and what the operator allows.

use std::collections::BTreeMap;

use crablet_model::api::PodSpec;
use crablet_model::sysctl::sysctl_name;

use super::Rejection;

/// Which of a pod's namespaces has the setting for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Safe ones, with the first kernel in which they are a namespace's own.
const SAFE: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

const OF_IPC: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls {
    names: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

impl Sysctls {
    /// `allowed` are names, or beginnings of names that end in `*`; the configuration has refused all others.
    /// Without a kernel's version only what every kernel has is safe.
    pub fn new(kernel: Option<(u32, u32)>, allowed: &[String]) -> Self {
        let mut all = Self::default();
        let kernel = kernel.unwrap_or_default();
        let safe = SAFE.iter().filter(|(_, since)| kernel >= *since).map(|(name, _)| *name);
        for pattern in safe.chain(allowed.iter().map(String::as_str)) {
            let pattern = sysctl_name(pattern);
            let (name, is_prefix) = match pattern.split_once('*') {
                Some((name, _)) => (name, true),
                None => (pattern.as_str(), false),
            };
            if let Some(namespace) = namespace_of(name) {
                let kept = if is_prefix { &mut all.prefixes } else { &mut all.names };
                kept.insert(name.to_owned(), namespace);
            }
        }
        all
    }

    pub(super) fn check(&self, spec: &PodSpec) -> Result<(), Rejection> {
        let settings = spec.security_context.as_ref().and_then(|s| s.sysctls.as_ref());
        for setting in settings.into_iter().flatten() {
            let name = sysctl_name(&setting.name);
            let refused = match self.namespace(&name) {
                None => Some(format!("{name:?} not allowlisted")),
                Some(Namespace::Ipc) if spec.host_ipc == Some(true) => {
                    Some(format!("{name:?} not allowed with host IPC enabled"))
                }
                Some(Namespace::Net) if spec.host_network == Some(true) => {
                    Some(format!("{name:?} not allowed with host Net enabled"))
                }
                Some(_) => None,
            };
            if let Some(why) = refused {
                return Err(Rejection::new("SysctlForbidden", format!("forbidden sysctl: {why}")));
            }
        }
        Ok(())
    }

    fn namespace(&self, name: &str) -> Option<Namespace> {
        let by_prefix = || self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix.as_str()));
        self.names.get(name).copied().or_else(|| by_prefix().map(|(_, namespace)| *namespace))
    }
}

fn namespace_of(name: &str) -> Option<Namespace> {
    if OF_IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        Some(Namespace::Ipc)
    } else {
        name.starts_with("net.").then_some(Namespace::Net)
    }
}

//! Linux's answers to [`NodeHost`].
//!
//! | module | reads |
//! |---|---|
//! | `machine` | `/proc`, `/sys` and `/etc`, once |
//! | `routes` | `/proc/net/route`, `/proc/net/ipv6_route` |
//! | `interfaces` | the kernel's interfaces and their addresses, over netlink |

mod interfaces;
mod machine;
mod routes;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use crablet_host::lookup;
use crablet_planner::node::{DefaultRoute, Interface, Machine};

use crate::host::NodeHost;

pub struct LinuxNodeHost {
    root: PathBuf,
}

impl LinuxNodeHost {
    /// `root` is the agent's root folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

/// The kernel's files answer at once, but not always: none of tokio's own threads waits for them.
async fn off_thread<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

#[async_trait]
impl NodeHost for LinuxNodeHost {
    async fn machine(&self) -> io::Result<Machine> {
        off_thread(|| machine::read(Path::new("/"))).await
    }

    async fn interfaces(&self) -> io::Result<Vec<Interface>> {
        off_thread(interfaces::read).await
    }

    async fn default_routes(&self) -> io::Result<Option<Vec<DefaultRoute>>> {
        off_thread(routes::read).await
    }

    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = lookup::OF_NODE.addresses(name, 0).await.map_err(io::Error::other)?;
        Ok(found.iter().map(|address| address.ip()).collect())
    }

    async fn root_capacity(&self) -> io::Result<u64> {
        let root = self.root.clone();
        off_thread(move || {
            let filesystem = rustix::fs::statvfs(&root)?;
            Ok(filesystem.f_frsize.saturating_mul(filesystem.f_blocks))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_answers() {
        let host = LinuxNodeHost::new("/");
        let machine = host.machine().await.unwrap();
        assert!(machine.cpus > 0 && machine.memory_bytes > 0 && !machine.boot_id.is_empty(), "{machine:?}");
        assert!(host.root_capacity().await.unwrap() > 0);
        host.default_routes().await.unwrap();
    }
}

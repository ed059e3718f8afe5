//! What is asked of the machine.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;
use crablet_planner::node::{DefaultRoute, Interface, Machine};

#[async_trait]
pub trait NodeHost: Send + Sync + 'static {
    /// What the machine is. Asked for once.
    async fn machine(&self) -> io::Result<Machine>;

    async fn interfaces(&self) -> io::Result<Vec<Interface>>;

    /// `None` where the kernel has no routing table to read.
    async fn default_routes(&self) -> io::Result<Option<Vec<DefaultRoute>>>;

    /// The addresses that a name stands for. May take as long as DNS does; who asks has a deadline.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Size in bytes of the filesystem that holds the agent's root folder.
    async fn root_capacity(&self) -> io::Result<u64>;
}

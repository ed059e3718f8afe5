//! A machine of values.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use crablet_planner::node::{DefaultRoute, Interface, Machine};

use crate::host::NodeHost;

/// What the machine is; tests change it.
#[derive(Clone, Debug)]
pub struct FakeMachine {
    pub machine: Machine,
    pub interfaces: Vec<Interface>,
    pub default_routes: Option<Vec<DefaultRoute>>,
    pub names: BTreeMap<String, Vec<IpAddr>>,
    pub root_capacity: u64,
    /// Whether questions about the network are answered.
    pub network: FakeAnswers,
}

/// How the machine answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeAnswers {
    #[default]
    AtOnce,
    After(Duration),
    Never,
    /// With an error.
    Fails,
}

pub struct FakeNodeHost(pub Mutex<FakeMachine>);

/// Four CPUs, 8 GiB of memory, a disk of 100 GiB, one interface with 10.0.0.5.
impl Default for FakeMachine {
    fn default() -> Self {
        let machine = Machine {
            machine_id: "fake-machine".to_owned(),
            system_uuid: "fake-system".to_owned(),
            boot_id: "fake-boot-1".to_owned(),
            kernel_version: "6.12.0".to_owned(),
            os_image: "Fake Linux".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
            swap_bytes: 0,
            huge_pages: [(2 << 20, 0)].into(),
        };
        let interface = |name: &str, loopback, address: [u8; 4]| Interface {
            name: name.to_owned(),
            up: true,
            loopback,
            point_to_point: false,
            addresses: vec![IpAddr::V4(Ipv4Addr::from(address))],
        };
        Self {
            machine,
            interfaces: vec![interface("lo", true, [127, 0, 0, 1]), interface("eth0", false, [10, 0, 0, 5])],
            default_routes: Some(vec![DefaultRoute { interface: "eth0".to_owned(), ipv6: false }]),
            names: BTreeMap::new(),
            root_capacity: 100 << 30,
            network: FakeAnswers::default(),
        }
    }
}

impl Default for FakeNodeHost {
    fn default() -> Self {
        Self(Mutex::new(FakeMachine::default()))
    }
}

impl FakeNodeHost {
    fn read<T>(&self, part: impl FnOnce(&FakeMachine) -> T) -> io::Result<T> {
        Ok(part(&self.0.lock().expect("no test panics with the lock")))
    }

    async fn network<T>(&self, part: impl FnOnce(&FakeMachine) -> T) -> io::Result<T> {
        match self.read(|fake| fake.network)? {
            FakeAnswers::AtOnce => {}
            FakeAnswers::After(time) => tokio::time::sleep(time).await,
            FakeAnswers::Never => std::future::pending().await,
            FakeAnswers::Fails => return Err(io::ErrorKind::Interrupted.into()),
        }
        self.read(part)
    }
}

#[async_trait]
impl NodeHost for FakeNodeHost {
    async fn machine(&self) -> io::Result<Machine> {
        self.read(|fake| fake.machine.clone())
    }

    async fn interfaces(&self) -> io::Result<Vec<Interface>> {
        self.network(|fake| fake.interfaces.clone()).await
    }

    async fn default_routes(&self) -> io::Result<Option<Vec<DefaultRoute>>> {
        self.network(|fake| fake.default_routes.clone()).await
    }

    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.network(|fake| fake.names.get(name).cloned())
            .await?
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    async fn root_capacity(&self) -> io::Result<u64> {
        self.read(|fake| fake.root_capacity)
    }
}

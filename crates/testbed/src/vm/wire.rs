//! A machine's way out: a network of its own that QEMU translates into connections of this machine, and back the port on
//! which a kubelet listens.
//!
//! The API server calls a node at the address that the node tells. So that address is this machine's too, by a route at
//! the bridge of the cluster that the machine belongs to, and QEMU listens there. The route goes with the bridge.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Result;

use crate::network::Network;
use crate::packages;
use crate::process::output_of;

const KUBELET_PORT: u16 = 10250;

/// One for each network of a test bed, and so for one machine at a time.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    network: Network,
}

impl Wire {
    pub fn to(network: Network) -> Wire {
        Wire { network }
    }

    /// In a subnet that follows from the cluster's, so that no two of them meet.
    fn host(self, host: u8) -> Ipv4Addr {
        let [_, _, number, _] = self.network.gateway().octets();
        Ipv4Addr::new(10, 215, number, host)
    }

    /// The machine's address.
    pub fn address(self) -> Ipv4Addr {
        self.host(15)
    }

    fn gateway(self) -> Ipv4Addr {
        self.host(2)
    }

    /// Makes the machine's address one of this machine's.
    pub(super) fn lay(self) -> Result<()> {
        let address = format!("{}/32", self.address());
        // Callers are to come from the cluster's address: a machine drops what seems to come from itself.
        let (bridge, caller) = (self.network.bridge(), self.network.gateway().to_string());
        let mut command = Command::new(packages::program("ip").unwrap_or_else(|| "ip".into()));
        command
            .args(["route", "replace", "local", &address, "dev", &bridge, "table", "local", "src", &caller]);
        output_of(&mut command)?;
        Ok(())
    }

    /// QEMU's arguments.
    pub(super) fn arguments(self) -> [String; 4] {
        let (subnet, gateway, address) = (self.host(0), self.gateway(), self.address());
        let port = KUBELET_PORT;
        [
            "-netdev".into(),
            format!(
                "user,id=wire,ipv6=off,net={subnet}/24,host={gateway},dhcpstart={address},\
                 hostfwd=tcp:{address}:{port}-{address}:{port}"
            ),
            "-device".into(),
            // Nothing boots over it: no option ROM.
            "virtio-net-pci,netdev=wire,romfile=".into(),
        ]
    }

    /// For systemd's network service in the machine.
    pub(super) fn settings(self) -> String {
        include_str!("guest/wire.network")
            .replace("@ADDRESS@", &self.address().to_string())
            .replace("@GATEWAY@", &self.gateway().to_string())
    }
}

//! Whom a certificate is for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::NodeAddress;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use tokio::sync::watch;

use crate::pair::Leaf;

/// The group whose members are nodes.
pub(crate) const GROUP: &str = "system:nodes";

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub common_name: String,
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl Names {
    /// For a client: no name but the node's, since the signer refuses any other.
    pub fn client(node_name: &str) -> Self {
        let common_name = format!("system:node:{node_name}");
        Self { common_name, dns: BTreeSet::new(), addresses: BTreeSet::new() }
    }

    /// For a server at these addresses; `None` without any, since there is nothing to ask for. A name alone is enough
    /// only where the gate `AllowDNSOnlyNodeCSR` says so.
    fn server(node_name: &str, addresses: &[NodeAddress], dns_only: bool) -> Option<Self> {
        let mut names = Self::client(node_name);
        for NodeAddress { address, type_ } in addresses.iter().filter(|address| !address.address.is_empty()) {
            let ip = address.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
            match (type_.as_str(), ip) {
                ("Hostname" | "InternalIP" | "ExternalIP", Some(ip)) => drop(names.addresses.insert(ip)),
                ("Hostname" | "InternalDNS" | "ExternalDNS", _) => drop(names.dns.insert(address.clone())),
                _ => {}
            }
        }
        let enough = !names.addresses.is_empty() || (dns_only && !names.dns.is_empty());
        enough.then_some(names)
    }

    /// Whether a certificate serves for all of this. It may serve for more.
    pub fn satisfied_by(&self, leaf: &Leaf) -> bool {
        leaf.common_name == self.common_name
            && leaf.organizations.contains(GROUP)
            && leaf.dns.is_superset(&self.dns)
            && leaf.addresses.is_superset(&self.addresses)
    }

    /// A PKCS #10 request, as PEM.
    pub fn request(&self, key: &KeyPair) -> Result<String, rcgen::Error> {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, GROUP);
        subject.push(DnType::CommonName, self.common_name.as_str());
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        for name in &self.dns {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.serialize_request(key)?.pem()
    }
}

/// Where the names come from.
pub(crate) enum Wanted {
    Client(Names),
    Server { node_name: String, addresses: watch::Receiver<Vec<NodeAddress>>, dns_only: bool },
}

impl Wanted {
    pub fn names(&self) -> Option<Names> {
        match self {
            Self::Client(names) => Some(names.clone()),
            Self::Server { node_name, addresses, dns_only } => {
                Names::server(node_name, &addresses.borrow(), *dns_only)
            }
        }
    }

    /// Until other names are wanted than these. Cancel-safe: it looks before it waits.
    pub async fn changed_from(&mut self, before: Option<&Names>) {
        loop {
            if let Self::Server { addresses, .. } = self {
                addresses.borrow_and_update();
            }
            if self.names().as_ref() != before {
                return;
            }
            let changed = match self {
                Self::Client(_) => false,
                Self::Server { addresses, .. } => addresses.changed().await.is_ok(),
            };
            if !changed {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(addresses: &[(&str, &str)], dns_only: bool) -> Option<String> {
        let address = |(type_, address): &(&str, &str)| NodeAddress {
            type_: (*type_).to_owned(),
            address: (*address).to_owned(),
        };
        let addresses: Vec<_> = addresses.iter().map(address).collect();
        let names = Names::server("vm-1", &addresses, dns_only)?;
        Some(format!("{:?} {:?}", names.dns, names.addresses))
    }

    #[test]
    fn a_server_is_named_as_its_node_is() {
        let in_a_cloud = [
            ("InternalIP", "10.0.0.5"),
            ("InternalDNS", "vm-1.c.proj.internal"),
            ("Hostname", "vm-1.c.proj.internal"),
            ("ExternalDNS", "vm-1.example.com"),
        ];
        let expected = r#"{"vm-1.c.proj.internal", "vm-1.example.com"} {10.0.0.5}"#;
        assert_eq!(asked(&in_a_cloud, false).as_deref(), Some(expected));
        assert_eq!(asked(&[("Hostname", "vm-1")], false), None);
        assert_eq!(asked(&[("Hostname", "vm-1")], true).as_deref(), Some(r#"{"vm-1"} {}"#));
        assert_eq!(asked(&[], true), None);
    }
}

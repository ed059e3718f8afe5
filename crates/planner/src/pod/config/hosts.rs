//! A pod's host name and its hosts file.

use std::fmt::Write as _;
use std::net::IpAddr;

use crablet_model::{PodRef, api};

use super::super::facts::NodeFacts;
use super::{ConfigError, is_host_network, spec_of};

/// What a DNS label holds, and upstream cuts host names to.
const HOST_NAME_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;
/// What the kernel takes for a host name.
const KERNEL_NAME_LENGTH: usize = 64;

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// A pod's host name, and the domain that its subdomain gives it.
pub(super) struct HostName {
    pub name: String,
    pub domain: Option<String>,
}

impl HostName {
    pub fn of(pod: &api::Pod, node: &NodeFacts) -> Result<Self, ConfigError> {
        let id = PodRef::of(pod);
        let spec = spec_of(pod)?;
        if let Some(name) = spec.hostname_override.as_deref() {
            check_subdomain("HostnameOverride", name)?;
            return Ok(Self { name: cut(name, &id)?, domain: None });
        }
        let name = match spec.hostname.as_deref() {
            Some(name) if !name.is_empty() => {
                check_label("Hostname", name)?;
                name
            }
            _ => &*id.name,
        };
        let domain = match spec.subdomain.as_deref() {
            Some(subdomain) if !subdomain.is_empty() => {
                check_label("Subdomain", subdomain)?;
                Some(format!("{subdomain}.{}.svc.{}", id.namespace, node.cluster_domain))
            }
            _ => None,
        };
        Ok(Self { name: cut(name, &id)?, domain })
    }

    /// The name that the kernel is told.
    pub fn for_kernel(self, as_fqdn: bool) -> Result<String, ConfigError> {
        let Some(domain) = self.domain.filter(|_| as_fqdn) else { return Ok(self.name) };
        let fqdn = format!("{}.{domain}", self.name);
        if fqdn.len() > KERNEL_NAME_LENGTH {
            return Err(ConfigError(format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
                 ({KERNEL_NAME_LENGTH} characters is the max, {} characters requested)",
                fqdn.len()
            )));
        }
        Ok(fqdn)
    }
}

/// As upstream: a name that is too long loses its end, and then what a name may not end with.
fn cut(name: &str, id: &PodRef) -> Result<String, ConfigError> {
    if name.len() <= HOST_NAME_LENGTH {
        return Ok(name.to_owned());
    }
    let cut = name[..name.floor_char_boundary(HOST_NAME_LENGTH)].trim_end_matches(['-', '.']);
    if cut.is_empty() {
        return Err(ConfigError(format!("hostname for pod {:?} was invalid: {name:?}", &*id.name)));
    }
    Ok(cut.to_owned())
}

fn check_label(field: &str, name: &str) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    if name.len() > HOST_NAME_LENGTH {
        faults.push(format!("must be no more than {HOST_NAME_LENGTH} characters"));
    }
    if !is_label(name) {
        faults.push(LABEL_RULE.to_owned());
    }
    refuse(&faults, format!("pod {field} {name:?} is not a valid DNS label"))
}

fn check_subdomain(field: &str, name: &str) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_LENGTH {
        faults.push(format!("must be no more than {SUBDOMAIN_LENGTH} characters"));
    }
    if !name.split('.').all(is_label) {
        faults.push(SUBDOMAIN_RULE.to_owned());
    }
    refuse(&faults, format!("pod {field} {name:?} is not a valid DNS subdomain"))
}

fn refuse(faults: &[String], what: String) -> Result<(), ConfigError> {
    if faults.is_empty() { Ok(()) } else { Err(ConfigError(format!("{what}: {}", faults.join(";")))) }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| alphanumeric(*b))
        && bytes.last().is_some_and(|b| alphanumeric(*b))
        && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-')
}

/// The text of the pod's hosts file. `node_hosts` is the node's own, which a pod in the node's network starts from.
pub fn hosts_file(
    pod: &api::Pod,
    pod_ips: &[IpAddr],
    node: &NodeFacts,
    node_hosts: Option<&str>,
) -> Result<String, ConfigError> {
    let spec = spec_of(pod)?;
    let mut text = if is_host_network(spec) {
        let node_hosts =
            node_hosts.ok_or_else(|| ConfigError::new("the hosts file of the node could not be read"))?;
        format!("# Kubernetes-managed hosts file (host network).\n{node_hosts}")
    } else {
        managed(&HostName::of(pod, node)?, pod_ips)
    };
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default();
            let _ = writeln!(text, "{}\t{}", alias.ip, names.join("\t"));
        }
    }
    Ok(text)
}

fn managed(host: &HostName, pod_ips: &[IpAddr]) -> String {
    // Upstream's lines, its two names for fe00::0 included.
    let mut text = "# Kubernetes-managed hosts file.\n\
        127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\n\
        fe00::0\tip6-localnet\n\
        fe00::0\tip6-mcastprefix\n\
        fe00::1\tip6-allnodes\n\
        fe00::2\tip6-allrouters\n"
        .to_owned();
    for ip in pod_ips {
        let _ = match &host.domain {
            Some(domain) => writeln!(text, "{ip}\t{name}.{domain}\t{name}", name = host.name),
            None => writeln!(text, "{ip}\t{}", host.name),
        };
    }
    text
}

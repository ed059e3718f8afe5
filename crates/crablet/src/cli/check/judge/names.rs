//! Who the node is, and how its pods find others.

use std::net::IpAddr;

use super::super::facts::{Facts, Read};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;

const GROUP: Group = Group("names");

/// What a container's libc takes: upstream cuts the rest off.
const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// The node's name is also the value of a label.
const LABEL: usize = 63;

pub fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    vec![node(&wanted.node_name), machine_id(&facts.machine_id), resolver(wanted, &facts.resolv_conf)]
}

fn node(name: &str) -> Finding {
    const FIX: &str = "give it another with `--hostname-override`, or `hostnamectl set-hostname`";
    if name == "localhost" || name.starts_with("localhost.") {
        GROUP.warning("node name", format!("`{name}`: other nodes will have the same"), FIX)
    } else if name.len() > LABEL {
        GROUP.warning("node name", format!("`{name}` is too long for the label kubernetes.io/hostname"), FIX)
    } else {
        GROUP.ok("node name", name)
    }
}

fn machine_id(id: &Read<String>) -> Finding {
    match id {
        Ok(id) if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            GROUP.ok("machine id", id)
        }
        Ok(id) => GROUP.warning(
            "machine id",
            if id.is_empty() { "empty".to_owned() } else { format!("`{id}` is none") },
            "`systemd-machine-id-setup`; copies of a machine need one each",
        ),
        Err(why) => GROUP.warning("machine id", why.to_string(), "`systemd-machine-id-setup`"),
    }
}

fn resolver(wanted: &Wanted, text: &Read<String>) -> Finding {
    let Some(path) = &wanted.resolv_conf else {
        return GROUP.ok("resolver", "none wanted: pods with the node's DNS policy get none");
    };
    let path = path.display();
    let text = match text {
        Ok(text) => text,
        Err(why) => {
            let fix = "write it, or name another with `resolvConf`: pods with the node's DNS policy need it";
            return GROUP.error("resolver", format!("{path} could not be read: {why}"), fix);
        }
    };
    let values = |key: &str| -> Vec<&str> {
        text.lines()
            .filter_map(|line| line.trim().split_once(char::is_whitespace))
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value.trim())
            .collect()
    };
    let servers = values("nameserver");
    let searches: Vec<_> =
        values("search").last().map(|line| line.split_whitespace().collect()).unwrap_or_default();
    if let Some(own) = servers.iter().find(|server| loops_back(server)) {
        return GROUP.warning(
            "resolver",
            format!("{path} names {own}, which is the pod itself inside a pod"),
            unstub(own),
        );
    }
    if servers.is_empty() {
        return GROUP.warning("resolver", format!("{path} names no server"), "add a `nameserver` line");
    }
    if servers.len() > NAMESERVERS {
        let seen = format!("{path} names {} servers; pods get the first {NAMESERVERS}", servers.len());
        return GROUP.warning("resolver", seen, "leave the others out");
    }
    let characters = searches.iter().map(|domain| domain.len() + 1).sum::<usize>().saturating_sub(1);
    if searches.len() > SEARCHES || characters > SEARCH_CHARACTERS {
        let seen =
            format!("{path} searches {} domains in {characters} characters; pods get fewer", searches.len());
        return GROUP.warning(
            "resolver",
            seen,
            format!("at most {SEARCHES} domains in {SEARCH_CHARACTERS} characters"),
        );
    }
    GROUP.ok("resolver", format!("{path}: {}", servers.join(", ")))
}

/// An address may carry a zone: `fe80::1%eth0`.
fn loops_back(server: &str) -> bool {
    let address = server.split('%').next().unwrap_or(server);
    address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn unstub(server: &str) -> &'static str {
    if server == "127.0.0.53" {
        "set `resolvConf: /run/systemd/resolve/resolv.conf`, which names the real servers of systemd-resolved"
    } else {
        "name a file with the real servers in `resolvConf`; cluster DNS would ask itself for ever"
    }
}

//! A pod network for each runtime: a bridge, a subnet and a CNI network name that nobody else on the machine uses.
//!
//! The bridge plugin turns IP forwarding on for the machine and nobody turns it off again: another program may have
//! come to need it meanwhile, and there is no way to know.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::packages;
use crate::process::{output_of, shown};
use crate::say;
use crate::scratch::{self, Scratch};

/// Chains that the portmap plugin shares between all networks of a machine.
const SHARED_CHAINS: &[&str] = &["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"];

/// One claimed network. The number decides all names, and is on disk before anything is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    number: u8,
}

impl Network {
    /// Takes a free number and makes its bridge. The caller holds the lock on all scratch folders.
    pub(crate) fn claim(scratch: &Scratch) -> Result<Network> {
        let taken: Vec<Network> = scratch::others(scratch).iter().filter_map(Network::of).collect();
        let routes = output_of(ip().args(["-4", "route", "show"]))?;
        let free = |network: &Network| {
            !taken.contains(network) && !network.bridge_exists() && !routes.contains(&network.prefix())
        };
        for network in (1..=254).map(|number| Network { number }).filter(free) {
            fs::write(scratch.network_file(), network.number.to_string())?;
            // Making the link is the claim towards programs that know nothing of our lock: it fails if it exists.
            if output_of(ip().args(["link", "add", &network.bridge(), "type", "bridge"])).is_ok() {
                return Ok(network);
            }
            fs::remove_file(scratch.network_file())?;
        }
        bail!(
            "no free pod network: all of 10.213.1.0/24 to 10.213.254.0/24 are in use, or bridges cannot be made"
        )
    }

    /// The network that a scratch folder claimed.
    pub(crate) fn of(scratch: &Scratch) -> Option<Network> {
        let number = fs::read_to_string(scratch.network_file()).ok()?.trim().parse().ok()?;
        Some(Network { number })
    }

    pub fn bridge(self) -> String {
        format!("crab{}", self.number)
    }

    /// The name that CNI plugins know it by, and write into the comments of their iptables rules.
    pub fn name(self) -> String {
        format!("crablet-testbed-{}", self.number)
    }

    pub fn subnet(self) -> String {
        format!("{}0/24", self.prefix())
    }

    fn prefix(self) -> String {
        format!("10.213.{}.", self.number)
    }

    /// The host's address on the bridge: pods' gateway, and the address of a cluster that lives on this network.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.number, 1)
    }

    /// The addresses of a cluster's services.
    pub fn service_subnet(self) -> String {
        format!("10.214.{}.0/24", self.number)
    }

    pub fn service_address(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 214, self.number, host)
    }

    /// The cgroup below which a kubelet on this network has all of its own, in each hierarchy.
    pub fn cgroup_root(self) -> String {
        format!("/{}", self.name())
    }

    /// Gives the host its address on the bridge now; the bridge plugin would do it with the first pod.
    pub(crate) fn bring_up(self) -> Result<()> {
        let bridge = self.bridge();
        let address = format!("{}/24", self.gateway());
        output_of(ip().args(["address", "replace", &address, "dev", &bridge]))?;
        output_of(ip().args(["link", "set", &bridge, "up"]))?;
        Ok(())
    }

    pub fn bridge_exists(self) -> bool {
        Path::new("/sys/class/net").join(self.bridge()).exists()
    }

    /// The host's ends of pods' network cables.
    pub fn attached(self) -> Vec<String> {
        let folder = Path::new("/sys/class/net").join(self.bridge()).join("brif");
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// The CNI configuration. Address leases stay in the scratch folder instead of `/var/lib/cni`.
    pub fn conflist(self, scratch: &Scratch) -> String {
        let conflist = json!({
            "cniVersion": "1.0.0",
            "name": self.name(),
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge(),
                    "isGateway": true,
                    "ipMasq": true,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": scratch.cni_data(),
                        "ranges": [[{ "subnet": self.subnet() }]],
                        "routes": [{ "dst": "0.0.0.0/0" }],
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        });
        format!("{conflist:#}\n")
    }

    /// The NAT rules that plugins made for this network's pods.
    pub fn iptables_rules(self) -> Vec<String> {
        saved_rules().into_iter().filter(|rule| self.owns(rule)).collect()
    }

    fn owns(self, rule: &str) -> bool {
        // Comments read `name: \"<network>\" id: \"<container>\"`.
        rule.contains(&format!("name: \\\"{}\\\"", self.name()))
    }

    /// Removes the bridge and the rules; with `last`, also the chains that networks share, if nobody uses them.
    pub(crate) fn remove(self, last: bool) -> Result<()> {
        if self.bridge_exists() {
            output_of(ip().args(["link", "delete", &self.bridge()]))?;
        }
        let rules = saved_rules();
        let mut removal = self.rules_removal(&rules);
        if last {
            let left: Vec<String> = rules.into_iter().filter(|rule| !self.owns(rule)).collect();
            removal.extend(shared_removal(&left));
        }
        self.remove_cached_results();
        removal.carry_out()
    }

    /// Deletes each rule that names the network, and the chains that those rules jumped to.
    fn rules_removal(self, rules: &[String]) -> Removal {
        let ours = || rules.iter().filter(|rule| self.owns(rule));
        let mut chains: Vec<String> =
            ours().filter_map(|rule| jump_target(rule)).map(str::to_owned).collect();
        chains.retain(|chain| chain.starts_with("CNI-") && !SHARED_CHAINS.contains(&chain.as_str()));
        chains.sort_unstable();
        chains.dedup();
        let inside = |rule: &String| chains.iter().any(|chain| rule.starts_with(&format!("-A {chain} ")));
        Removal { rules: ours().filter(|rule| !inside(rule)).cloned().collect(), chains }
    }

    /// libcni keeps each pod's result in a folder that cannot be chosen.
    fn remove_cached_results(self) {
        let Ok(entries) = fs::read_dir("/var/lib/cni/results") else { return };
        let prefix = format!("{}-", self.name());
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Removes chains that killed plugins left. Only where no runtime of ours is up: a plugin at work makes a chain before
/// the chain's first rule.
pub(crate) fn remove_abandoned_chains() {
    if let Err(error) = abandoned_chains(&saved_nat_table()).carry_out() {
        say::note(format!("could not remove chains that an earlier run left: {error:#}"));
    }
}

fn ip() -> Command {
    Command::new(packages::program("ip").unwrap_or_else(|| "ip".into()))
}

/// The NAT table's rules, one line each.
fn saved_rules() -> Vec<String> {
    saved_nat_table().lines().filter(|line| line.starts_with("-A ")).map(str::to_owned).collect()
}

/// As iptables-save shows it; empty where iptables is missing or its modules are.
fn saved_nat_table() -> String {
    let Some(save) = packages::program("iptables-save") else { return String::new() };
    output_of(Command::new(save).args(["-t", "nat"])).unwrap_or_default()
}

/// Chains that a plugin made and nobody uses: it was killed between a pod's chain and the chain's first rule, or
/// between the last rule and the chain.
fn abandoned_chains(table: &str) -> Removal {
    let is_named = |rule: &str, chain: &str| {
        rule.starts_with(&format!("-A {chain} ")) || jump_target(rule) == Some(chain)
    };
    let is_used = |chain: &str| table.lines().any(|line| line.starts_with("-A ") && is_named(line, chain));
    let chains = table.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next());
    let of_pods = chains.filter(|chain| chain.starts_with("CNI-") && !SHARED_CHAINS.contains(chain));
    Removal {
        rules: Vec::new(),
        chains: of_pods.filter(|chain| !is_used(chain)).map(str::to_owned).collect(),
    }
}

fn jump_target(rule: &str) -> Option<&str> {
    rule.rsplit_once(" -j ")?.1.split(' ').next()
}

/// The shared chains, when no rule sends a host port anywhere; the plugin makes them again when it needs them.
fn shared_removal(rules: &[String]) -> Removal {
    let in_use = rules.iter().any(|rule| rule.starts_with("-A CNI-HOSTPORT-DNAT "));
    if in_use {
        return Removal::default();
    }
    let jumps_there =
        |rule: &&String| jump_target(rule).is_some_and(|target| SHARED_CHAINS.contains(&target));
    let from_outside = |rule: &&String| !rule.starts_with("-A CNI-");
    let exists = |chain: &&&str| {
        rules
            .iter()
            .any(|rule| rule.starts_with(&format!("-A {chain} ")) || jump_target(rule) == Some(**chain))
    };
    Removal {
        rules: rules.iter().filter(jumps_there).filter(from_outside).cloned().collect(),
        chains: SHARED_CHAINS.iter().filter(exists).map(|chain| chain.to_string()).collect(),
    }
}

/// Rules to delete, as iptables-save shows them, and chains to delete with all that is in them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Removal {
    rules: Vec<String>,
    chains: Vec<String>,
}

impl Removal {
    fn extend(&mut self, other: Removal) {
        self.rules.extend(other.rules);
        self.chains.extend(other.chains);
    }

    /// In two steps: the nftables flavour of iptables calls a chain busy as long as the rule that jumps to it goes in
    /// the same transaction.
    fn carry_out(&self) -> Result<()> {
        let deletes = self.rules.iter().map(|rule| rule.replacen("-A ", "-D ", 1));
        let flushes = self.chains.iter().map(|chain| format!("-F {chain}"));
        restore(&deletes.chain(flushes).collect::<Vec<_>>())?;
        restore(&self.chains.iter().map(|chain| format!("-X {chain}")).collect::<Vec<_>>())
    }
}

/// Applies lines in iptables-save's language, all or none, leaving everything else as it is.
fn restore(lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let program = packages::program("iptables-restore").context("no `iptables-restore` found")?;
    let mut command = Command::new(program);
    command
        .args(["--noflush", "--wait", "10"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run `iptables-restore`")?;
    let text = format!("*nat\n{}\nCOMMIT\n", lines.join("\n"));
    child.stdin.take().context("the pipe was asked for")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{text}", shown(&command), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[&str] = &[
        "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ",
        r#"-A POSTROUTING -s 10.213.1.4/32 -m comment --comment "name: \"crablet-testbed-1\" id: \"abc\"" -j CNI-aaaa"#,
        r#"-A POSTROUTING -s 10.213.2.4/32 -m comment --comment "name: \"crablet-testbed-12\" id: \"d\"" -j CNI-bbbb"#,
        r#"-A CNI-aaaa -d 10.213.1.0/24 -m comment --comment "name: \"crablet-testbed-1\" id: \"abc\"" -j ACCEPT"#,
        r#"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"crablet-testbed-1\" id: \"abc\"" -m multiport --dports 80 -j CNI-DN-cccc"#,
        "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
        "-A CNI-DN-cccc -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.213.1.4:8080",
    ];

    fn rules() -> Vec<String> {
        RULES.iter().map(|rule| rule.to_string()).collect()
    }

    #[test]
    fn only_rules_of_the_network_and_their_chains_go() {
        let removal = Network { number: 1 }.rules_removal(&rules());
        assert_eq!(removal.rules, [RULES[3], RULES[6]]);
        assert_eq!(removal.chains, ["CNI-DN-cccc", "CNI-aaaa"]);
    }

    #[test]
    fn chains_without_rules_or_jumps_are_abandoned() {
        let chains =
            ":PREROUTING ACCEPT [0:0]\n:CNI-aaaa - [0:0]\n:CNI-dddd - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n";
        let removal = abandoned_chains(&format!("{chains}{}", RULES.join("\n")));
        assert_eq!(removal.chains, ["CNI-dddd"]);
    }

    #[test]
    fn shared_chains_stay_while_someone_maps_a_port() {
        assert_eq!(shared_removal(&rules()), Removal::default());
        let mut unused = rules();
        unused.retain(|rule| !rule.contains("crablet-testbed-1\\"));
        let removal = shared_removal(&unused);
        assert_eq!(removal.rules, RULES[..3]);
        assert_eq!(removal.chains, ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ"]);
    }
}

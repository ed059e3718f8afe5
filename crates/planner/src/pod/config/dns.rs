//! The resolver settings of a pod.

use std::net::IpAddr;

use crablet_model::events::{Event, NodeEvent};
use crablet_model::names::event_reason;
use crablet_model::runtime::DnsConfig;
use crablet_model::{PodRef, api};

use super::super::facts::NodeFacts;
use super::is_host_network;

/// What resolvers accept, and upstream enforces.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_LENGTH: usize = 253;
const MAX_SEARCH_LINE_LENGTH: usize = 2048;
/// Domains that pods get besides the node's, where there is a cluster domain.
const CLUSTER_SEARCHES: usize = 3;

/// Told of the node and of each pod that it happens to.
const NO_CLUSTER_DNS: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                              \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
/// As upstream says it, with the blank.
const NO_ADDRESS: &str = "nameserver list is empty ";

/// A parsed `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

/// Reads a `resolv.conf` as upstream does: name servers add up, the last `search` line wins, of options with the same
/// name the last. A name server without an address spoils the whole file.
pub fn parse_resolv_conf(text: &str) -> Result<ResolvConf, &'static str> {
    let mut conf = ResolvConf::default();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => conf.servers.push(fields.next().ok_or(NO_ADDRESS)?.to_owned()),
            Some("search") => {
                let named = fields.filter(|s| *s != ".").map(|s| s.strip_suffix('.').unwrap_or(s));
                conf.searches = named.map(str::to_owned).collect();
            }
            Some("options") => fields.for_each(|option| set_option(&mut conf.options, option.to_owned())),
            _ => {}
        }
    }
    Ok(conf)
}

/// What of the node's resolver file pods will not get, as upstream says it once at its start.
pub fn beyond_limits(path: &str, conf: &ResolvConf, cluster_domain: &str) -> Option<String> {
    let domains = if cluster_domain.is_empty() { MAX_SEARCHES } else { MAX_SEARCHES - CLUSTER_SEARCHES };
    let searches = &conf.searches;
    if searches.len() > domains {
        return Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {domains} domains!"
        ));
    }
    if searches.iter().any(|search| search.len() > MAX_SEARCH_LENGTH) {
        return Some(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed \
             {MAX_SEARCH_LENGTH} chars!"
        ));
    }
    (searches.join(" ").len() > MAX_SEARCH_LINE_LENGTH).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed \
             {MAX_SEARCH_LINE_LENGTH} chars!"
        )
    })
}

/// What is as much the node's matter as the pod's.
pub fn told_of_node(events: &[Event]) -> Option<NodeEvent> {
    let is_missing = |event: &Event| event.reason == event_reason::MISSING_CLUSTER_DNS;
    let missing = events.iter().any(is_missing);
    missing.then(|| NodeEvent::warning(event_reason::MISSING_CLUSTER_DNS, NO_CLUSTER_DNS))
}

/// Adds an option; one of the same name (the part before the colon) makes room.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |o: &str| o.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|o| name(o) == name(&option)) {
        Some(same) => *same = option,
        None => options.push(option),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Cluster,
    Host,
}

impl Kind {
    fn of(spec: &api::PodSpec) -> Self {
        match spec.dns_policy.as_deref() {
            Some("None") => Self::None,
            Some("Default") => Self::Host,
            Some("ClusterFirst") if is_host_network(spec) => Self::Host,
            // Upstream takes an unknown policy for `ClusterFirst`.
            _ => Self::Cluster,
        }
    }
}

/// The pod's resolver settings, and what has to be told about them.
pub(super) fn dns_config(pod: &api::Pod, spec: &api::PodSpec, node: &NodeFacts) -> (DnsConfig, Vec<Event>) {
    let id = PodRef::of(pod);
    let mut events = Vec::new();
    let host = node.resolv_conf.as_ref();
    let searches = host.map(|host| host.searches.as_slice()).unwrap_or_default();
    let mut dns = match Kind::of(spec) {
        Kind::None => DnsConfig::default(),
        Kind::Cluster if !node.cluster_dns.is_empty() => DnsConfig {
            servers: node.cluster_dns.clone(),
            searches: cluster_searches(&id.namespace, &node.cluster_domain, searches),
            options: vec!["ndots:5".to_owned()],
        },
        kind => {
            if kind == Kind::Cluster {
                events.push(missing_cluster_dns(&id));
            }
            host.map_or_else(|| no_resolver(&node.node_ips), of_host)
        }
    };
    if let Some(wanted) = &spec.dns_config {
        merge(&mut dns, wanted);
    }
    fit_servers(&mut dns.servers, &id, &mut events);
    fit_searches(&mut dns.searches, &id, &mut events);
    (dns, events)
}

fn of_host(host: &ResolvConf) -> DnsConfig {
    let ResolvConf { servers, searches, options } = host.clone();
    DnsConfig { servers, searches, options }
}

/// No names are to be resolved. As upstream: an empty answer would make the runtime take the node's own file.
fn no_resolver(node_ips: &[IpAddr]) -> DnsConfig {
    let local = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => "127.0.0.1".to_owned(),
        IpAddr::V6(_) => "::1".to_owned(),
    };
    let mut servers: Vec<_> = node_ips.iter().map(local).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    DnsConfig { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn missing_cluster_dns(id: &PodRef) -> Event {
    let text = format!("pod: \"{id}\". {NO_CLUSTER_DNS}");
    Event::warning(id, event_reason::MISSING_CLUSTER_DNS, text)
}

fn cluster_searches(namespace: &str, domain: &str, host: &[String]) -> Vec<String> {
    let own = match domain {
        "" => Vec::new(),
        domain => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()],
    };
    let mut searches = Vec::new();
    own.iter().chain(host).for_each(|search| add_once(&mut searches, search));
    searches
}

fn add_once(list: &mut Vec<String>, text: &str) {
    if !list.iter().any(|t| t == text) {
        list.push(text.to_owned());
    }
}

fn merge(dns: &mut DnsConfig, wanted: &api::PodDNSConfig) {
    for (list, more) in [(&mut dns.servers, &wanted.nameservers), (&mut dns.searches, &wanted.searches)] {
        for text in std::mem::take(list).iter().chain(more.iter().flatten()) {
            add_once(list, text);
        }
    }
    for option in wanted.options.iter().flatten() {
        let name = option.name.clone().unwrap_or_default();
        let text = match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name,
        };
        set_option(&mut dns.options, text);
    }
}

fn fit_servers(servers: &mut Vec<String>, id: &PodRef, events: &mut Vec<Event>) {
    if servers.len() <= MAX_SERVERS {
        return;
    }
    servers.truncate(MAX_SERVERS);
    let text = format!(
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
        servers.join(" ")
    );
    events.push(Event::warning(id, event_reason::DNS_CONFIG_FORMING, text));
}

fn fit_searches(searches: &mut Vec<String>, id: &PodRef, events: &mut Vec<Event>) {
    let asked = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|search| search.len() <= MAX_SEARCH_LENGTH);
    while searches.join(" ").len() > MAX_SEARCH_LINE_LENGTH {
        searches.pop();
    }
    if searches.len() == asked {
        return;
    }
    let text = format!(
        "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
        searches.join(" ")
    );
    events.push(Event::warning(id, event_reason::DNS_CONFIG_FORMING, text));
}

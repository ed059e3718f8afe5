//! What a container's environment says of its pod and of resources.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crablet_model::api;
use crablet_model::quantity::Quantity;

use super::super::facts::NodeFacts;
use super::super::status::one_of_each_family;
use super::container::ContainerInputs;
use super::{ConfigError, is_host_network, spec_of};

type Map = Option<BTreeMap<String, String>>;

/// The value of a `fieldRef`.
pub(super) fn pod_field(
    inputs: &ContainerInputs<'_>,
    field: &api::ObjectFieldSelector,
) -> Result<String, ConfigError> {
    match field.api_version.as_deref() {
        None | Some("" | "v1") => {}
        Some(version) => return Err(ConfigError(format!("unsupported pod version: {version}"))),
    }
    let (pod, path) = (inputs.pod, field.field_path.as_str());
    let (meta, spec) = (&pod.metadata, spec_of(pod)?);
    let text = |text: &Option<String>| Ok(text.clone().unwrap_or_default());
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => {
                return Err(ConfigError(format!(
                    "invalid field path {path:?}: it does not support subscript"
                )));
            }
        };
        return Ok(value_of(map, key));
    }
    match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => Ok(map_text(&meta.labels)),
        "metadata.annotations" => Ok(map_text(&meta.annotations)),
        "spec.nodeName" => text(&spec.node_name),
        "spec.serviceAccountName" => text(&spec.service_account_name),
        "status.hostIP" => host_ips(inputs).map(|ips| joined(ips.get(..1).unwrap_or_default())),
        "status.hostIPs" => host_ips(inputs).map(joined),
        "status.podIP" => Ok(joined(pod_ips(inputs, spec).get(..1).unwrap_or_default())),
        "status.podIPs" => Ok(joined(&pod_ips(inputs, spec))),
        _ => Err(ConfigError(format!("field label not supported: {path}"))),
    }
}

/// `metadata.labels['key']` as map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// Sorted `key="value"` lines, the value quoted.
fn map_text(map: &Map) -> String {
    let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// As Go's `%q` prints it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if prints(c) => out.push(c),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Spaces other than the plain one, marks of format and what nobody has assigned do not.
fn prints(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Rust escapes the same ones, and a combining mark where it has nothing to stand on.
    let text = format!("a{c}");
    let mut shown = text.escape_debug().skip(1);
    (shown.next(), shown.next()) != (Some('\\'), Some('u'))
}

fn joined(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
}

/// Never empty: without an address the variable would be silently wrong.
fn host_ips<'a>(inputs: &ContainerInputs<'a>) -> Result<&'a [IpAddr], ConfigError> {
    let ips = &inputs.node.own_ips;
    if ips.is_empty() {
        return Err(ConfigError::new("host IP unknown; known addresses: []"));
    }
    Ok(ips)
}

fn pod_ips(inputs: &ContainerInputs<'_>, spec: &api::PodSpec) -> Vec<IpAddr> {
    let of_node = inputs.pod_ips.is_empty() && is_host_network(spec);
    let ips = if of_node { &inputs.node.host_ips } else { inputs.pod_ips };
    one_of_each_family(ips, inputs.node.host_ips.first())
}

/// The value of a `fieldRef` in a volume, which may say less than an environment: a volume outlives addresses.
pub fn volume_field(pod: &api::Pod, field: &api::ObjectFieldSelector) -> Result<String, ConfigError> {
    let meta = &pod.metadata;
    let text = |text: &Option<String>| Ok(text.clone().unwrap_or_default());
    let path = field.field_path.as_str();
    match (subscript(path), path) {
        (Some(("metadata.labels", key)), _) => Ok(value_of(&meta.labels, key)),
        (Some(("metadata.annotations", key)), _) => Ok(value_of(&meta.annotations, key)),
        (None, "metadata.name") => text(&meta.name),
        (None, "metadata.namespace") => text(&meta.namespace),
        (None, "metadata.uid") => text(&meta.uid),
        (None, "metadata.labels") => Ok(map_text(&meta.labels)),
        (None, "metadata.annotations") => Ok(map_text(&meta.annotations)),
        _ => Err(ConfigError(format!("unsupported fieldPath: {path}"))),
    }
}

fn value_of(map: &Map, key: &str) -> String {
    map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default()
}

/// The value of a `resourceFieldRef` in a volume, which has to name its container.
pub fn volume_resource(
    pod: &api::Pod,
    node: &NodeFacts,
    field: &api::ResourceFieldSelector,
) -> Result<String, ConfigError> {
    let spec = spec_of(pod)?;
    let container = find_container(spec, field.container_name.as_deref().unwrap_or_default())?;
    resource_value(spec, container, node, field, Unlimited::Node)
}

/// The value of a `resourceFieldRef` in an environment.
pub(super) fn resource_field(
    inputs: &ContainerInputs<'_>,
    field: &api::ResourceFieldSelector,
) -> Result<String, ConfigError> {
    let spec = spec_of(inputs.pod)?;
    let (container, unlimited) = match field.container_name.as_deref() {
        None | Some("") => (inputs.container, Unlimited::PodThenNode),
        Some(name) if spec.containers.iter().any(|c| c.name == name) => {
            (find_container(spec, name)?, Unlimited::PodThenNode)
        }
        // As upstream: of an init container that is named, be it by itself, only its own limits count.
        Some(name) => (find_container(spec, name)?, Unlimited::Zero),
    };
    resource_value(spec, container, inputs.node, field, unlimited)
}

/// What a container without a limit is said to have. Upstream v1.36 has a rule for each place that asks.
#[derive(Clone, Copy, Debug)]
enum Unlimited {
    Zero,
    Node,
    PodThenNode,
}

/// Rounded up to whole divisors.
fn resource_value(
    spec: &api::PodSpec,
    container: &api::Container,
    node: &NodeFacts,
    field: &api::ResourceFieldSelector,
    unlimited: Unlimited,
) -> Result<String, ConfigError> {
    let unsupported = || ConfigError(format!("unsupported container resource : {}", field.resource));
    let (list, resource) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let known =
        matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let amount = match list {
        _ if !known => return Err(unsupported()),
        "limits" => match (limit_of(&container.resources, resource), unlimited) {
            (Some(own), _) => Some(own),
            (None, Unlimited::Zero) => None,
            (None, Unlimited::Node) => limit_of_node(node, resource),
            (None, Unlimited::PodThenNode) => {
                limit_of_pod(spec, resource).or_else(|| limit_of_node(node, resource))
            }
        },
        "requests" => amount_in(container.resources.as_ref().and_then(|r| r.requests.as_ref()), resource),
        _ => return Err(unsupported()),
    };
    let amount = amount.unwrap_or(Quantity::ZERO);
    let divisor = field.divisor.as_ref().and_then(|d| Quantity::try_from(d).ok()).filter(|d| !d.is_zero());
    // As upstream: CPU counts in thousandths, everything else in whole units.
    let (amount, divisor) = match resource {
        "cpu" => (amount.milli_value(), divisor.map_or(1000, |d| d.milli_value())),
        _ => (amount.value(), divisor.map_or(1, |d| d.value())),
    };
    Ok(divided_up(amount, divisor).to_string())
}

fn divided_up(amount: i64, divisor: i64) -> i128 {
    let (amount, divisor) = (i128::from(amount), i128::from(divisor.max(1)));
    amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
}

fn find_container<'a>(spec: &'a api::PodSpec, name: &str) -> Result<&'a api::Container, ConfigError> {
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.find(|c| c.name == name).ok_or_else(|| ConfigError(format!("container {name} not found")))
}

/// A limit of zero is none.
fn limit_of(resources: &Option<api::ResourceRequirements>, resource: &str) -> Option<Quantity> {
    let limits = resources.as_ref().and_then(|r| r.limits.as_ref());
    amount_in(limits, resource).filter(|amount| !amount.is_zero())
}

/// Huge pages are never shared out: a container has those that it names.
fn limit_of_pod(spec: &api::PodSpec, resource: &str) -> Option<Quantity> {
    limit_of(&spec.resources, resource).filter(|_| matches!(resource, "cpu" | "memory"))
}

fn limit_of_node(node: &NodeFacts, resource: &str) -> Option<Quantity> {
    match resource {
        "cpu" => Some(Quantity::from_milli(node.allocatable_milli_cpu, Default::default())),
        "memory" => Some(Quantity::from_value(node.allocatable_memory, Default::default())),
        "ephemeral-storage" => Some(Quantity::from_value(node.allocatable_storage, Default::default())),
        _ => None,
    }
}

fn amount_in<Q>(list: Option<&BTreeMap<String, Q>>, resource: &str) -> Option<Quantity>
where
    for<'q> Quantity: TryFrom<&'q Q>,
{
    list?.get(resource).and_then(|text| Quantity::try_from(text).ok())
}

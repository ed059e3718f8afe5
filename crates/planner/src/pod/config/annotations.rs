//! What a container carries with it, for a later life of the agent that no longer has its pod.
//!
//! Values that are JSON have upstream's order of fields and Go's way to write texts, so that either agent's annotations
//! read the same.

use crablet_model::api;
use crablet_model::hash::container_hash;
use crablet_model::names::annotation;
use crablet_model::runtime::Map;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::container::ContainerInputs;

pub(super) fn annotations(inputs: &ContainerInputs<'_>, spec: &api::PodSpec) -> Map {
    let container = inputs.container;
    let text = |text: &Option<String>| Some(text.clone().unwrap_or_default());
    let hash = container_hash(&container.name, container.image.as_deref().unwrap_or_default());
    let all = [
        (annotation::CONTAINER_HASH, Some(hash)),
        (annotation::CONTAINER_RESTART_COUNT, Some(inputs.attempt.to_string())),
        (annotation::CONTAINER_TERMINATION_MESSAGE_PATH, text(&container.termination_message_path)),
        (annotation::CONTAINER_TERMINATION_MESSAGE_POLICY, text(&container.termination_message_policy)),
        (
            annotation::POD_DELETION_GRACE_PERIOD,
            inputs.pod.metadata.deletion_grace_period_seconds.map(|s| s.to_string()),
        ),
        (
            annotation::POD_TERMINATION_GRACE_PERIOD,
            spec.termination_grace_period_seconds.map(|s| s.to_string()),
        ),
        (annotation::CONTAINER_PRE_STOP_HANDLER, pre_stop_json(container)),
        (annotation::CONTAINER_PORTS, ports_json(container)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// A port in the field order of upstream's JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Port<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    host_port: i32,
    container_port: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(rename = "hostIP", skip_serializing_if = "str::is_empty")]
    host_ip: &'a str,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn ports_json(container: &api::Container) -> Option<String> {
    let ports = container.ports.as_deref().filter(|ports| !ports.is_empty())?;
    let ports: Vec<Port<'_>> = ports
        .iter()
        .map(|port| Port {
            name: port.name.as_deref().unwrap_or_default(),
            host_port: port.host_port.unwrap_or(0),
            container_port: port.container_port,
            protocol: port.protocol.as_deref().unwrap_or_default(),
            host_ip: port.host_ip.as_deref().unwrap_or_default(),
        })
        .collect();
    go_json(&ports)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handler<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    exec: Option<Exec<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_get: Option<HttpGet<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_socket: Option<TcpSocket<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleep: Option<&'a api::SleepAction>,
}

#[derive(Serialize)]
struct Exec<'a> {
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    command: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HttpGet<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    port: &'a IntOrString,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    scheme: &'a str,
    #[serde(skip_serializing_if = "<[api::HTTPHeader]>::is_empty")]
    http_headers: &'a [api::HTTPHeader],
}

#[derive(Serialize)]
struct TcpSocket<'a> {
    port: &'a IntOrString,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
}

fn pre_stop_json(container: &api::Container) -> Option<String> {
    let hook = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
    go_json(&Handler {
        exec: hook.exec.as_ref().map(|exec| Exec { command: exec.command.as_deref().unwrap_or_default() }),
        http_get: hook.http_get.as_ref().map(|get| HttpGet {
            path: get.path.as_deref().unwrap_or_default(),
            port: &get.port,
            host: get.host.as_deref().unwrap_or_default(),
            scheme: get.scheme.as_deref().unwrap_or_default(),
            http_headers: get.http_headers.as_deref().unwrap_or_default(),
        }),
        tcp_socket: hook
            .tcp_socket
            .as_ref()
            .map(|socket| TcpSocket { port: &socket.port, host: socket.host.as_deref().unwrap_or_default() }),
        sleep: hook.sleep.as_ref(),
    })
}

/// Go escapes what a browser could take for markup, and two separators of lines.
fn go_json(value: &impl Serialize) -> Option<String> {
    let mut text = String::new();
    for c in serde_json::to_string(value).ok()?.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            other => text.push(other),
        }
    }
    Some(text)
}

//! An event as it is sent.

use std::borrow::Cow;

use crablet_model::events::{ClaimEvent, Event, EventKind, NodeEvent};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Whom events come from.
const COMPONENT: &str = "kubelet";
/// Where events about objects without a namespace live.
const DEFAULT_NAMESPACE: &str = "default";
/// The longest name that an object may have.
const LONGEST_NAME: usize = 253;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Involved {
    pub kind: &'static str,
    /// Empty for nodes.
    pub namespace: String,
    pub name: String,
    /// Empty for nodes, as upstream has it since v1.36.
    pub uid: String,
    pub field_path: Option<String>,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    pub at: Timestamp,
    pub kind: EventKind,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub involved: Involved,
}

impl Occurrence {
    pub fn of_pod(event: Event, at: Timestamp) -> Self {
        let involved = Involved {
            kind: "Pod",
            namespace: event.pod.namespace.to_string(),
            name: event.pod.name.to_string(),
            uid: event.pod.uid.to_string(),
            field_path: event.field_path(),
        };
        Self { at, kind: event.kind, reason: event.reason, message: event.message, involved }
    }

    pub fn of_claim(event: ClaimEvent, at: Timestamp) -> Self {
        let involved = Involved {
            kind: "PersistentVolumeClaim",
            namespace: event.namespace,
            name: event.name,
            uid: event.uid,
            field_path: None,
        };
        Self { at, kind: event.kind, reason: event.reason.into(), message: event.message, involved }
    }

    pub fn of_node(event: NodeEvent, node: &str, at: Timestamp) -> Self {
        let involved = Involved {
            kind: "Node",
            namespace: String::new(),
            name: node.to_owned(),
            uid: String::new(),
            field_path: None,
        };
        Self { at, kind: event.kind, reason: event.reason.into(), message: event.message, involved }
    }

    pub fn namespace(&self) -> &str {
        if self.involved.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.involved.namespace }
    }
}

/// What is sent of an occurrence after correlation.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub occurrence: Occurrence,
    pub name: String,
    pub first: Timestamp,
    /// More than one: the event exists already, unless the server has forgotten it.
    pub count: u32,
    /// Stands for many: says only whom it comes from, not who reports it, as upstream has it.
    pub combined: bool,
}

impl Outgoing {
    pub fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.occurrence.namespace())
    }

    pub fn object(&self, host: &str) -> Value {
        let Occurrence { at, kind, reason, message, involved } = &self.occurrence;
        let mut reference = json!({"kind": involved.kind, "name": involved.name, "apiVersion": "v1"});
        for (field, value) in [
            ("namespace", Some(&involved.namespace)),
            ("uid", Some(&involved.uid)),
            ("fieldPath", involved.field_path.as_ref()),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                reference[field] = json!(value);
            }
        }
        let reporter = if self.combined { ("", "") } else { (COMPONENT, host) };
        json!({
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": self.name, "namespace": self.occurrence.namespace()},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "source": {"component": COMPONENT, "host": host},
            "firstTimestamp": seconds(self.first),
            "lastTimestamp": seconds(*at),
            "count": self.count,
            "type": kind.to_string(),
            "eventTime": null,
            "reportingComponent": reporter.0,
            "reportingInstance": reporter.1,
        })
    }

    pub fn patch(&self) -> Value {
        let Occurrence { at, message, .. } = &self.occurrence;
        json!({"count": self.count, "lastTimestamp": seconds(*at), "message": message})
    }
}

/// `<object>.<hex nanoseconds>`, or a UUID where that is too long for a name.
pub(super) fn name(object: &str, nanoseconds: i128, random: &mut fastrand::Rng) -> String {
    let name = format!("{object}.{nanoseconds:x}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let bits = random.u128(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        (bits >> 96) as u32,
        (bits >> 80) as u16,
        (bits >> 64) & 0xfff,
        (bits >> 48) as u16 & 0x3fff | 0x8000,
        bits & 0xffff_ffff_ffff
    )
}

fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

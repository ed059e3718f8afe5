//! Kubernetes events as values. Who records them (the log, later the API server) is somebody else's matter.

use std::borrow::Cow;
use std::fmt;

use crate::ids::PodRef;
use crate::roster::Role;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    Normal,
    Warning,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        })
    }
}

/// Something worth telling about a pod, or about one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// Nearly always a word of [`crate::names::event_reason`].
    pub reason: Cow<'static, str>,
    pub message: String,
    pub pod: PodRef,
    /// The container's name, when the event is about one container.
    pub container: Option<(Role, String)>,
}

impl Event {
    pub fn normal(pod: &PodRef, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self { kind: EventKind::Normal, reason, message, pod: pod.clone(), container: None }
    }

    pub fn warning(pod: &PodRef, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { kind: EventKind::Warning, ..Self::normal(pod, reason, message) }
    }

    pub fn on_container(self, container: &str) -> Self {
        self.on(Role::Regular, container)
    }

    pub fn on(mut self, role: Role, container: &str) -> Self {
        self.container = Some((role, container.to_owned()));
        self
    }

    /// The `involvedObject.fieldPath` of the event.
    pub fn field_path(&self) -> Option<String> {
        self.container.as_ref().map(|(role, name)| format!("spec.{}{{{name}}}", role.field()))
    }
}

/// Something worth telling about a claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimEvent {
    pub kind: EventKind,
    pub reason: &'static str,
    pub message: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Something worth telling about the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub kind: EventKind,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: EventKind::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: EventKind::Warning, reason, message: message.into() }
    }
}

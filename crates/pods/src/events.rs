//! Who is told of events.

use crablet_model::events::{Event, EventKind, NodeEvent};

/// Takes events. Must not block: what cannot be delivered is the sink's to count.
pub trait EventSink: Send + Sync + 'static {
    fn emit(&self, event: Event);

    /// Of the node as a whole. Who has no cluster to tell says it to the log.
    fn emit_node(&self, event: NodeEvent) {
        tracing::info!(reason = event.reason, event.message = event.message, "Event occurred");
    }
}

/// Standalone mode: events go to the log.
pub struct LogEvents;

impl EventSink for LogEvents {
    fn emit(&self, event: Event) {
        let object = format!("{}/{}", event.pod.namespace, event.pod.name);
        let field = event.field_path().unwrap_or_default();
        let kind = event.kind.to_string();
        // Upstream's line, field for field. `event.` keeps the names apart from tracing's own.
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    object,
                    fieldPath = field,
                    event.kind = "Pod",
                    apiVersion = "v1",
                    r#type = kind,
                    reason = &*event.reason,
                    event.message = event.message,
                    "Event occurred"
                )
            };
        }
        // A level is part of a call's place in the code, so there have to be two of them.
        match event.kind {
            EventKind::Normal => say!(info),
            EventKind::Warning => say!(warn),
        }
    }
}

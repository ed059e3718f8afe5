//! Who is told of events.

use crablet_model::events::{Event, EventKind};

/// Takes events. Must not block: what cannot be delivered is the sink's to count.
pub trait EventSink: Send + Sync + 'static {
    fn emit(&self, event: Event);
}

/// Standalone mode: events go to the log.
pub struct LogEvents;

impl EventSink for LogEvents {
    fn emit(&self, event: Event) {
        let object = format!("{}/{}", event.pod.namespace, event.pod.name);
        let field = event.field_path().unwrap_or_default();
        // Upstream's line, field for field. `event.` keeps the names apart from tracing's own.
        match event.kind {
            EventKind::Normal => tracing::info!(
                object,
                fieldPath = field,
                event.kind = "Pod",
                apiVersion = "v1",
                r#type = "Normal",
                reason = event.reason,
                event.message = event.message,
                "Event occurred"
            ),
            EventKind::Warning => tracing::warn!(
                object,
                fieldPath = field,
                event.kind = "Pod",
                apiVersion = "v1",
                r#type = "Warning",
                reason = event.reason,
                event.message = event.message,
                "Event occurred"
            ),
        }
    }
}

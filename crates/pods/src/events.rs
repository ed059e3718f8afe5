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
        let pod = format!("{}/{}", event.pod.namespace, event.pod.name);
        let field = event.field_path().unwrap_or_default();
        match event.kind {
            EventKind::Normal => tracing::info!(
                kind = "Normal", reason = event.reason, message = %event.message, pod, field, "Event occurred"
            ),
            EventKind::Warning => tracing::warn!(
                kind = "Warning", reason = event.reason, message = %event.message, pod, field, "Event occurred"
            ),
        }
    }
}

//! The event stream, and how badly it tells.

use std::time::Duration;

use crablet_model::PodUid;
use crablet_model::runtime::{RuntimeEvent, RuntimeEventKind};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::faults::hit;
use crate::port::{CriError, ErrorKind, EventStream, Result};

/// The default tells everything at once, exactly once.
#[derive(Clone, Debug, Default)]
pub struct EventFaults {
    /// The chance that an event is lost.
    pub lose: f64,
    /// The chance that an event comes twice.
    pub double: f64,
    /// The chance that an event does not say which pod it is about.
    pub anonymous: f64,
    /// Each event comes up to this much virtual time late.
    pub delay: Duration,
}

#[derive(Default)]
pub(super) struct Subscribers {
    pub faults: EventFaults,
    senders: Vec<mpsc::UnboundedSender<(Instant, Result<RuntimeEvent>)>>,
}

impl Subscribers {
    pub fn subscribe(&mut self) -> EventStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.senders.push(sender);
        stream::unfold(receiver, async |mut receiver| {
            let (at, event) = receiver.recv().await?;
            tokio::time::sleep_until(at).await;
            Some((event, receiver))
        })
        .fuse()
        .boxed()
    }

    pub fn tell(&mut self, rng: &mut fastrand::Rng, uid: &PodUid, id: &str, kind: RuntimeEventKind) {
        self.senders.retain(|sender| !sender.is_closed());
        for sender in &self.senders {
            if hit(rng, self.faults.lose) {
                continue;
            }
            let uid = (!hit(rng, self.faults.anonymous)).then(|| uid.clone());
            let event = RuntimeEvent { uid, container_id: id.to_owned(), kind };
            let copies = if hit(rng, self.faults.double) { 2 } else { 1 };
            for _ in 0..copies {
                let late = Duration::from_millis(rng.u64(0..=self.faults.delay.as_millis() as u64));
                let _ = sender.send((Instant::now() + late, Ok(event.clone())));
            }
        }
    }

    /// Ends every stream, with an error or without one.
    pub fn cut(&mut self, with_error: bool) {
        for sender in self.senders.drain(..) {
            if with_error {
                let error = CriError::new(ErrorKind::Unavailable, "error reading from server: EOF");
                let _ = sender.send((Instant::now(), Err(error)));
            }
        }
    }
}

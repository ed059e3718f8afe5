//! Work that takes time, and what becomes of it when its client gives up or the daemon dies.
//!
//! A daemon that hears that its client is gone may undo what it has begun, or finish it all the same because it was
//! past the point of return: a sandbox can appear after nobody waits for it any more. The seed decides.

use std::time::Duration;

use crablet_model::runtime::{SandboxConfig, SandboxState};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::behaviour::Pull;
use super::state::{ContainerRecord, Due, State, refused};
use super::trace::What;
use crate::port::Result;

/// How a call stands once it has begun.
pub(super) enum Progress<T> {
    Done(T),
    /// The ticket names the work, for the case that the client gives up.
    Later(oneshot::Receiver<Result<T>>, u64),
}

pub(super) enum WorkKind {
    Sandbox { id: String, reserved: String, config: Box<SandboxConfig> },
    Create { record: Box<ContainerRecord> },
    Start { id: String },
    Pull { image: String },
}

pub(super) struct Work {
    kind: WorkKind,
    answer: oneshot::Sender<Result<String>>,
    /// The client is gone, and the daemon undoes the work where it can.
    undo: bool,
    /// It takes longer than it should.
    stalled: bool,
}

impl State {
    /// Carries work out at once where it takes no time, else puts it on the agenda.
    pub fn start_work(&mut self, kind: WorkKind, time: Duration) -> Result<Progress<String>> {
        if time.is_zero() {
            return self.finish(kind).map(Progress::Done);
        }
        let ticket = self.new_ticket();
        let (answer, receiver) = oneshot::channel();
        let stalled = !self.stall.is_zero();
        self.works.insert(ticket, Work { kind, answer, undo: false, stalled });
        self.agenda.add(Instant::now() + time, Due::Work(ticket));
        Ok(Progress::Later(receiver, ticket))
    }

    pub fn usual_work_time(&mut self) -> Duration {
        let (least, most) = self.settings.work_time;
        self.stall + Duration::from_millis(self.rng.u64(least.as_millis() as u64..=most.as_millis() as u64))
    }

    fn finish(&mut self, kind: WorkKind) -> Result<String> {
        match kind {
            WorkKind::Sandbox { id, reserved, config } => {
                self.add_sandbox(id, reserved, *config, SandboxState::Ready)
            }
            WorkKind::Create { record } => {
                self.make_sources(&record);
                self.add_container(*record)
            }
            WorkKind::Start { id } => self.finish_start(&id),
            WorkKind::Pull { image } => self.finish_pull(&image),
        }
    }

    fn undo(&mut self, kind: WorkKind) {
        match kind {
            WorkKind::Sandbox { id, reserved, config } => {
                // A rollback that fails half-way leaves a dead sandbox behind.
                if self.rng.u8(0..4) == 0 {
                    let _ = self.add_sandbox(id, reserved, *config, SandboxState::NotReady);
                } else {
                    self.release(&reserved, &id);
                }
            }
            WorkKind::Create { record } => {
                self.make_sources(&record);
                self.release(&record.reserved, &record.id);
            }
            WorkKind::Start { id } => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.starting = false;
                }
            }
            WorkKind::Pull { .. } => {}
        }
    }

    pub fn work_is_over(&mut self, ticket: u64) {
        let Some(work) = self.works.remove(&ticket) else { return };
        if work.undo {
            self.undo(work.kind);
        } else {
            let answer = self.finish(work.kind);
            let _ = work.answer.send(answer);
        }
    }

    /// containerd makes the sources of mounts that are not there, whatever becomes of the container.
    fn make_sources(&mut self, record: &ContainerRecord) {
        let Some(make) = self.make_source.clone() else { return };
        for mount in record.config.mounts.iter().filter(|mount| !mount.host_path.is_empty()) {
            if make(&mount.host_path) {
                self.record(What::Note(format!("the runtime makes {}", mount.host_path)));
            }
        }
    }

    /// What was stalled goes on now.
    pub fn finish_stalled(&mut self) {
        let stalled = self.works.iter().filter(|(_, work)| work.stalled).map(|(ticket, _)| *ticket);
        for ticket in stalled.collect::<Vec<_>>() {
            self.agenda.add(Instant::now(), Due::Work(ticket));
        }
    }

    /// The client of a call has given up, or died.
    pub fn abandon(&mut self, ticket: u64) {
        let goes_on = self.rng.bool();
        if goes_on {
            return;
        }
        self.requests.remove(&ticket);
        if let Some(work) = self.works.get_mut(&ticket) {
            work.undo = true;
        }
        // A stop that nobody waits for has sent its TERM; containerd does not follow it with a KILL.
        for container in self.containers.values_mut() {
            container.waiters.remove(&ticket);
        }
        self.agenda.forget(|due| matches!(due, Due::Kill { ticket: of, .. } if *of == ticket));
    }

    /// containerd gives a pull up that makes no progress.
    pub fn fail_hanging_pulls(&mut self) {
        let hanging: Vec<u64> = self
            .works
            .iter()
            .filter(|(_, work)| match &work.kind {
                WorkKind::Pull { image } => {
                    self.images.get(image).is_some_and(|image| image.pull == Pull::Hangs)
                }
                _ => false,
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in hanging {
            if let Some(work) = self.works.remove(&ticket) {
                let _ = work.answer.send(Err(refused("failed to pull image: context canceled".to_owned())));
            }
        }
    }

    /// The daemon dies: what it was at is done or undone, and nobody gets an answer.
    pub fn drop_all_work(&mut self) {
        self.requests.clear();
        for work in std::mem::take(&mut self.works).into_values() {
            if work.undo || self.rng.bool() {
                self.undo(work.kind);
            } else {
                let _ = self.finish(work.kind);
            }
        }
        for container in self.containers.values_mut() {
            container.waiters.clear();
        }
        self.agenda.forget(|due| !matches!(due, Due::Exit(_)));
    }
}

//! Who begins next: pods stand in lines, one line for each name of a static pod, and one for each other pod.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crablet_model::{PodRef, PodUid};
use crablet_planner::pod::{Ending, Pending, Verdict, Wish};
use futures_util::FutureExt;
use tokio::sync::watch;

use super::judging::Standing;
use super::resizing::Granted;
use super::terms::{MINIMUM_GRACE_SECONDS, Terms};
use super::{Ended, Registry};
use crate::nudge::Nudge;
use crate::sources::DesiredPod;
use crate::worker::{Assignment, Left, Worker};

/// A worker that broke begins again after this.
const AFTER_PANIC: Duration = Duration::from_secs(10);

/// A pod that has no worker yet.
pub(super) struct Waiting {
    pub pod: DesiredPod,
    pub is_static: bool,
    /// The older goes first when both are free to.
    pub created: String,
    pub standing: Standing,
    /// It is begun only to show this.
    pub verdict: Option<Arc<Verdict>>,
}

impl Waiting {
    pub fn new(pod: DesiredPod, is_static: bool, created: String) -> Self {
        Self { pod, is_static, created, standing: Standing::New, verdict: None }
    }
}

pub(super) struct Handle {
    pub id: PodRef,
    /// The line in which it stood: the next in it begins when nothing is left of this one.
    pub line: String,
    pub assignment: watch::Sender<Assignment>,
    pub nudge: Arc<Nudge>,
    /// Wanted again while the earlier life of the same UID still ends.
    pub again: Option<DesiredPod>,
}

impl Handle {
    pub fn is_ending(&self) -> bool {
        matches!(self.assignment.borrow().wish, Wish::End(_))
    }
}

impl Registry {
    /// Ends what runs and nobody wants: once every source has spoken, or at once where a wanted pod needs the name.
    pub(super) fn end_orphans(&mut self) {
        let Some(pods) = self.in_runtime.clone() else {
            return;
        };
        for (uid, id) in pods {
            if self.is_known(&uid) {
                continue;
            }
            let name_is_wanted = self.waiting.get(&id.full_name()).is_some_and(|line| !line.is_empty());
            if (self.sources_ready() && !self.leaves_strangers) || name_is_wanted {
                self.end_unwanted(id, "no source has the pod");
            }
        }
    }

    pub(super) fn end_unwanted(&mut self, id: PodRef, why: &str) {
        tracing::info!(pod = id.object_ref(), podUID = %id.uid, why, "ending a pod that nobody wants");
        let end = Ending {
            since: self.shared.clock.now(),
            grace_seconds: MINIMUM_GRACE_SECONDS,
            forget: true,
            why: why.to_owned(),
        };
        self.shared.view.set_pod(&id, None, false);
        let line = line_of(&id, true);
        let assignment = Assignment {
            pod: None,
            is_static: true,
            refused: None,
            verdict: None,
            instead: None,
            pending: Pending::Nothing,
            granted: None,
            wish: Wish::End(end),
            again: false,
        };
        self.spawn(id, line, assignment, Duration::ZERO);
    }

    /// Starts the first in each line whose name is free.
    pub(super) fn advance_all(&mut self) {
        if self.in_runtime.is_none() {
            return; // not before it is known what runs already
        }
        for name in self.free_lines() {
            if !self.may_begin(&name) {
                continue;
            }
            let Some(line) = self.waiting.get_mut(&name) else { continue };
            let first = line.pop_front();
            if line.is_empty() {
                self.waiting.remove(&name);
            }
            if let Some(waiting) = first {
                self.begin(name, waiting);
            }
        }
    }

    /// Lines whose name is free: first those whose pod runs already, then the oldest.
    fn free_lines(&self) -> Vec<String> {
        let taken: BTreeSet<&str> = self.workers.values().map(|h| h.line.as_str()).collect();
        let free = self.waiting.iter().filter(|(name, _)| !taken.contains(name.as_str()));
        let mut free: Vec<_> = free
            .filter_map(|(name, line)| {
                let first = line.front()?;
                let is_new = first.standing.is_new() && !self.runs(&first.pod.id.uid);
                Some((is_new, first.created.as_str(), name.clone()))
            })
            .collect();
        free.sort_unstable();
        free.into_iter().map(|(_, _, name)| name).collect()
    }

    /// Whether the runtime has anything of the pod.
    pub(super) fn runs(&self, uid: &PodUid) -> bool {
        self.in_runtime.as_ref().is_some_and(|pods| pods.contains_key(uid))
    }

    /// A pod that has no worker goes. Says whether it was there.
    pub(super) fn leave_line(&mut self, id: &PodRef, is_static: bool) -> bool {
        let Some(line) = self.waiting.get_mut(&line_of(id, is_static)) else { return false };
        let before = line.len();
        line.retain(|waiting| waiting.pod.id.uid != id.uid);
        line.len() < before
    }

    fn begin(&mut self, line: String, waiting: Waiting) {
        let Waiting { pod, is_static, verdict, .. } = waiting;
        let granted = Some(self.granted(&pod, None));
        let id = pod.id.clone();
        if !is_static {
            let asked_to_go = Terms::of(&pod.json).deletion(self.shared.clock.now());
            let wish = asked_to_go.map_or(Wish::Run, Wish::End);
            return self.spawn(id, line, assignment(&pod, is_static, wish, verdict, granted), Duration::ZERO);
        }
        match self.half_ended.remove(&id.uid) {
            Some(ending) => {
                let uid = id.uid.clone();
                let assignment = assignment(&pod, is_static, Wish::End(ending), verdict, granted);
                self.spawn(id, line, assignment, Duration::ZERO);
                if let Some(handle) = self.workers.get_mut(&uid) {
                    handle.again = Some(pod);
                }
            }
            None => {
                let assignment = assignment(&pod, is_static, Wish::Run, verdict, granted);
                self.spawn(id, line, assignment, Duration::ZERO);
            }
        }
    }

    fn spawn(&mut self, id: PodRef, line: String, assignment: Assignment, after: Duration) {
        let (sender, receiver) = watch::channel(assignment);
        let nudge = Arc::new(Nudge::default());
        let common = (self.shared.clone(), self.order.clone());
        let worker = Worker::new(common, id.clone(), receiver, nudge.clone(), self.random.u64(..));
        let uid = id.uid.clone();
        self.tasks.spawn(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            let ended = AssertUnwindSafe(worker.run()).catch_unwind().await;
            (uid, ended.map_or(Ended::Broke, Ended::Finished))
        });
        self.workers.insert(id.uid.clone(), Handle { id, line, assignment: sender, nudge, again: None });
    }

    pub(super) fn worker_ended(&mut self, uid: &PodUid, ended: Ended) {
        let Some(handle) = self.workers.remove(uid) else {
            return;
        };
        if let Ended::Broke = ended {
            tracing::error!(pod = handle.id.object_ref(), podUID = %handle.id.uid, "a pod's worker broke, which is a bug; it begins again");
            let assignment = handle.assignment.borrow().clone();
            self.spawn(handle.id.clone(), handle.line.clone(), assignment, AFTER_PANIC);
            if let Some(fresh) = self.workers.get_mut(uid) {
                fresh.again = handle.again;
            }
            return;
        }
        let has_past = matches!(ended, Ended::Finished(Left::Past));
        tracing::info!(pod = handle.id.object_ref(), podUID = %handle.id.uid, has_past, "the pod has ended");
        if let Some(pods) = self.in_runtime.as_mut().filter(|_| !has_past) {
            pods.remove(uid);
        }
        self.admission.discount(uid);
        self.resizes.room();
        let is_static = handle.assignment.borrow().is_static;
        match handle.again {
            Some(pod) => {
                // How its earlier life ended says nothing about the part of the node that it takes now.
                self.shared.view.remove(uid);
                self.shared.view.set_pod(&pod.id, Some(pod.json.clone()), true);
                let waiting = Waiting::new(pod, is_static, String::new());
                self.waiting.entry(handle.line).or_default().push_front(waiting);
            }
            None => {
                self.forget(&handle.id);
                // It was given up in the very moment in which it was to begin again.
                if has_past {
                    self.end_unwanted(handle.id, "its source no longer has the pod");
                }
            }
        }
        self.advance_all();
    }
}

pub(super) fn assignment(
    pod: &DesiredPod,
    is_static: bool,
    wish: Wish,
    verdict: Option<Arc<Verdict>>,
    granted: Option<Granted>,
) -> Assignment {
    let (instead, pending) = granted.map(|granted| (granted.instead, granted.pending)).unwrap_or_default();
    Assignment {
        pod: Some(pod.json.clone()),
        is_static,
        refused: pod.refused.clone(),
        verdict,
        instead,
        pending,
        granted: None,
        wish,
        again: false,
    }
}

/// Static pods of the same name run one after the other. Of two pods of the API server with the same name the first was
/// deleted by force: the second does not wait for it.
pub(super) fn line_of(id: &PodRef, is_static: bool) -> String {
    if is_static { id.full_name() } else { format!("{}/{}", id.full_name(), id.uid) }
}

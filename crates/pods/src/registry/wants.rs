//! What becomes of a pod that a source has, or has no longer.

use crablet_model::PodRef;
use crablet_planner::pod::{Ending, Wish};

use super::Registry;
use super::lines::{Waiting, assignment, line_of};
use super::terms::Terms;
use crate::sources::DesiredPod;

impl Registry {
    /// A source wants this pod, for the first time or in another form.
    pub(super) fn want(&mut self, pod: DesiredPod, is_static: bool) {
        self.tell_neighbours(&pod, is_static);
        if !self.is_known(&pod.id.uid) {
            self.read_record(pod.id.clone(), is_static);
        }
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, Some(pod.json.clone()), true);
        }
        let now = self.shared.clock.now();
        let terms = Terms::of(&pod.json);
        let asked_to_go = if is_static { None } else { terms.deletion(now) };
        if terms.is_over() {
            self.resizes.room();
        }
        self.look_at_shrinking(&pod);
        let known = self.workers.get(&pod.id.uid).map(|handle| handle.assignment.borrow().pending.clone());
        let granted = known.map(|known| self.granted(&pod, Some(&known)));
        match self.workers.get_mut(&pod.id.uid) {
            Some(handle) if handle.is_ending() && asked_to_go.is_none() => {
                handle.assignment.send_if_modified(|known| {
                    let was_wanted = std::mem::replace(&mut known.again, is_static);
                    was_wanted != is_static
                });
                let (uid, json) = (pod.id.uid.clone(), pod.json.clone());
                handle.again = Some(pod);
                // As upstream: what a source has takes its part of the node, also before it begins again.
                if let Some(pod) = serde_json::from_slice(&json).ok().filter(|_| is_static) {
                    self.ungrant(&uid);
                    self.count(&uid, &pod);
                }
            }
            Some(handle) => {
                let wish = asked_to_go.map_or(Wish::Run, Wish::End);
                handle.assignment.send_modify(|known| {
                    let (verdict, earlier) = (known.verdict.take(), known.granted);
                    *known = assignment(&pod, is_static, wish, verdict, granted);
                    known.granted = earlier;
                });
            }
            None => {
                let line = self.waiting.entry(line_of(&pod.id, is_static)).or_default();
                match line.iter_mut().find(|w| w.pod.id.uid == pod.id.uid) {
                    Some(waiting) => waiting.pod = pod,
                    None => line.push_back(Waiting::new(pod, is_static, terms.created())),
                }
                self.advance_all();
            }
        }
    }

    /// Those who watch what a pod refers to, or show it elsewhere.
    fn tell_neighbours(&self, pod: &DesiredPod, is_static: bool) {
        self.shared.hands.volumes.pod_changed(&pod.id, &pod.json);
        let Some(cluster) = &self.shared.cluster else { return };
        if is_static {
            cluster.mirrors.wanted(&pod.id, &pod.json);
        }
        // Whatever the pod refers to is on its way while its record is read. A gate lets static pods refer, too.
        if let Ok(decoded) = serde_json::from_slice(&pod.json) {
            self.shared.hands.objects.register(&decoded);
        }
    }

    /// No source wants this pod any more.
    pub(super) fn unwant(&mut self, pod: &DesiredPod, is_static: bool) {
        if let Some(cluster) = self.shared.cluster.as_ref().filter(|_| is_static) {
            cluster.mirrors.unwanted(&pod.id);
        }
        // As upstream: what no source has takes no part of the node, though something of it may still run.
        self.admission.discount(&pod.id.uid);
        self.ungrant(&pod.id.uid);
        if !self.unread.contains(&pod.id.uid) {
            self.shared.view.set_pod(&pod.id, None, false);
        }
        if self.leave_line(&pod.id, is_static) && !self.workers.contains_key(&pod.id.uid) {
            self.forget(&pod.id);
            // An earlier life of the agent may have started it.
            self.end_orphans();
        }
        let now = self.shared.clock.now();
        if let Some(handle) = self.workers.get_mut(&pod.id.uid) {
            handle.again = None;
            self.half_ended.remove(&pod.id.uid);
            handle.assignment.send_if_modified(|a| match &mut a.wish {
                // It was asked to go, and now it may be forgotten.
                Wish::End(end) => {
                    let was_wanted = std::mem::take(&mut a.again);
                    !std::mem::replace(&mut end.forget, true) || was_wanted
                }
                Wish::Run => {
                    a.wish = Wish::End(Ending {
                        since: now,
                        grace_seconds: Terms::of(&pod.json).grace_seconds(),
                        forget: true,
                        why: "its source no longer has the pod".to_owned(),
                    });
                    true
                }
            });
        }
    }

    /// Nothing is left of the pod.
    pub(super) fn forget(&mut self, id: &PodRef) {
        self.shared.hands.ledgers.forget(&id.uid);
        self.resizes.forget(&id.uid);
        self.admission.discount(&id.uid);
        self.shared.view.remove(&id.uid);
        self.shared.hands.objects.forget(&id.uid);
        if let Some(cluster) = &self.shared.cluster {
            cluster.statuses.forget(&id.uid);
            cluster.mirrors.ended(id);
        }
    }
}

//! What the registry keeps to judge new pods: the node, and what each pod that runs takes of it.
//!
//! Who may run is decided in `crablet_planner::node::admission`. A pod is judged once, when it is new: one that an
//! earlier life of the agent began, or that the runtime has, was let in already.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_model::allocation::Allocation;
use crablet_model::{PodUid, api};
use crablet_planner::node::admission::{AdmissionNode, Answer, Claim, Decision, judge, judge_resize};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;

use crate::view::View;

/// The Node as the API server has it this moment: a watch may be a little behind.
#[async_trait]
pub trait FreshNode: Send + Sync + 'static {
    async fn fetch(&self) -> Option<Arc<AdmissionNode>>;
}

pub struct Admission {
    pub(crate) node: watch::Receiver<Arc<AdmissionNode>>,
    /// `None` in standalone mode.
    pub(crate) fresh: Option<Arc<dyn FreshNode>>,
    claims: BTreeMap<PodUid, Claim>,
}

impl Admission {
    pub fn new(node: watch::Receiver<Arc<AdmissionNode>>, fresh: Option<Arc<dyn FreshNode>>) -> Self {
        Self { node, fresh, claims: BTreeMap::new() }
    }

    /// The node, if anything is known of it.
    pub(crate) fn node(&self) -> Option<Arc<AdmissionNode>> {
        let node = self.node.borrow();
        node.is_known().then(|| node.clone())
    }

    /// The pod takes its part of the node from now on.
    pub(crate) fn count(&mut self, uid: &PodUid, pod: &api::Pod) {
        self.claims.insert(uid.clone(), Claim::of(pod));
    }

    /// The pod takes nothing any more.
    pub(crate) fn discount(&mut self, uid: &PodUid) -> Option<Claim> {
        self.claims.remove(uid)
    }

    /// Judges a pod. Who has finished meanwhile takes nothing: looked at only when that matters.
    pub(crate) fn judge(
        &mut self,
        uid: &PodUid,
        pod: &api::Pod,
        node: &AdmissionNode,
        view: &View,
    ) -> Decision {
        self.claims.remove(uid);
        let decision = judge(pod, &self.claims, node);
        if decision == Decision::Admitted || !self.discount_finished(view) {
            return decision;
        }
        judge(pod, &self.claims, node)
    }

    /// Whether the pod may have the resources that it asks for. What it has stays counted, whatever the answer is.
    pub(crate) fn judge_resize(
        &mut self,
        uid: &PodUid,
        pod: &api::Pod,
        granted: &Allocation,
        node: &AdmissionNode,
        view: &View,
    ) -> Answer {
        let own = self.claims.remove(uid);
        let mut answer = judge_resize(pod, granted, &self.claims, node);
        if matches!(answer, Answer::Deferred { .. }) && self.discount_finished(view) {
            answer = judge_resize(pod, granted, &self.claims, node);
        }
        if let Some(own) = own {
            self.claims.insert(uid.clone(), own);
        }
        answer
    }

    /// A pod that counts already has changed. Says whether it takes another part of the node now.
    pub(crate) fn recount(&mut self, uid: &PodUid, pod: &api::Pod) -> bool {
        let Some(known) = self.claims.get_mut(uid) else { return false };
        let claim = Claim::of(pod);
        let differs = *known != claim;
        *known = claim;
        differs
    }

    fn discount_finished(&mut self, view: &View) -> bool {
        let before = self.claims.len();
        self.claims.retain(|uid, _| !has_finished(view, uid));
        self.claims.len() < before
    }
}

/// Whether the pod has come to its end, for good, and nothing of it runs.
pub(crate) fn has_finished(view: &View, uid: &PodUid) -> bool {
    let status = view.status(uid);
    let status = status.and_then(|json| serde_json::from_slice::<Status>(&json).ok()).unwrap_or_default();
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let runs = lists.into_iter().flatten().any(|container| container.state.running.is_some());
    matches!(status.phase.as_str(), "Succeeded" | "Failed") && !runs
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    container_statuses: Vec<Container>,
    init_container_statuses: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<IgnoredAny>,
}

//! What becomes of a pod, if more than its assignment has a say in it.

use crablet_model::api;
use crablet_model::names::annotation;
use crablet_model::runtime::PodRuntime;
use crablet_planner::pod::{Ending, Memory, Wish};

/// A pod's end outlives the agent: grace that has begun goes on, and a pod whose specification is lost gets the grace
/// that its containers were annotated with.
pub(super) fn effective_wish(
    wish: &Wish,
    pod: Option<&api::Pod>,
    memory: &Memory,
    runtime: &PodRuntime,
) -> Wish {
    let Wish::End(end) = wish else {
        return Wish::Run;
    };
    if let Some(begun) = &memory.ending {
        if pod.is_none() {
            // Nobody who asks for its end knows its grace; what was found out when it began does.
            return Wish::End(Ending { forget: end.forget || begun.forget, ..begun.clone() });
        }
        let kill_at = |e: &Ending| e.since.as_second().saturating_add(e.grace_seconds);
        let sooner = if kill_at(begun) <= kill_at(end) { begun } else { end };
        return Wish::End(Ending { forget: end.forget || begun.forget, ..sooner.clone() });
    }
    let mut end = end.clone();
    if pod.is_none() {
        let annotated = runtime.containers.iter().filter_map(|c| {
            c.annotations
                .get(annotation::POD_TERMINATION_GRACE_PERIOD)
                .and_then(|text| text.parse::<i64>().ok())
        });
        end.grace_seconds = annotated.max().unwrap_or(1).max(1);
    }
    Wish::End(end)
}

/// A pod of the API server that has no record here was run by another agent on this node: what that one published is
/// what is remembered of it.
pub(super) fn taken_over(mut memory: Memory, pod: Option<&api::Pod>, is_static: bool) -> Memory {
    if memory.status.is_none() && !is_static {
        let theirs = pod.and_then(|p| p.status.as_ref());
        memory.status = theirs.filter(|s| s.start_time.is_some()).cloned();
    }
    memory
}

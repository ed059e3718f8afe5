//! Who makes room for a critical pod: as few as possible, guaranteed pods last, and of two that serve alike the smaller.

use std::collections::BTreeMap;

use crablet_model::PodUid;
use crablet_model::qos::QosClass;

use super::claim::Claim;

/// Resources that have to become free, with how much of each.
type Missing = Vec<(String, i64)>;
type Candidate<'a> = (&'a PodUid, &'a Claim);

pub fn victims(
    preemptor: &Claim,
    others: &BTreeMap<PodUid, Claim>,
    missing: Missing,
) -> Result<Vec<PodUid>, String> {
    let of = |class: QosClass| -> Vec<Candidate<'_>> {
        others.iter().filter(|(_, c)| preemptor.outranks(c) && c.qos == class).collect()
    };
    let (best_effort, burstable, guaranteed) =
        (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let error = |error| format!("preemption: error finding a set of pods to preempt: {error}");

    let never = without(&missing, best_effort.iter().chain(&burstable).chain(&guaranteed));
    if !never.is_empty() {
        return Err(error(nobody(&never)));
    }
    let rest = without(&missing, best_effort.iter().chain(&burstable));
    let guaranteed = nearest(guaranteed, rest).map_err(error)?;
    let rest = without(&missing, best_effort.iter().chain(&guaranteed));
    let burstable = nearest(burstable, rest).map_err(error)?;
    let rest = without(&missing, burstable.iter().chain(&guaranteed));
    let best_effort = nearest(best_effort, rest).map_err(error)?;
    Ok(best_effort.into_iter().chain(burstable).chain(guaranteed).map(|(uid, _)| uid.clone()).collect())
}

/// Again and again the one that comes nearest to what is still missing.
fn nearest(mut candidates: Vec<Candidate<'_>>, mut missing: Missing) -> Result<Vec<Candidate<'_>>, String> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (index, (_, claim)) in candidates.iter().enumerate() {
            let distance = distance(&missing, claim);
            let is_better = best.is_none_or(|(other, least)| {
                distance < least || (distance == least && is_no_larger(claim, candidates[other].1))
            });
            if is_better {
                best = Some((index, distance));
            }
        }
        let Some((index, _)) = best else { return Err(nobody(&missing)) };
        let one = candidates.swap_remove(index);
        missing = without(&missing, std::iter::once(&one));
        chosen.push(one);
    }
    Ok(chosen)
}

/// How much would still be missing, each resource by its share.
#[expect(clippy::cast_precision_loss, reason = "shares are compared, not amounts")]
fn distance(missing: &Missing, claim: &Claim) -> f64 {
    let share = |(resource, amount): &(String, i64)| {
        let left = amount.saturating_sub(claim.reclaimed.of(resource));
        if left > 0 { (left as f64 / *amount as f64).powi(2) } else { 0.0 }
    };
    missing.iter().map(share).sum()
}

fn is_no_larger(one: &Claim, other: &Claim) -> bool {
    let size = |claim: &Claim| (claim.reclaimed.memory, claim.reclaimed.milli_cpu);
    size(one) <= size(other)
}

/// What is still missing once these have gone.
fn without<'a>(missing: &Missing, gone: impl Iterator<Item = &'a Candidate<'a>> + Clone) -> Missing {
    let left = |(resource, amount): &(String, i64)| {
        let freed = gone.clone().fold(0_i64, |sum, (_, c)| sum.saturating_add(c.reclaimed.of(resource)));
        let left = amount.saturating_sub(freed);
        (left > 0).then(|| (resource.clone(), left))
    };
    missing.iter().filter_map(left).collect()
}

fn nobody(missing: &Missing) -> String {
    let list: String =
        missing.iter().map(|(resource, amount)| format!("(res: {resource}, q: {amount}), ")).collect();
    format!("no set of running pods found to reclaim resources: [{list}]")
}

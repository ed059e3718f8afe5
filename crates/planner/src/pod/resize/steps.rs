//! The order in which a resize is carried out: memory, then CPU. What the pod as a whole may use grows before its containers
//! do, and shrinks after them.

use std::collections::BTreeMap;

use crablet_model::allocation::Sizes;
use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};

use super::{Change, Resize};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Of the pod's cgroup; what is not said stays as it is.
    Pod(CgroupLimits),
    /// A container gets these sizes.
    Container(&'a Change, Sizes),
}

/// What the pod's cgroup is to be like, and what it is like.
#[derive(Clone, Copy, Debug)]
pub struct PodCgroup<'a> {
    pub wanted: &'a CgroupLimits,
    pub now: &'a CgroupNow,
}

/// `cgroup` is `None` where pods have none.
pub fn steps<'a>(resize: &'a Resize, cgroup: Option<PodCgroup<'_>>) -> Vec<Step<'a>> {
    let mut all = Vec::new();
    let for_pod = resize.for_starts || resize.whole;
    if for_pod || !resize.memory.is_empty() {
        // Memory that is asked for is not the kernel's business.
        let limit = cgroup.and_then(|cgroup| Some((cgroup.now.memory, cgroup.wanted.memory?)));
        let set = |memory| CgroupLimits { memory: Some(memory), ..CgroupLimits::default() };
        let changes = resize.memory.iter().map(|c| Step::Container(c, c.to.with_cpu_of(c.from)));
        all.extend(around(limit.map(|it| (it, set(it.1))), None, changes));
    }
    if for_pod || !resize.cpu.is_empty() {
        let limit = cgroup.and_then(|cgroup| {
            let quota = cgroup.wanted.cpu_quota?;
            let period = cgroup.wanted.cpu_period;
            let set = CgroupLimits { cpu_quota: Some(quota), cpu_period: period, ..CgroupLimits::default() };
            Some(((cgroup.now.cpu_quota, quota), set))
        });
        let request = cgroup.and_then(|cgroup| {
            let shares = cgroup.wanted.cpu_shares?;
            let set = CgroupLimits { cpu_shares: Some(shares), ..CgroupLimits::default() };
            Some(((cgroup.now.cpu_shares, shares), set))
        });
        let changes = resize.cpu.iter().map(|c| Step::Container(c, c.to));
        all.extend(around(limit, request, changes));
    }
    all
}

/// A value of the pod's cgroup, from and to, and the setting that changes it.
type Setting = ((i64, i64), CgroupLimits);

/// Limits grow before requests, and shrink after them: a request is never more than its limit.
fn around<'a>(
    limit: Option<Setting>,
    request: Option<Setting>,
    containers: impl Iterator<Item = Step<'a>>,
) -> Vec<Step<'a>> {
    let grows = |setting: &Option<Setting>| {
        let growing = setting.as_ref().filter(|((from, to), _)| to > from);
        growing.map(|(_, set)| Step::Pod(set.clone()))
    };
    let shrinks = |setting: &Option<Setting>| {
        let shrinking = setting.as_ref().filter(|((from, to), _)| to < from);
        shrinking.map(|(_, set)| Step::Pod(set.clone()))
    };
    let before = grows(&limit).into_iter().chain(grows(&request));
    let after = shrinks(&request).into_iter().chain(shrinks(&limit));
    before.chain(containers).chain(after).collect()
}

/// Containers whose memory limit would be less than it is.
pub fn squeezed(resize: &Resize) -> impl Iterator<Item = &Change> {
    resize.memory.iter().filter(|change| {
        let (from, to) = (change.from.memory_limit, change.to.memory_limit);
        to != 0 && (from == 0 || to < from)
    })
}

/// Why the resize must not be done now: something uses more memory than it would have. `usage` by container, `None` where
/// nobody knows.
pub fn refusal(
    resize: &Resize,
    cgroup: Option<PodCgroup<'_>>,
    usage: &BTreeMap<&str, Option<u64>>,
) -> Option<String> {
    if resize.memory.is_empty() && !resize.for_starts {
        return None;
    }
    let mut errors = Vec::new();
    let pod = cgroup.and_then(|cgroup| Some((cgroup.wanted.memory?, cgroup.now)));
    if let Some((limit, now)) = pod.filter(|(limit, now)| *limit < now.memory && now.memory_usage >= *limit) {
        errors.push(format!(
            "attempting to set pod memory limit ({limit}) below current usage ({})",
            now.memory_usage
        ));
    }
    for change in squeezed(resize) {
        let (name, limit) = (&change.container, change.to.memory_limit);
        match usage.get(name.as_str()).copied().flatten() {
            None => errors.push(format!("missing container {name:?} memory usage")),
            Some(used) if i64::try_from(used).unwrap_or(i64::MAX) >= limit => errors.push(format!(
                "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
            )),
            Some(_) => {}
        }
    }
    let why = match errors.as_slice() {
        [] => return None,
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Some(format!("cannot decrease memory limits: {why}"))
}

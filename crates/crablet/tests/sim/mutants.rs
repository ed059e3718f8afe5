//! Planners that are wrong on purpose. Each breaks one promise, and the simulation has to notice. Servers that are wrong on
//! purpose are [`Lie`](super::cluster::api::Lie)s.

use crablet_model::api::PodSpec;
use crablet_model::runtime::{ContainerState, SandboxState};
use crablet_planner::pod::{Action, Facts, Memory, Plan, PreparedImage, Probes, Wish, plan};

/// Restart counts begin at 0 again each time.
pub fn attempt_is_always_zero(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    for action in &mut plan.actions {
        if let Action::StartContainer { attempt, .. } = action {
            *attempt = 0;
        }
    }
    plan
}

/// Pods that nobody wants stay.
pub fn never_ends(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    if matches!(facts.wish, Wish::End(_)) {
        plan.actions.clear();
        plan.finished = false;
    }
    plan
}

/// Crashing containers are restarted at once.
pub fn no_back_off(facts: &Facts<'_>) -> Plan {
    let memory = Memory { crash_loops: Default::default(), ..facts.memory.clone() };
    plan(&Facts { memory: &memory, ..*facts })
}

/// A second instance beside one that runs.
pub fn second_instance(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let running = facts.runtime.containers.iter().find(|c| c.state.is_running());
    if let (Wish::Run, Some(running), true, true) =
        (facts.wish, running, plan.actions.is_empty(), facts.session.ops.is_empty())
    {
        plan.actions.push(Action::StartContainer {
            container: running.name.clone(),
            attempt: running.restart_count + 1,
            sandbox_id: running.sandbox_id.clone(),
            image: PreparedImage { image_ref: running.image_ref.clone(), uid: None, username: String::new() },
        });
    }
    plan
}

/// A second sandbox beside one that is ready.
pub fn second_sandbox(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let ready: Vec<_> = facts.runtime.sandboxes.iter().filter(|s| s.state == SandboxState::Ready).collect();
    if let (Wish::Run, [only], true) = (facts.wish, ready.as_slice(), facts.session.ops.is_empty()) {
        plan.actions.push(Action::CreateSandbox { attempt: only.attempt + 1 });
    }
    plan
}

/// Containers that run well are stopped now and then.
pub fn stops_the_healthy(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let old = facts.runtime.containers.iter().find(|c| match c.state {
        ContainerState::Running { started_at } => facts.now.duration_since(started_at).as_secs() > 60,
        _ => false,
    });
    if let (Wish::Run, Some(old), true) = (facts.wish, old, facts.session.ops.is_empty()) {
        plan.actions.push(Action::StopContainer {
            container: old.name.clone(),
            id: old.id.clone(),
            grace: std::time::Duration::from_secs(30),
            message: String::new(),
        });
    }
    plan
}

/// Nobody waits for init containers.
pub fn impatient(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let spec = facts.pod.and_then(|pod| pod.spec.as_ref());
    let first = spec.and_then(|spec| spec.containers.first());
    let ready = facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready);
    let has_init = spec.is_some_and(|spec| spec.init_containers.iter().flatten().next().is_some());
    if let (Wish::Run, Some(first), Some(sandbox), true) = (facts.wish, first, ready, has_init)
        && facts.runtime.instances(&first.name).next().is_none()
        && !plan
            .actions
            .iter()
            .map(Action::key)
            .chain(facts.session.ops.keys().cloned())
            .any(|key| matches!(key, crablet_planner::pod::OpKey::Start(name) if name == first.name))
    {
        plan.actions.push(Action::StartContainer {
            container: first.name.clone(),
            attempt: 0,
            sandbox_id: sandbox.id.clone(),
            image: PreparedImage {
                image_ref: first.image.clone().unwrap_or_default(),
                uid: None,
                username: String::new(),
            },
        });
    }
    plan
}

/// When a pod ends, sidecars are stopped like everybody else.
pub fn forgets_who_needs_whom(facts: &Facts<'_>) -> Plan {
    let Some(pod) = facts.pod.filter(|_| matches!(facts.wish, Wish::End(_))) else { return plan(facts) };
    let mut pod = pod.clone();
    for container in pod.spec.iter_mut().flat_map(|spec| spec.init_containers.iter_mut().flatten()) {
        container.restart_policy = None;
    }
    plan(&Facts { pod: Some(&pod), ..*facts })
}

/// A pod that differs from the real one in what `change` does.
fn of_another(facts: &Facts<'_>, change: impl FnOnce(&mut PodSpec)) -> Plan {
    let Some(pod) = facts.pod else { return plan(facts) };
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        change(spec);
    }
    plan(&Facts { pod: Some(&pod), ..*facts })
}

/// Pods run as long as they like.
pub fn no_deadline(facts: &Facts<'_>) -> Plan {
    of_another(facts, |spec| spec.active_deadline_seconds = None)
}

/// Containers have no rules.
pub fn no_rules(facts: &Facts<'_>) -> Plan {
    of_another(facts, |spec| spec.containers.iter_mut().for_each(|c| c.restart_policy_rules = None))
}

/// Who asks for all to begin afresh begins afresh alone.
pub fn begins_alone(facts: &Facts<'_>) -> Plan {
    of_another(facts, |spec| {
        let rules = spec.containers.iter_mut().flat_map(|c| c.restart_policy_rules.iter_mut().flatten());
        rules.for_each(|rule| rule.action = "Restart".to_owned());
    })
}

/// What was granted is never given.
pub fn never_resizes(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    plan.actions.retain(|action| !matches!(action, Action::Resize(_)));
    plan
}

/// Whoever gets another part of the node is started again for it.
pub fn restarts_for_any_size(facts: &Facts<'_>) -> Plan {
    of_another(facts, |spec| {
        let policy = |resource: &str| crablet_model::api::ContainerResizePolicy {
            resource_name: resource.to_owned(),
            restart_policy: "RestartContainer".to_owned(),
        };
        spec.containers
            .iter_mut()
            .for_each(|c| c.resize_policy = Some(vec![policy("cpu"), policy("memory")]));
    })
}

/// Nobody heeds what probes find.
pub fn ignores_probes(facts: &Facts<'_>) -> Plan {
    plan(&Facts { probes: &Probes::default(), ..*facts })
}

/// Whoever runs has started.
pub fn believes_all_started(facts: &Facts<'_>) -> Plan {
    let mut probes = facts.probes.clone();
    for container in &facts.runtime.containers {
        probes.0.entry(container.id.clone()).or_default().startup = Some(true);
    }
    plan(&Facts { probes: &probes, ..*facts })
}

/// Nobody comes to look.
pub fn no_debuggers(facts: &Facts<'_>) -> Plan {
    of_another(facts, |spec| spec.ephemeral_containers = None)
}

/// Ephemeral containers live more than once.
pub fn debugs_again(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let ended = facts.runtime.containers.iter().find(|c| c.name.starts_with('e') && c.state.exit().is_some());
    let ready = facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready);
    let is_free = plan.actions.is_empty() && facts.session.ops.is_empty();
    if let (Wish::Run, Some(ended), Some(sandbox), true) = (facts.wish, ended, ready, is_free)
        && !facts.runtime.instances(&ended.name).any(|c| c.state.is_running())
    {
        plan.actions.push(Action::StartContainer {
            container: ended.name.clone(),
            attempt: ended.restart_count + 1,
            sandbox_id: sandbox.id.clone(),
            image: PreparedImage { image_ref: ended.image_ref.clone(), uid: None, username: String::new() },
        });
    }
    plan
}

/// Everybody gets two seconds to stop.
pub fn no_grace(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    for action in &mut plan.actions {
        if let Action::StopContainer { grace, .. } = action {
            *grace = std::time::Duration::from_secs(2);
        }
    }
    plan
}

/// Every pod is restarted, whatever its policy.
pub fn always_restarts(facts: &Facts<'_>) -> Plan {
    let Some(pod) = facts.pod else { return plan(facts) };
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.restart_policy = Some("Always".to_owned());
    }
    plan(&Facts { pod: Some(&pod), ..*facts })
}

/// Logs and folders of deleted pods stay.
pub fn no_clean_up(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    if plan.actions.contains(&Action::Cleanup) {
        plan.actions.retain(|action| *action != Action::Cleanup);
        plan.finished = true;
    }
    plan
}

/// The replacement of a lost sandbox is asked for under the name of the lost one.
pub fn sandbox_attempt_is_always_zero(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    for action in &mut plan.actions {
        if let Action::CreateSandbox { attempt } = action {
            *attempt = 0;
        }
    }
    plan
}

/// Every plan tells anew when the pod became ready.
pub fn transitions_are_now(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    for condition in plan.status.iter_mut().flat_map(|s| s.conditions.iter_mut().flatten()) {
        condition.last_transition_time =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(facts.now));
    }
    plan
}

/// What was remembered is forgotten.
pub fn no_memory(facts: &Facts<'_>) -> Plan {
    let memory = Memory { status: None, ..facts.memory.clone() };
    plan(&Facts { memory: &memory, ..*facts })
}

/// Says that nothing of a pod is left as soon as it should end.
pub fn lets_go_early(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    plan.released |= matches!(facts.wish, Wish::End(_));
    plan
}

/// Says that nothing of a pod is left while it holds volumes and a cgroup.
pub fn never_releases(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let releases = plan.actions.contains(&Action::Release);
    plan.actions.retain(|action| *action != Action::Release);
    plan.released |= releases;
    plan
}

/// Does not look after what an earlier life of the agent started.
pub fn never_takes_over(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    plan.actions.retain(|action| *action != Action::TakeOver);
    plan
}

/// What has ended runs again, in words.
pub fn revives_the_finished(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    let was_final = facts
        .memory
        .status
        .as_ref()
        .is_some_and(|s| matches!(s.phase.as_deref(), Some("Succeeded" | "Failed")));
    if let Some(status) = plan.status.as_mut().filter(|_| was_final) {
        status.phase = Some("Running".to_owned());
    }
    plan
}

/// Finds something to tell every second.
pub fn chatters(facts: &Facts<'_>) -> Plan {
    let mut plan = plan(facts);
    if let Some(status) = &mut plan.status {
        status.message = Some(format!("still here at {}", facts.now));
        plan.wake_at = facts.now.checked_add(std::time::Duration::from_secs(1)).ok();
    }
    plan
}

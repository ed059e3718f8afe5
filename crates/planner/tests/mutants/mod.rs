//! Planners that are wrong on purpose. Each breaks a promise, and the stories that the properties draw have to show it.

use crablet_model::roster::{self, Role};
use crablet_model::runtime::{ContainerState, SandboxState};
use crablet_planner::pod::{Action, Facts, Grants, Memory, Pending, Plan, PreparedImage, Probes, Wish, plan};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::world::{Happening, Planner, World, any_happening, any_world};

/// All that a story can show of a planner.
fn judge(mut world: World, story: Vec<Happening>) -> Result<(), String> {
    for happening in story {
        world.happen(happening);
    }
    world.calm_down();
    world.run_until_quiet()?;
    // Longer than any deadline.
    world.happen(Happening::Wait { seconds: 10_000 });
    world.run_until_quiet()?;
    if !world.is_gone() && !world.is_released() && !world.is_as_wanted() {
        return Err(format!("not as wanted: {world:?}"));
    }
    world.happen(Happening::DeleteInApi);
    world.happen(Happening::Delete);
    world.run_until_quiet()?;
    if !world.is_gone() && !world.is_released() {
        return Err("it does not end".to_owned());
    }
    world.happen(Happening::LeavesApi);
    world.run_until_quiet()?;
    if !world.is_gone() {
        return Err("something is left of it".to_owned());
    }
    if world.broken.is_empty() { Ok(()) } else { Err(world.broken.join("; ")) }
}

fn told(planner: Planner) -> Option<String> {
    let config =
        ProptestConfig { cases: 2048, max_shrink_iters: 0, failure_persistence: None, ..crate::config() };
    let stories = (any_world(), proptest::collection::vec(any_happening(), 0..120));
    let result = TestRunner::new(config)
        .run(&stories, |(world, story)| judge(world.planned_by(planner), story).map_err(TestCaseError::fail));
    match result {
        Ok(()) => None,
        Err(TestError::Fail(reason, _)) => Some(reason.message().to_owned()),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

fn must_be_caught(planner: Planner) {
    let told = told(planner);
    assert!(told.is_some(), "no story shows it");
}

#[test]
fn the_planner_itself_is_not_caught() {
    assert_eq!(told(plan), None);
}

/// A plan with something more in it, if there is something to do wrong.
fn with(facts: &Facts<'_>, wrong: impl Fn(&mut Plan) -> Option<Action>) -> Plan {
    let mut plan = plan(facts);
    let more = wrong(&mut plan);
    let is_free = |action: &Action| {
        !facts.session.ops.contains_key(&action.key()) && plan.actions.iter().all(|a| a.key() != action.key())
    };
    let more = more.filter(is_free);
    plan.actions.extend(more);
    plan
}

fn start(facts: &Facts<'_>, name: &str, attempt: u32) -> Option<Action> {
    let sandbox = facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready)?;
    let image = PreparedImage { image_ref: String::new(), uid: None, username: String::new() };
    let (container, sandbox_id) = (name.to_owned(), sandbox.id.clone());
    Some(Action::StartContainer { container, attempt, sandbox_id, image })
}

/// A pod that differs from the real one in what `change` does.
fn of_another(facts: &Facts<'_>, change: impl Fn(&mut crablet_model::api::PodSpec)) -> Plan {
    let Some(pod) = facts.pod else { return plan(facts) };
    let mut pod = pod.clone();
    pod.spec.iter_mut().for_each(change);
    plan(&Facts { pod: Some(&pod), ..*facts })
}

fn remembering(facts: &Facts<'_>, change: impl Fn(&mut Memory)) -> Plan {
    let mut memory = facts.memory.clone();
    change(&mut memory);
    plan(&Facts { memory: &memory, ..*facts })
}

#[test]
fn a_second_instance_is_caught() {
    must_be_caught(|facts| {
        with(facts, |_| {
            let running = facts.runtime.containers.iter().find(|c| c.state.is_running())?;
            start(facts, &running.name, running.restart_count + 1).filter(|_| *facts.wish == Wish::Run)
        })
    });
}

#[test]
fn a_second_sandbox_is_caught() {
    must_be_caught(|facts| {
        with(facts, |_| {
            let ready = facts.runtime.sandboxes.iter().find(|s| s.state == SandboxState::Ready)?;
            (*facts.wish == Wish::Run).then_some(Action::CreateSandbox { attempt: ready.attempt + 1 })
        })
    });
}

#[test]
fn restarts_without_back_off_are_caught() {
    must_be_caught(|facts| remembering(facts, |memory| memory.crash_loops.clear()));
}

#[test]
fn a_pod_without_its_init_containers_is_caught() {
    must_be_caught(|facts| of_another(facts, |spec| spec.init_containers = None));
}

#[test]
fn a_sidecar_that_nobody_waits_for_is_caught() {
    must_be_caught(|facts| {
        let mut probes = facts.probes.clone();
        for instance in &facts.runtime.containers {
            probes.0.entry(instance.id.clone()).or_default().startup = Some(true);
        }
        plan(&Facts { probes: &probes, ..*facts })
    });
}

#[test]
fn restarts_of_what_should_rest_are_caught() {
    must_be_caught(|facts| of_another(facts, |spec| spec.restart_policy = Some("Always".to_owned())));
}

#[test]
fn rules_that_nobody_heeds_are_caught() {
    must_be_caught(|facts| {
        of_another(facts, |spec| {
            for container in &mut spec.containers {
                container.restart_policy_rules = None;
            }
        })
    });
}

#[test]
fn policies_of_containers_that_nobody_heeds_are_caught() {
    must_be_caught(|facts| {
        of_another(facts, |spec| {
            for container in &mut spec.containers {
                container.restart_policy = None;
            }
        })
    });
}

#[test]
fn the_stop_of_a_healthy_container_is_caught() {
    must_be_caught(|facts| {
        with(facts, |_| {
            let old = facts.runtime.containers.iter().find(|c| match c.state {
                ContainerState::Running { started_at } => facts.now.duration_since(started_at).as_secs() > 60,
                _ => false,
            })?;
            let grace = std::time::Duration::from_secs(30);
            let (container, id) = (old.name.clone(), old.id.clone());
            let stop = Action::StopContainer { container, id, grace, message: String::new() };
            (*facts.wish == Wish::Run).then_some(stop)
        })
    });
}

#[test]
fn probes_that_nobody_heeds_are_caught() {
    must_be_caught(|facts| plan(&Facts { probes: &Probes::default(), ..*facts }));
}

#[test]
fn hooks_that_do_not_run_are_caught() {
    must_be_caught(|facts| {
        let ends = matches!(facts.wish, Wish::End(_));
        of_another(facts, |spec| {
            for container in spec.containers.iter_mut().filter(|_| ends) {
                container.lifecycle = None;
            }
        })
    });
}

#[test]
fn sidecars_that_end_first_are_caught() {
    must_be_caught(|facts| {
        let ends = matches!(facts.wish, Wish::End(_));
        of_another(facts, |spec| {
            for container in spec.init_containers.iter_mut().flatten().filter(|_| ends) {
                container.restart_policy = None;
            }
        })
    });
}

#[test]
fn a_second_run_of_an_ephemeral_container_is_caught() {
    must_be_caught(|facts| {
        with(facts, |_| {
            let spec = facts.pod?.spec.as_ref()?;
            let ended = facts.runtime.containers.iter().find(|c| {
                let role = roster::find(spec, &c.name).map(|(role, _)| role);
                role == Some(Role::Ephemeral) && c.state.exit().is_some()
            })?;
            start(facts, &ended.name, ended.restart_count + 1).filter(|_| *facts.wish == Wish::Run)
        })
    });
}

#[test]
fn restart_counts_that_stand_still_are_caught() {
    must_be_caught(|facts| {
        let mut plan = plan(facts);
        for action in &mut plan.actions {
            if let Action::StartContainer { attempt, .. } = action {
                *attempt = 0;
            }
        }
        plan
    });
}

#[test]
fn a_verdict_that_is_taken_back_is_caught() {
    must_be_caught(|facts| {
        let memory = Memory { verdict: None, ..facts.memory.clone() };
        plan(&Facts { memory: &memory, verdict: None, ..*facts })
    });
}

#[test]
fn a_deadline_that_nobody_heeds_is_caught() {
    must_be_caught(|facts| of_another(facts, |spec| spec.active_deadline_seconds = None));
}

#[test]
fn a_forgotten_status_is_caught() {
    must_be_caught(|facts| remembering(facts, |memory| memory.status = None));
}

#[test]
fn a_wait_that_a_clock_stretches_is_caught() {
    must_be_caught(|facts| {
        let mut plan = plan(facts);
        let late = facts.memory.failures.values().map(|failure| failure.retry_at).max();
        if let Some(late) = late.filter(|late| facts.now < *late && plan.actions.is_empty()) {
            plan.wake_at = plan.wake_at.map(|at| at.max(late));
        }
        plan
    });
}

#[test]
fn a_resize_that_is_never_carried_out_is_caught() {
    must_be_caught(|facts| {
        let mut plan = plan(facts);
        plan.actions.retain(|action| !matches!(action, Action::Resize(_)));
        plan
    });
}

#[test]
fn a_restart_that_no_resize_policy_asks_for_is_caught() {
    must_be_caught(|facts| {
        of_another(facts, |spec| {
            for container in &mut spec.containers {
                let policy = |resource: &str| crablet_model::api::ContainerResizePolicy {
                    resource_name: resource.to_owned(),
                    restart_policy: "RestartContainer".to_owned(),
                };
                container.resize_policy = Some(vec![policy("cpu"), policy("memory")]);
            }
        })
    });
}

#[test]
fn a_resize_policy_that_nobody_heeds_is_caught() {
    must_be_caught(|facts| {
        of_another(facts, |spec| spec.containers.iter_mut().for_each(|c| c.resize_policy = None))
    });
}

#[test]
fn a_waiting_resize_that_is_not_told_is_caught() {
    must_be_caught(|facts| {
        let grants = Grants { pending: Pending::Nothing, ..facts.grants.clone() };
        plan(&Facts { grants: &grants, ..*facts })
    });
}

#[test]
fn a_pod_that_never_ends_is_caught() {
    must_be_caught(|facts| {
        let mut plan = plan(facts);
        if matches!(facts.wish, Wish::End(_)) {
            plan.actions.retain(|action| *action != Action::Release && *action != Action::Cleanup);
        }
        plan
    });
}

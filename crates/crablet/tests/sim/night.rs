//! One night, from the first manifest to the last look in the morning.

use std::cell::RefCell;
use std::time::Duration;

use crablet_cri::fake::{Call, Cause, Life, TraceEntry, What};
use crablet_model::api::PodStatus;
use crablet_model::names::phase;
use crablet_model::runtime::{Container, ContainerState, SandboxState};
use crablet_model::{PodUid, Role};

use super::Broken;
use super::cluster::checks;
use super::invariants;
use super::pods::parts::Readiness;
use super::pods::{ContainerPlan, Expected, PodPlan, Policy};
use super::room::{self, is_refused};
use super::story::{Kind, Story};
use super::world::{Manifest, Variant, World};

/// After the trouble, every pod comes to what it should within this. The longest wait is two of the longest back-offs
/// with a pull in between.
const SETTLED_WITHIN: Duration = Duration::from_secs(1200);
/// On a node on which all is well a pod is gone within its grace, a minute at most, and what the calls take.
const GONE_WITHIN: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_secs(5);
/// What a pod that its deadline ends may take for that.
const ENDS_WITHIN_SECONDS: i64 = 120;
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

pub struct Night {
    pub story: Story,
    pub broken: Vec<Broken>,
    pub trace: Vec<TraceEntry>,
    pub steps: u64,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The agent survives its own panics, so the night has to hear of them another way. Called once per process.
pub fn listen_for_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let in_simulation = std::thread::current().name().is_some_and(|name| name.starts_with("night"));
        if in_simulation {
            PANICS.with(|panics| panics.borrow_mut().push(info.to_string()));
        } else {
            default(info);
        }
    }));
}

pub fn run(seed: u64, variant: Variant) -> Night {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let mut night = runtime.block_on(Box::pin(night(Story::of(seed, variant.family), variant)));
    drop(runtime);
    let panics = PANICS.with(|panics| std::mem::take(&mut *panics.borrow_mut()));
    night.broken.extend(panics.into_iter().map(|text| Broken::new("nothing panics", text)));
    night
}

async fn night(story: Story, variant: Variant) -> Night {
    let healed = story.healed;
    let mut world = World::new(story, variant);
    let mut broken = Vec::new();
    world.start_agent();
    world.play(healed).await;
    world.heal();
    broken.extend(settle(&mut world, SETTLED_WITHIN, unsettled).await);
    if broken.is_empty() {
        world.play(world.elapsed() + Duration::from_secs(15)).await;
        broken.extend(restart(&mut world).await);
    }
    if broken.is_empty() {
        for pod in 0..world.manifests.len() {
            world.remove(pod);
        }
        broken.extend(settle(&mut world, GONE_WITHIN, not_gone).await);
    }
    if world.is_running_in_circles() {
        broken.push(Broken::new("nothing runs in circles", format!("{} steps", world.steps())));
    }
    broken.append(&mut world.observer.broken);
    broken.append(&mut world.room.broken);
    broken.extend(world.cluster.iter().flat_map(|cluster| cluster.api.witness.broken()));
    broken.extend(checks::storms(&world));
    let trace = world.runtime.trace();
    broken.extend(invariants::check(&world, &trace));
    Night { steps: world.steps(), story: world.story, broken, trace }
}

/// Lets time pass until a check finds nothing, and says what it finds if that takes too long.
async fn settle(world: &mut World, within: Duration, check: fn(&World) -> Vec<Broken>) -> Vec<Broken> {
    let end = world.elapsed() + within;
    loop {
        world.play(world.elapsed() + STEP).await;
        let found = check(world);
        if found.is_empty() || world.elapsed() >= end || world.is_running_in_circles() {
            return found;
        }
    }
}

/// What is not yet as it should be with all pods that are wanted, and those that are not.
fn unsettled(world: &World) -> Vec<Broken> {
    let mut found = Vec::new();
    let containers = world.runtime.containers();
    for (pod, plan) in world.story.pods.iter().enumerate() {
        let Some(uid) = world.uid(pod) else { continue };
        let seen = Seen::of(world, pod, &uid, &containers);
        if let Err(text) = seen.check() {
            let status = statuses(world, &[(plan.name.clone(), uid)]).pop().map(|(_, status)| status);
            let text = format!("{} {text}\n  status {}", plan.name, status.unwrap_or_default());
            found.push(Broken::new("wanted pods come to what they should", text));
        }
    }
    let wanted: Vec<PodUid> = (0..world.manifests.len()).filter_map(|pod| world.uid(pod)).collect();
    found.extend(remains(world, &wanted));
    found.extend(checks::unsettled(world));
    found.extend(room::unsettled(world));
    found
}

fn not_gone(world: &World) -> Vec<Broken> {
    let mut found = remains(world, &[]);
    found.extend(checks::unsettled(world));
    found
}

/// What is there of pods that nobody wants.
fn remains(world: &World, wanted: &[PodUid]) -> Vec<Broken> {
    let is_wanted = |text: &str| wanted.iter().any(|uid| text.contains(uid.as_str()));
    let sandboxes = world.runtime.sandboxes().into_iter().filter(|s| !wanted.contains(&s.uid));
    let containers = world.runtime.containers().into_iter().filter(|c| !wanted.contains(&c.uid));
    let paths = world.leftovers().into_iter().filter(|path| !is_wanted(path));
    let shown = world.agent().into_iter().flat_map(|agent| agent.view().summary().pods);
    let shown = shown.filter(|pod| !is_wanted(&pod.uid));
    let found = sandboxes
        .map(|s| format!("sandbox {} of {}", s.id, s.name))
        .chain(containers.map(|c| format!("container {} ({})", c.name, c.id)))
        .chain(paths)
        .chain(shown.map(|pod| format!("{} is still shown", pod.name)));
    found.map(|text| Broken::new("nothing is left of a pod that nobody wants", text)).collect()
}

/// One wanted pod as it is now.
struct Seen<'a> {
    policy: Policy,
    expected: Expected,
    phase: String,
    ready: bool,
    /// Each container with its newest instance, in the order of the specification.
    newest: Vec<(&'a ContainerPlan, Option<&'a Container>)>,
    /// Of each newest instance: it runs in a sandbox that is up, is of the wanted version, and will run for ever.
    is_steady: Vec<bool>,
    /// Some instance is of another version than the wanted one: the next is on its way.
    is_replaced: bool,
    /// Some sidecar keeps ending.
    sidecars_loop: bool,
    sandbox_ready: bool,
    lost_its_sandbox: bool,
    reason: String,
    /// The node has ended it for a critical one, whatever its containers made of that.
    made_room: bool,
    /// It asks for another part of the node.
    waits_for_room: bool,
    /// How many seconds ago the pod's own deadline passed, if it did.
    overdue: Option<i64>,
    /// The pod has a deadline, and its clock was set back since: nobody can tell any more when that was.
    may_be_overdue: bool,
    /// Somebody asked for all containers to begin afresh, and this one did not.
    did_not_begin_afresh: Option<String>,
}

impl<'a> Seen<'a> {
    fn of(world: &'a World, pod: usize, uid: &PodUid, containers: &'a [Container]) -> Self {
        let plan = &world.story.pods[pod];
        let shown = world.agent().into_iter().flat_map(|agent| agent.view().summary().pods);
        let shown = shown.into_iter().find(|shown| shown.uid == uid.as_str());
        let newest = plan.everyone().map(|c| {
            let instances = containers.iter().filter(|seen| seen.uid == *uid && seen.name == c.name);
            (c, instances.max_by_key(|seen| seen.restart_count))
        });
        let newest: Vec<_> = newest.collect();
        let version = match world.manifests[pod] {
            Manifest::Version(version) => version,
            Manifest::Absent | Manifest::Spoiled(_) => 0,
        };
        let sandboxes = world.runtime.sandboxes();
        let is_up = |id: &str| sandboxes.iter().any(|s| s.id == id && s.state == SandboxState::Ready);
        let wanted_image = |(number, planned): (usize, &ContainerPlan)| planned.image_in(number, version);
        let wanted: Vec<String> = plan.containers.iter().enumerate().map(wanted_image).collect();
        let regular = newest.iter().skip(plan.init.len()).map(|(_, seen)| *seen);
        let is_replaced = regular.zip(&wanted).any(|(seen, image)| seen.is_some_and(|c| c.image != *image));
        let is_steady = plan.everyone().zip(&newest).enumerate().map(|(number, (planned, (_, seen)))| {
            let number = number.checked_sub(plan.init.len()).unwrap_or(usize::MAX);
            seen.is_some_and(|c| {
                c.state.is_running()
                    && is_up(&c.sandbox_id)
                    && c.image == planned.image_in(number, version)
                    && !(planned.extras.probes_fail_first() && c.restart_count == 0)
                    && !planned.extras.hangs()
                    && *planned.behaviour.life(c.restart_count) == Life::Forever
            })
        });
        let is_steady = is_steady.collect();
        let is_loss = |entry: &TraceEntry| match &entry.what {
            What::SandboxNotReady { sandbox, cause } => {
                sandbox.uid.as_ref() == Some(uid) && matches!(cause, Cause::Outside | Cause::Itself)
            }
            _ => false,
        };
        let status = world.agent().and_then(|agent| agent.view().status(uid));
        let status: PodStatus =
            status.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        let start = status.start_time.as_ref().map(|start| start.0);
        let passed = start.map(|start| world.now().duration_since(start).as_secs());
        let left = plan.deadline.zip(passed).map(|(deadline, passed)| i64::from(deadline) - passed);
        let conditions = status.conditions.as_deref().unwrap_or_default();
        Self {
            waits_for_room: conditions.iter().any(|c| c.type_ == "PodResizePending"),
            made_room: conditions.iter().any(|c| c.type_ == "DisruptionTarget" && c.status == "True"),
            reason: status.reason.unwrap_or_default(),
            overdue: left.filter(|left| *left <= 0).map(|left| -left),
            may_be_overdue: plan.deadline.is_some() && world.clock_was_set_back(),
            did_not_begin_afresh: did_not_begin_afresh(world, plan, uid, &newest),
            policy: plan.policy,
            expected: plan.expected(),
            phase: shown.as_ref().map(|shown| shown.phase.clone()).unwrap_or_default(),
            ready: shown.is_some_and(|shown| shown.ready),
            newest,
            is_steady,
            is_replaced,
            sidecars_loop: plan.init.iter().any(ContainerPlan::loops_beside),
            sandbox_ready: sandboxes.iter().any(|s| s.uid == *uid && s.state == SandboxState::Ready),
            lost_its_sandbox: world.runtime.read_trace(|trace| trace.iter().any(is_loss)),
        }
    }

    /// The exit code of a container that will not run again.
    fn final_code(&self, plan: &ContainerPlan, container: Option<&Container>) -> Option<i32> {
        let code = container?.state.exit()?.code;
        (!plan.restarts(self.policy, code)).then_some(code)
    }

    /// The pod had its time.
    fn is_past_deadline(&self) -> bool {
        (self.overdue.is_some() || self.may_be_overdue) && self.reason == DEADLINE_EXCEEDED
    }

    /// Nothing about the pod will change unless somebody interferes.
    fn rests(&self) -> bool {
        if self.ended().is_some() || self.failed_init() || self.is_past_deadline() || self.is_refused() {
            return true;
        }
        self.work_rests(false)
    }

    /// The same, perhaps but for sidecars.
    fn work_rests(&self, whatever_sidecars_do: bool) -> bool {
        let mut all = self.newest.iter().zip(&self.is_steady);
        all.all(|((plan, newest), is_steady)| match plan.role {
            Role::Sidecar if whatever_sidecars_do => true,
            Role::Init => newest.is_none_or(|c| c.state.exit().is_some_and(|exit| exit.code == 0)),
            Role::Sidecar => *is_steady,
            _ => *is_steady || self.final_code(plan, *newest).is_some(),
        })
    }

    fn is_done(&self) -> bool {
        self.rests() && !self.is_replaced
    }

    /// What the regular containers ended with, if none of them runs again.
    fn ended(&self) -> Option<Vec<i32>> {
        let regular = self.newest.iter().filter(|(plan, _)| plan.role == Role::Regular);
        regular.map(|(plan, newest)| self.final_code(plan, *newest)).collect()
    }

    /// An init container has failed that does not run again.
    fn failed_init(&self) -> bool {
        let mut init = self.newest.iter().filter(|(plan, _)| plan.role == Role::Init);
        init.any(|(plan, newest)| self.final_code(plan, *newest).is_some_and(|code| code != 0))
    }

    /// The node had no room for it, or has given its room to a critical one.
    fn is_refused(&self) -> bool {
        is_refused(&self.phase, &self.reason) || self.made_room && phase::is_terminal(&self.phase)
    }

    fn check(&self) -> Result<(), String> {
        let Self { phase, expected, .. } = self;
        if self.is_past_deadline() || self.is_refused() {
            let runs = self.newest.iter().any(|(_, c)| c.is_some_and(|c| c.state.is_running()));
            return match phase::is_terminal(phase) && !runs && !self.sandbox_ready {
                true => Ok(()),
                false => Err(format!("is {phase} by the node's verdict; something runs: {runs}")),
            };
        }
        if let Some(text) = &self.did_not_begin_afresh {
            return Err(text.clone());
        }
        if let Some(codes) = self.ended().or_else(|| self.failed_init().then(|| vec![1])) {
            let right = if codes.iter().all(|code| *code == 0) { phase::SUCCEEDED } else { phase::FAILED };
            if phase != right {
                return Err(format!("ended with {codes:?} and is {phase}, not {right}"));
            }
            return match self.sandbox_ready {
                true => Err(format!("is {phase} and still has a sandbox")),
                false => Ok(()),
            };
        }
        // A pod that is never restarted does not get a second sandbox: how far it got is a matter of luck.
        if self.policy == Policy::Never && self.lost_its_sandbox {
            return Ok(());
        }
        let is_right = match expected {
            // Whatever accidents ended some containers for good, the others run on.
            _ if self.overdue.is_some_and(|seconds| seconds > ENDS_WITHIN_SECONDS) => false,
            _ if self.rests() => {
                let mut all = self.newest.iter().zip(&self.is_steady);
                let all_ready = all.all(|((plan, _), steady)| {
                    plan.role == Role::Init || *steady && plan.extras.readiness != Some(Readiness::Never)
                });
                phase == phase::RUNNING && self.ready == all_ready
            }
            _ if self.sidecars_loop && self.work_rests(true) => phase == phase::RUNNING,
            Expected::Ready | Expected::Ends => false,
            Expected::Loops => phase == phase::RUNNING || phase == phase::PENDING,
            Expected::Pending => phase == phase::PENDING,
        };
        let what = format!("is {phase} (ready: {}) and should come to {expected:?}", self.ready);
        if is_right { Ok(()) } else { Err(what) }
    }
}

/// Every container that ran when one of them asked for all to begin afresh is another one now.
fn did_not_begin_afresh(
    world: &World,
    plan: &PodPlan,
    uid: &PodUid,
    newest: &[(&ContainerPlan, Option<&Container>)],
) -> Option<String> {
    let asks = plan.asks_for_all().find(|_| world.story.kind != Kind::ClockJumps)?;
    let asked = world.runtime.read_trace(|trace| {
        let mut asked = trace.iter().rev().filter(|entry| invariants::asks_for_all(&entry.what, uid, plan));
        asked.next().map(|entry| entry.at)
    })?;
    let old = newest.iter().find(|(_, instance)| {
        let state = instance.map(|instance| &instance.state);
        matches!(state, Some(ContainerState::Running { started_at }) if *started_at < asked)
    })?;
    Some(format!("runs {} on, though {} asked for all to begin afresh", old.0.name, asks.name))
}

/// Restarts the agent on a quiet node: nobody may be able to tell from any pod.
async fn restart(world: &mut World) -> Vec<Broken> {
    let containers = world.runtime.containers();
    // The next life judges refused static pods anew, and those whose earlier life has not ended yet.
    let judges_static = (0..world.manifests.len()).any(|pod| {
        let uid = world.uid(pod).filter(|_| !world.story.pods[pod].is_of_api());
        uid.is_some_and(|uid| {
            let is_ending = containers.iter().any(|c| c.uid == uid && is_being_stopped(world, c));
            is_ending || Seen::of(world, pod, &uid, &containers).is_refused()
        })
    });
    let stable: Vec<(String, PodUid)> = (0..world.manifests.len())
        .filter_map(|pod| Some((pod, world.uid(pod)?)))
        .filter(|(pod, uid)| {
            let seen = Seen::of(world, *pod, uid, &containers);
            let has_deadline = world.story.pods[*pod].deadline.is_some() && !phase::is_terminal(&seen.phase);
            // Others may have to make room for one of those.
            let plan = &world.story.pods[*pod];
            let may_make_room = judges_static && (!plan.is_of_api() || !plan.is_critical());
            let may_get_room = seen.waits_for_room || phase::is_terminal(&seen.phase);
            let is_judged_again = may_make_room || may_get_room && has_ended_lately(world);
            seen.is_done() && is_quiet(world, *pod, uid) && !has_deadline && !is_judged_again
        })
        .filter(|(_, uid)| !containers.iter().any(|c| c.uid == *uid && is_being_stopped(world, c)))
        // Who looks at a pod may leave at any time.
        .filter(|(_, uid)| {
            !containers.iter().any(|c| c.uid == *uid && c.name.starts_with('e') && c.state.is_running())
        })
        .map(|(pod, uid)| (world.story.pods[pod].name.clone(), uid))
        .collect();
    let before = statuses(world, &stable);
    let names: Vec<String> = stable.iter().map(|(name, _)| shown_as(world, name)).collect();
    let in_api = checks::versions(world, &names);
    let seen_before = world.runtime.read_trace(<[TraceEntry]>::len);
    world.kill_agent(Duration::from_secs(5));
    world.play(world.elapsed() + Duration::from_secs(60)).await;
    let after = statuses(world, &stable);
    let mut broken = Vec::new();
    for ((name, before), (_, after)) in before.into_iter().zip(after) {
        if before != after {
            let text = format!("{name}:\n  before {before}\n  after  {after}");
            broken.push(Broken::new("a restart changes no status", text));
        }
    }
    for (name, after) in checks::versions(world, &names) {
        let before = &in_api[&name];
        if *before != after {
            let text = format!("{name} in the API:\n  before {before}\n  after  {after}");
            broken.push(Broken::new("a restart changes no status", text));
        }
    }
    for entry in &world.runtime.trace()[seen_before..] {
        // Calls alone change nothing: a sandbox that is down may be torn down once more. Nor does the removal of what is
        // dead and not the newest.
        let is_removal = matches!(entry.what, What::ContainerRemoved { .. } | What::SandboxRemoved { .. });
        if let Some(subject) = invariants::change_of(&entry.what).filter(|_| !is_removal)
            && stable.iter().any(|(_, uid)| subject.uid.as_ref() == Some(uid))
        {
            broken.push(Broken::new("a restart touches no container", entry.to_string()));
        }
    }
    broken
}

/// The name that a pod of the story has in the cluster.
fn shown_as(world: &World, name: &str) -> String {
    let plan = world.story.pods.iter().find(|plan| plan.name == name);
    plan.map(super::pods::PodPlan::full_name).unwrap_or_default()
}

/// A stop that is under way ends a container sooner or later, whatever becomes of the agent.
fn is_being_stopped(world: &World, container: &Container) -> bool {
    let is_stop = |entry: &TraceEntry| match &entry.what {
        What::Called { call: Call::StopContainer, subject, .. } => *subject.id == *container.id,
        _ => false,
    };
    container.state.is_running() && world.runtime.read_trace(|trace| trace.iter().any(is_stop))
}

/// A status that tells of a step on the way waits a second at most, and the API server may be asked twice.
const TOLD_WITHIN: Duration = Duration::from_secs(3);
/// Probes that pass late have passed after this.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Nothing happened to the pod lately: what happened a moment ago need not be told yet.
fn is_quiet(world: &World, pod: usize, uid: &PodUid) -> bool {
    let is_slow = world.story.pods[pod].everyone().any(|c| c.extras.delays());
    let lately = world.elapsed().saturating_sub(if is_slow { READY_WITHIN } else { TOLD_WITHIN });
    world.runtime.read_trace(|trace| {
        let mut changes = trace.iter().rev().take_while(|entry| entry.elapsed >= lately);
        !changes
            .any(|entry| invariants::change_of(&entry.what).is_some_and(|of| of.uid.as_ref() == Some(uid)))
    })
}

/// As upstream, who waits for room looks again at a start, and at last minutes after a static pod has ended.
fn has_ended_lately(world: &World) -> bool {
    let lately = world.elapsed().saturating_sub(READY_WITHIN);
    world.runtime.read_trace(|trace| {
        let mut lately = trace.iter().rev().take_while(|entry| entry.elapsed >= lately);
        lately.any(|entry| matches!(entry.what, What::ContainerExited { .. } | What::SandboxNotReady { .. }))
    })
}

fn statuses(world: &World, pods: &[(String, PodUid)]) -> Vec<(String, String)> {
    let Some(agent) = world.agent() else { return Vec::new() };
    let status = |uid| agent.view().status(uid).map(|json| String::from_utf8_lossy(&json).into_owned());
    pods.iter().map(|(name, uid)| (name.clone(), status(uid).unwrap_or_default())).collect()
}

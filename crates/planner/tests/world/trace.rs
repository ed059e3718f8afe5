//! Stories that are told step by step: what is done to the world, and what the plans begin in answer.

use crablet_model::runtime::{ContainerState, PodRuntime};
use crablet_planner::pod::Action;
use jiff::SignedDuration;

use super::World;
use super::effects::exited;

const MOMENT: SignedDuration = SignedDuration::from_millis(250);

/// What an action begins, if a reader of a story cares.
pub fn words(action: &Action) -> Option<String> {
    Some(match action {
        Action::CreateSandbox { attempt } => format!("sandbox {attempt}"),
        Action::StopSandbox { .. } => "stop sandbox".to_owned(),
        Action::StartContainer { container, attempt, .. } => format!("start {container} {attempt}"),
        Action::StartCreated { container, .. } => format!("start created {container}"),
        Action::PreStop { container, limit, .. } => format!("hook {container} {} s", limit.as_secs()),
        Action::StopContainer { container, grace, .. } => format!("stop {container} {} s", grace.as_secs()),
        Action::RemoveContainer { container, keep_logs: true, .. } => format!("reset {container}"),
        Action::RemoveContainer { container, .. } => format!("remove {container}"),
        Action::Release => "release".to_owned(),
        Action::EnsureImage { container, held, .. } if !held.is_empty() => format!("look for {container}"),
        Action::RemoveSandbox { .. }
        | Action::EnsureImage { .. }
        | Action::Resize(_)
        | Action::TakeOver
        | Action::Cleanup => {
            return None;
        }
    })
}

impl World {
    /// Plans and carries out until nothing is under way. What was begun is told. No time passes, but for the moment in which
    /// a sidecar shows that it stays.
    pub fn settle(&mut self) -> Vec<String> {
        self.settle_but(|_| false)
    }

    /// The same, but operations for which `hangs` holds do not end.
    pub fn settle_but(&mut self, hangs: impl Fn(&Action) -> bool) -> Vec<String> {
        for _ in 0..100 {
            self.watch_progress();
            let wake_at = self.turn();
            let soon = wake_at.filter(|at| (self.now..=self.now + MOMENT).contains(at));
            match (self.under_way.iter().position(|action| !hangs(action)), soon) {
                (Some(next), _) => self.end(next, true),
                (None, _) if self.gave_up => {}
                (None, Some(at)) => self.now = at,
                (None, None) => break,
            }
        }
        assert_eq!(self.broken, Vec::<String>::new());
        std::mem::take(&mut self.trace)
    }

    /// Ends the first operation that `which` holds for.
    pub fn finish(&mut self, which: impl Fn(&Action) -> bool) {
        let index = self.under_way.iter().position(which).expect("such an operation is under way");
        self.end(index, true);
    }

    /// The first operation that `which` holds for fails. Says whether there was one.
    pub fn fail_first(&mut self, which: impl Fn(&Action) -> bool) -> bool {
        let index = self.under_way.iter().position(which);
        index.inspect(|index| self.end(*index, false)).is_some()
    }

    /// The newest instance of a container ends by itself.
    pub fn exits(&mut self, container: &str, code: i32) {
        let now = self.now;
        let newest = self.runtime.containers.iter_mut().find(|c| c.name == container);
        newest.expect("an instance").state = exited(code, now);
    }

    pub fn loses(&mut self, container: &str) {
        let newest = self.runtime.containers.iter_mut().find(|c| c.name == container);
        newest.expect("an instance").state = ContainerState::Unknown;
    }

    pub fn loses_address(&mut self) {
        self.runtime.sandboxes[0].ips.clear();
    }

    pub fn vanishes(&mut self, container: &str) {
        self.runtime.containers.retain(|c| c.name != container);
    }

    /// With everything in it.
    pub fn sandbox_vanishes(&mut self) {
        self.runtime = PodRuntime::default();
    }

    /// A result of a probe of the newest instance.
    pub fn finds(&mut self, container: &str, startup: Option<bool>, liveness: Option<bool>) {
        let id = self.runtime.instances(container).next().expect("an instance").id.clone();
        let probed = self.probes.0.entry(id).or_default();
        (probed.startup, probed.liveness) = (startup, liveness);
    }

    pub fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Every container gets a new image.
    pub fn edit(&mut self) {
        for container in self.pod.spec.iter_mut().flat_map(|s| &mut s.containers) {
            container.image = Some("example.test/other:2".to_owned());
        }
    }

    /// Every container wants its image anew each time.
    pub fn always_pulls(&mut self) {
        for container in self.pod.spec.iter_mut().flat_map(|s| &mut s.containers) {
            container.image_pull_policy = Some("Always".to_owned());
        }
    }

    pub fn running(&self) -> Vec<&str> {
        let running = self.runtime.containers.iter().filter(|c| c.state.is_running());
        let mut names: Vec<&str> = running.map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub fn phase(&self) -> &str {
        self.memory.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
    }

    pub fn reason(&self) -> &str {
        self.memory.status.as_ref().and_then(|s| s.reason.as_deref()).unwrap_or_default()
    }
}

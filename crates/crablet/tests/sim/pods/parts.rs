//! What containers of a pod can be besides side by side: before the others, beside them, with a hook before their end and
//! a probe of their health.

use std::sync::Arc;
use std::time::Duration;

use crablet_cri::fake::{Behaviour, Command, Commands, Life};
use crablet_model::Role;
use fastrand::Rng;
use serde_json::{Value, json};

use super::{ContainerPlan, Expected, Policy, on_term};

/// What a liveness probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Passes,
    /// The first instance is not well, all later ones are.
    FailsFirst,
}

/// A hook that sleeps this long is never waited for to its end.
const TOO_LONG: u64 = 1000;

impl ContainerPlan {
    /// Init containers and sidecars, for some pods.
    pub fn some_init(rng: &mut Rng) -> Vec<Self> {
        if rng.u8(0..10) >= 4 {
            return Vec::new();
        }
        (0..rng.usize(1..=3)).map(|number| Self::init(rng, number)).collect()
    }

    fn init(rng: &mut Rng, number: usize) -> Self {
        let role = if rng.bool() { Role::Sidecar } else { Role::Init };
        let lives = if role == Role::Init { init_lives(rng) } else { sidecar_lives(rng) };
        let behaviour = Behaviour { lives, on_term: on_term(rng), last_words: String::new() };
        let (pre_stop, liveness) = if role == Role::Init { (None, None) } else { extras(rng, &behaviour) };
        let plain = Self::random(rng, number);
        Self { name: format!("i{number}"), role, behaviour, pre_stop, liveness, ..plain }
    }

    /// A hook and a probe, for some regular containers.
    pub fn with_extras(self, rng: &mut Rng, policy: Policy) -> Self {
        let (pre_stop, liveness) = extras(rng, &self.behaviour);
        // One that never restarts would just end: there are enough of those.
        let liveness = liveness.filter(|liveness| policy != Policy::Never || *liveness == Liveness::Passes);
        Self { pre_stop, liveness, ..self }
    }

    /// A sidecar that keeps ending.
    pub fn loops_beside(&self) -> bool {
        self.role == Role::Sidecar && self.behaviour.lives.last() != Some(&Life::Forever)
    }

    pub fn fails_first(&self) -> bool {
        self.liveness == Some(Liveness::FailsFirst)
    }

    /// The fields of a container that hooks, probes and parts have.
    pub(super) fn add_extras(&self, container: &mut Value) {
        if self.role == Role::Sidecar {
            container["restartPolicy"] = "Always".into();
        }
        if let Some(seconds) = self.pre_stop {
            let command = ["sleep".to_owned(), seconds.to_string()];
            container["lifecycle"] = json!({ "preStop": { "exec": { "command": command } } });
        }
        if let Some(liveness) = self.liveness {
            let command = if liveness == Liveness::Passes { "pass" } else { "fail-first" };
            container["livenessProbe"] = json!({
                "exec": { "command": [command] },
                "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
            });
        }
    }

    /// What stands in the way of those that come after it, under a policy.
    pub(super) fn holds_up(&self, policy: Policy) -> Option<Expected> {
        let succeeds = |life: &Life| matches!(life, Life::Exits { code: 0, .. });
        match self.role {
            _ if self.image == super::MISSING => Some(Expected::Pending),
            Role::Init if policy == Policy::Never => {
                let fails = !self.behaviour.lives.first().is_some_and(succeeds);
                fails.then_some(Expected::Ends)
            }
            Role::Init => (!self.behaviour.lives.iter().any(succeeds)).then_some(Expected::Pending),
            _ => None,
        }
    }
}

fn extras(rng: &mut Rng, behaviour: &Behaviour) -> (Option<u64>, Option<Liveness>) {
    let pre_stop = match rng.u8(0..10) {
        0 => Some(rng.u64(0..20)),
        1 => Some(TOO_LONG),
        _ => None,
    };
    let lives_on = behaviour.lives == [Life::Forever];
    let liveness = match rng.u8(0..10) {
        0 | 1 => Some(Liveness::Passes),
        2 if lives_on => Some(Liveness::FailsFirst),
        _ => None,
    };
    (pre_stop, liveness)
}

fn exits(rng: &mut Rng, from: u64, code: i32) -> Life {
    Life::Exits { after: Duration::from_millis(rng.u64(from..30_000)), code }
}

/// Some fail a few times before they succeed, few never do.
fn init_lives(rng: &mut Rng) -> Vec<Life> {
    let failures = if rng.u8(0..3) == 0 { rng.usize(1..=2) } else { 0 };
    let mut lives: Vec<_> = (0..failures).map(|_| exits(rng, 0, 1)).collect();
    let code = i32::from(rng.u8(0..10) == 0);
    lives.push(exits(rng, 0, code));
    lives
}

/// Those that end do so after a while: nobody comes after one that cannot be seen running.
fn sidecar_lives(rng: &mut Rng) -> Vec<Life> {
    match rng.u8(0..10) {
        0 => vec![exits(rng, 20_000, 0)],
        1 => vec![exits(rng, 20_000, 1), Life::Forever],
        _ => vec![Life::Forever],
    }
}

/// What comes of the commands of hooks and probes.
pub fn commands() -> Commands {
    Arc::new(|_, attempt, command| match command {
        [sleep, seconds] if sleep == "sleep" => {
            let after = Duration::from_secs(seconds.parse().unwrap_or_default());
            match Command::exits(0, "") {
                Command::Ends { output, .. } => Command::Ends { after, output },
                other => other,
            }
        }
        [probe] if probe == "fail-first" && attempt == 0 => Command::exits(1, "not well"),
        _ => Command::exits(0, ""),
    })
}

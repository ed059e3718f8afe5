//! What containers of a pod can be besides side by side: before the others, beside them, with hooks, probes and rules of
//! their own.

use std::time::Duration;

use crablet_cri::fake::{Behaviour, Life};
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
    /// The first instance is well for a while.
    FailsLater,
    /// The first instance does not answer.
    HangsFirst,
    /// The runtime cannot run the probe, which says nothing about the container.
    Unknowable,
}

/// What a startup probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Each instance fails so often before it passes.
    Late(u32),
    /// The first instance never starts.
    FailsFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Late(u32),
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStart {
    /// After so many seconds.
    Works(u64),
    FailsFirst,
    Hangs,
}

/// What a container's rule for the exit code [`RULED`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its own policy is `Never`: only the rule starts it again.
    Restart,
    RestartAll,
}

pub const RULED: i32 = 42;

/// What a container has beside its name, its image and its behaviour.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Seconds that its hook takes.
    pub pre_stop: Option<u64>,
    pub post_start: Option<PostStart>,
    pub startup: Option<Startup>,
    pub liveness: Option<Liveness>,
    pub readiness: Option<Readiness>,
    pub rule: Option<Rule>,
    /// The number of the config map of which its environment has a key.
    pub env: Option<u8>,
}

/// A hook that sleeps this long is never waited for to its end.
const TOO_LONG: u64 = 1000;

impl Extras {
    fn random(rng: &mut Rng, behaviour: &Behaviour, may_restart: bool) -> Self {
        let lives_on = behaviour.lives == [Life::Forever];
        let pre_stop = match rng.u8(0..10) {
            0 => Some(rng.u64(0..20)),
            1 => Some(TOO_LONG),
            _ => None,
        };
        let mut extras = Self { pre_stop, ..Self::default() };
        match rng.u8(0..20) {
            0 | 1 => extras.liveness = Some(Liveness::Passes),
            2 => extras.liveness = Some(Liveness::Unknowable),
            3 => extras.readiness = Some(Readiness::Late(rng.u32(1..5))),
            4 => extras.readiness = Some(Readiness::Never),
            5 => extras.startup = Some(Startup::Late(rng.u32(0..4))),
            6 => extras.post_start = Some(PostStart::Works(rng.u64(0..10))),
            // One that never restarts would just end: there are enough of those.
            _ if !lives_on || !may_restart => {}
            7 => extras.liveness = Some(Liveness::FailsFirst),
            8 => extras.liveness = Some(Liveness::FailsLater),
            9 => extras.liveness = Some(Liveness::HangsFirst),
            10 => extras.startup = Some(Startup::FailsFirst),
            11 => extras.post_start = Some(PostStart::FailsFirst),
            12 if rng.u8(0..3) == 0 => extras.post_start = Some(PostStart::Hangs),
            _ => {}
        }
        extras
    }

    /// The first instance is stopped by the agent, and the next one is well.
    pub fn fails_first(&self) -> bool {
        self.probes_fail_first() || self.post_start == Some(PostStart::FailsFirst)
    }

    /// The same, by what a probe found: it goes on to find it. A hook that failed is forgotten, as upstream does, if the agent
    /// dies, or the runtime does not stop the container.
    pub fn probes_fail_first(&self) -> bool {
        matches!(self.liveness, Some(Liveness::FailsFirst | Liveness::FailsLater | Liveness::HangsFirst))
            || self.startup == Some(Startup::FailsFirst)
    }

    pub fn hangs(&self) -> bool {
        self.post_start == Some(PostStart::Hangs)
    }

    /// Something comes between its start and its being ready.
    pub fn delays(&self) -> bool {
        self.post_start.is_some() || self.startup.is_some() || self.readiness.is_some() || self.env.is_some()
    }
}

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
        let extras =
            if role == Role::Init { Extras::default() } else { Extras::random(rng, &behaviour, true) };
        let plain = Self::random(rng, number);
        Self { name: format!("i{number}"), role, behaviour, extras, ..plain }
    }

    /// Hooks, probes and rules, for some regular containers.
    pub fn with_extras(self, rng: &mut Rng, policy: Policy) -> Self {
        let extras = Extras::random(rng, &self.behaviour, policy != Policy::Never);
        if rng.u8(0..20) > 0 {
            return Self { extras, ..self };
        }
        let pre_stop = extras.pre_stop;
        let rule = if policy == Policy::Always && rng.bool() { Rule::RestartAll } else { Rule::Restart };
        let asks = |rng: &mut Rng| exits(rng, 1000, RULED);
        let lives = match rule {
            Rule::RestartAll => vec![asks(rng), Life::Forever],
            Rule::Restart if rng.bool() => vec![asks(rng), asks(rng), Life::Forever],
            Rule::Restart => {
                let code = i32::from(rng.bool());
                vec![asks(rng), exits(rng, 1000, code)]
            }
        };
        let extras = Extras { pre_stop, rule: Some(rule), ..Extras::default() };
        Self { extras, behaviour: Behaviour { lives, ..self.behaviour }, ..self }
    }

    /// A sidecar that keeps ending.
    pub fn loops_beside(&self) -> bool {
        self.role == Role::Sidecar && self.behaviour.lives.last() != Some(&Life::Forever)
    }

    pub fn fails_first(&self) -> bool {
        self.extras.fails_first()
    }

    /// Does an instance that ended with this code by itself run again?
    pub fn restarts(&self, of_pod: Policy, code: i32) -> bool {
        match (self.role, self.extras.rule) {
            (_, Some(_)) if code == RULED => true,
            (_, Some(Rule::Restart)) => false,
            (Role::Init, _) => of_pod != Policy::Never && code != 0,
            (Role::Sidecar, _) => true,
            (Role::Ephemeral, _) => false,
            (Role::Regular, _) => of_pod == Policy::Always || of_pod == Policy::OnFailure && code != 0,
        }
    }

    /// The fields of a container that hooks, probes and parts have. `of` is the name of its pod.
    pub(super) fn add_extras(&self, container: &mut Value, of: &str) {
        let Extras { pre_stop, post_start, startup, liveness, readiness, rule, env } = &self.extras;
        let who = format!("{of}/{}", self.name);
        if self.role == Role::Sidecar {
            container["restartPolicy"] = "Always".into();
        }
        if let Some(rule) = rule {
            let (policy, action) = match rule {
                Rule::Restart => ("Never", "Restart"),
                Rule::RestartAll => ("Always", "RestartAllContainers"),
            };
            container["restartPolicy"] = policy.into();
            container["restartPolicyRules"] =
                json!([{"action": action, "exitCodes": {"operator": "In", "values": [RULED]}}]);
        }
        let run = |words: &[&str]| json!({ "exec": { "command": words } });
        if let Some(seconds) = pre_stop {
            container["lifecycle"]["preStop"] = run(&["sleep", &seconds.to_string()]);
        }
        if let Some(hook) = post_start {
            container["lifecycle"]["postStart"] = match hook {
                PostStart::Works(seconds) => run(&["sleep", &seconds.to_string()]),
                PostStart::FailsFirst => run(&["fail-first"]),
                PostStart::Hangs => run(&["hang"]),
            };
        }
        let probe = |words: &[&str], period: u32, failures: u32| {
            let mut probe = run(words);
            probe["periodSeconds"] = period.into();
            probe["timeoutSeconds"] = 1.into();
            probe["successThreshold"] = 1.into();
            probe["failureThreshold"] = failures.into();
            probe
        };
        if let Some(startup) = startup {
            container["startupProbe"] = match startup {
                Startup::Late(times) => probe(&["late", &times.to_string(), "startup", &who], 3, 30),
                Startup::FailsFirst => probe(&["fail-first"], 3, 2),
            };
        }
        if let Some(liveness) = liveness {
            let words: &[&str] = match liveness {
                Liveness::Passes => &["pass"],
                Liveness::FailsFirst => &["fail-first"],
                Liveness::FailsLater => &["fail-later", &who],
                Liveness::HangsFirst => &["hang-first"],
                Liveness::Unknowable => &["refuse"],
            };
            container["livenessProbe"] = probe(words, 10, 3);
        }
        if let Some(readiness) = readiness {
            container["readinessProbe"] = match readiness {
                Readiness::Late(times) => probe(&["late", &times.to_string(), "readiness", &who], 5, 3),
                Readiness::Never => probe(&["fail"], 10, 3),
            };
        }
        if let Some(number) = env {
            let key = json!({"name": super::volumes::config_map(*number), "key": "key"});
            container["env"] = json!([{"name": "KEY", "valueFrom": {"configMapKeyRef": key}}]);
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
            _ => self.extras.hangs().then_some(Expected::Loops),
        }
    }
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

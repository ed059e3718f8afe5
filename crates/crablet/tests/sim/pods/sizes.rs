//! Pods that take a part of the node: how much, and whether they can have another part while they run.

use crablet_cri::fake::{Behaviour, Life};
use fastrand::Rng;
use serde_json::{Value, json};

use super::{ContainerPlan, Home, PRESENT, PodPlan};

/// What a container asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Thousandths of a CPU.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
}

impl Size {
    /// Of a node with four CPUs and eight GiB.
    pub fn random(rng: &mut Rng) -> Self {
        Self { cpu: 250 * rng.u32(1..=9), memory: 256 * rng.u32(1..=12) }
    }
}

/// How a pod takes its part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Others make room for it.
    pub critical: bool,
    /// It may use as much as it asks for, and no more.
    pub limited: bool,
}

impl Claim {
    pub fn qos(self) -> &'static str {
        if self.limited { "Guaranteed" } else { "Burstable" }
    }

    pub fn resources(self, size: Size) -> Value {
        let amounts = json!({"cpu": format!("{}m", size.cpu), "memory": format!("{}Mi", size.memory)});
        match self.limited {
            true => json!({"requests": amounts, "limits": amounts}),
            false => json!({"requests": amounts}),
        }
    }
}

impl PodPlan {
    /// A pod for a node on which there is not room for all.
    pub fn random_with_size(rng: &mut Rng, number: usize) -> Self {
        let is_static = rng.u8(0..6) == 0;
        let mut pod = if is_static { Self::random(rng, number) } else { Self::random_of_api(rng, number) };
        if let Home::Api(volumes) = &mut pod.home {
            volumes.clear();
        }
        let claim = Claim { critical: is_static || rng.u8(0..5) == 0, limited: rng.bool() };
        pod.claim = Some(claim);
        pod.init.clear();
        pod.containers.truncate(2);
        for container in &mut pod.containers {
            container.image = PRESENT;
            container.extras.env = None;
            container.size = Some(Size::random(rng));
            container.restarts_for = match rng.u8(0..8) {
                // What never restarts may not ask for it, and a static pod is never resized.
                _ if is_static => None,
                _ if pod.policy == super::Policy::Never || container.extras.rule.is_some() => None,
                0 => Some("cpu"),
                1 => Some("memory"),
                _ => None,
            };
            // Most stay, so that there is something to resize and to wait for.
            if container.extras.rule.is_none() && rng.u8(0..3) > 0 {
                container.behaviour = Behaviour { lives: vec![Life::Forever], ..container.behaviour.clone() };
            }
        }
        pod
    }

    /// What all its containers ask for in the beginning.
    pub fn size(&self) -> (u64, u64) {
        let sizes = self.containers.iter().filter_map(|c| c.size);
        sizes.fold((0, 0), |(cpu, memory), size| (cpu + u64::from(size.cpu), memory + u64::from(size.memory)))
    }

    pub fn is_critical(&self) -> bool {
        self.claim.is_some_and(|claim| claim.critical)
    }
}

impl ContainerPlan {
    /// `claim` is its pod's.
    pub(super) fn add_size(&self, container: &mut Value, claim: Option<Claim>) {
        if let (Some(size), Some(claim)) = (self.size, claim) {
            container["resources"] = claim.resources(size);
        }
        if let Some(resource) = self.restarts_for {
            container["resizePolicy"] =
                json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}]);
        }
    }
}

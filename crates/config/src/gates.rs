//! Feature gates: which there are, and which are on.
//!
//! Upstream knows more gates than a node agent asks about; all of them are accepted, with upstream's rules, because one
//! set of gates is often given to every component of a cluster.

use std::collections::BTreeMap;

use crate::error::{Problem, nearest};

mod table;

pub use table::{GATES, NEEDS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub stage: Stage,
    pub default: bool,
    /// Setting it to anything but its default is an error.
    pub locked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    Ga,
    Deprecated,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Alpha => "alpha",
            Stage::Beta => "beta",
            Stage::Ga => "GA",
            Stage::Deprecated => "deprecated",
        }
    }
}

const WORDS: usize = 4;

/// Which features are on. Resolved once, at start; 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    on: [u64; WORDS],
}

impl Default for Gates {
    fn default() -> Self {
        let mut gates = Self { on: [0; WORDS] };
        for (index, gate) in GATES.iter().enumerate() {
            gates.set(index, gate.default);
        }
        gates
    }
}

impl Gates {
    /// Names that upstream does not know are off.
    pub fn enabled(&self, name: &str) -> bool {
        position(name).is_some_and(|index| self.on[index / 64] & (1 << (index % 64)) != 0)
    }

    fn set(&mut self, index: usize, on: bool) {
        let bit = 1 << (index % 64);
        if on {
            self.on[index / 64] |= bit;
        } else {
            self.on[index / 64] &= !bit;
        }
    }

    /// Applies what was said to the defaults. Returns what is on, and warnings.
    pub fn resolve(said: &BTreeMap<String, bool>) -> Result<(Self, Vec<String>), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        for (name, value) in said {
            match find(name) {
                None => problems.push(unknown(name)),
                Some(gate) if gate.locked && gate.default != *value => problems.push(locked(gate, *value)),
                Some(gate) => warnings.extend(warning(gate, *value)),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let gates = Self::apply(said);
        let problems = gates.unmet();
        if problems.is_empty() { Ok((gates, warnings)) } else { Err(problems) }
    }

    /// What was said of a gate wins over what was said of its stage.
    fn apply(said: &BTreeMap<String, bool>) -> Self {
        let mut gates = Self::default();
        for (index, gate) in GATES.iter().enumerate() {
            let of_stage = match gate.stage {
                _ if special(gate.name) => None,
                Stage::Alpha => said.get("AllAlpha"),
                Stage::Beta => said.get("AllBeta"),
                Stage::Ga | Stage::Deprecated => None,
            };
            if let Some(on) = said.get(gate.name).or(of_stage) {
                gates.set(index, *on);
            }
        }
        gates
    }

    fn unmet(&self) -> Vec<Problem> {
        let on = NEEDS.iter().filter(|(name, _)| self.enabled(name));
        on.filter_map(|(name, needs)| {
            let off: Vec<_> = needs.iter().copied().filter(|need| !self.enabled(need)).collect();
            (!off.is_empty()).then(|| {
                let off = off.join(" ");
                Problem::new(format!("{name} is enabled, but depends on features that are disabled: [{off}]"))
                    .hint(format!("turn `{name}` off in `featureGates`, or what it depends on on"))
            })
        })
        .collect()
    }
}

/// The two names that stand for many gates.
fn special(name: &str) -> bool {
    matches!(name, "AllAlpha" | "AllBeta")
}

fn position(name: &str) -> Option<usize> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok()
}

pub fn find(name: &str) -> Option<&'static Gate> {
    position(name).and_then(|index| GATES.get(index))
}

fn unknown(name: &str) -> Problem {
    let problem = Problem::new(format!("unrecognized feature gate: {name}"));
    match nearest(name, GATES.iter().map(|gate| gate.name)) {
        Some(known) => problem.hint(format!("did you mean `{known}`?")),
        None => {
            problem.hint("take it out of `featureGates`: Kubernetes v1.36 does not know it (or not any more)")
        }
    }
}

fn locked(gate: &Gate, value: bool) -> Problem {
    let Gate { name, default, .. } = gate;
    Problem::new(format!("cannot set feature gate {name} to {value}, feature is locked to {default}"))
        .hint(format!("take `{name}` out of `featureGates`"))
}

fn warning(gate: &Gate, value: bool) -> Option<String> {
    let what = match gate.stage {
        Stage::Ga => "GA",
        Stage::Deprecated => "deprecated",
        Stage::Alpha | Stage::Beta => return None,
    };
    let name = gate.name;
    Some(format!(
        "Warning: setting {what} feature gate {name}={value}. It will be removed in a future release."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
        pairs.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect()
    }

    fn refused(pairs: &[(&str, bool)]) -> Vec<String> {
        let problems = Gates::resolve(&said(pairs)).expect_err("refused");
        problems.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn the_table_is_sorted_and_fits() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
        assert!(GATES.len() <= WORDS * 64);
        // 240 gates and the two that stand for many.
        assert_eq!(GATES.len(), 242);
        for (name, needs) in NEEDS {
            assert!(find(name).is_some() && needs.iter().all(|need| find(need).is_some()), "{name}");
        }
        assert!(Gates::default().unmet().is_empty());
    }

    #[test]
    fn defaults_hold_until_something_is_said() {
        let (gates, warnings) = Gates::resolve(&said(&[])).expect("nothing said");
        assert_eq!(gates, Gates::default());
        assert!(gates.enabled("NodeSwap") && !gates.enabled("AllAlpha") && !gates.enabled("Banana"));
        assert!(warnings.is_empty());
    }

    #[test]
    fn what_is_said_of_a_gate_wins_over_its_stage() {
        let (gates, _) = Gates::resolve(&said(&[("AllAlpha", true), ("QOSReserved", false)])).expect("fine");
        assert!(gates.enabled("AllAlpha") && !gates.enabled("AllBeta"));
        assert!(gates.enabled("EventedPLEG") && !gates.enabled("QOSReserved"));
        let (gates, _) = Gates::resolve(&said(&[("AllBeta", false)])).expect("fine");
        assert!(!gates.enabled("GracefulNodeShutdown") && gates.enabled("NodeSwap"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(refused(&[("Banana", true)]), ["unrecognized feature gate: Banana"]);
        assert_eq!(
            refused(&[("SidecarContainers", false)]),
            ["cannot set feature gate SidecarContainers to false, feature is locked to true"]
        );
        let needs = refused(&[("NodeDeclaredFeatures", false)]);
        assert!(needs.contains(&"ExtendWebSocketsToKubelet is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]".to_owned()), "{needs:?}");
        let (_, warnings) =
            Gates::resolve(&said(&[("SidecarContainers", true), ("KMSv1", true)])).expect("fine");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}

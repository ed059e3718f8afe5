//! The quality-of-service class of a pod.

use std::collections::BTreeMap;
use std::fmt;

use crate::api::{PodSpec, ResourceRequirements};
use crate::quantity::Quantity;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The only resources that decide the class.
const COUNTED: [&str; 2] = ["cpu", "memory"];

/// Amounts above zero of the counted resources, summed over containers.
#[derive(Default)]
struct Totals(BTreeMap<&'static str, Quantity>);

impl Totals {
    /// Adds one list, and returns how many counted resources it holds.
    fn add(
        &mut self,
        list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
    ) -> usize {
        let mut found = 0;
        for name in COUNTED {
            // A quantity that does not parse counts as absent: validation refuses it long before.
            let amount = list.and_then(|list| list.get(name)).and_then(|text| Quantity::try_from(text).ok());
            if let Some(amount) = amount.filter(|amount| *amount > Quantity::ZERO) {
                let total = self.0.entry(name).or_default();
                *total = total.plus(amount);
                found += 1;
            }
        }
        found
    }
}

/// Pod-level resources decide alone where they are given; else containers and init containers do, summed.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let (mut requests, mut limits) = (Totals::default(), Totals::default());
    let mut every_limit_is_set = true;
    let mut count = |resources: Option<&ResourceRequirements>| {
        requests.add(resources.and_then(|r| r.requests.as_ref()));
        let found = limits.add(resources.and_then(|r| r.limits.as_ref()));
        every_limit_is_set &= found == COUNTED.len();
    };
    match spec.resources.as_ref() {
        Some(resources) => count(Some(resources)),
        None => {
            let init = spec.init_containers.iter().flatten();
            spec.containers.iter().chain(init).for_each(|container| count(container.resources.as_ref()));
        }
    }
    if requests.0.is_empty() && limits.0.is_empty() {
        QosClass::BestEffort
    } else if every_limit_is_set && requests.0 == limits.0 {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(spec: serde_json::Value) -> &'static str {
        qos_class(&serde_json::from_value(spec).expect("a pod spec")).as_str()
    }

    fn container(resources: &str) -> serde_json::Value {
        let resources: serde_json::Value = serde_json::from_str(resources).expect("resources");
        serde_json::json!({"name": "c", "resources": resources})
    }

    const BOTH: &str =
        r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1000m","memory":"1024Mi"}}"#;

    #[test]
    fn classes_of_containers() {
        for (containers, expected) in [
            (vec!["{}"], "BestEffort"),
            (vec![r#"{"requests":{"cpu":"0"}}"#], "BestEffort"),
            (
                vec![r#"{"requests":{"ephemeral-storage":"1Gi"},"limits":{"example.com/x":"1"}}"#],
                "BestEffort",
            ),
            (vec![BOTH], "Guaranteed"),
            (vec![BOTH, BOTH], "Guaranteed"),
            (vec![BOTH, "{}"], "Burstable"),
            (vec![r#"{"requests":{"cpu":"1"}}"#], "Burstable"),
            (vec![r#"{"limits":{"cpu":"1","memory":"1Gi"}}"#], "Burstable"),
            (vec![r#"{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}"#], "Burstable"),
            (
                vec![r#"{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"cpu":"1","memory":"1Gi"}}"#],
                "Burstable",
            ),
        ] {
            let list: Vec<_> = containers.iter().map(|text| container(text)).collect();
            assert_eq!(class(serde_json::json!({"containers": list})), expected, "{containers:?}");
        }
    }

    #[test]
    fn init_containers_count_and_ephemeral_ones_do_not() {
        let spec = serde_json::json!({
            "containers": [container(BOTH)], "initContainers": [container("{}")],
        });
        assert_eq!(class(spec), "Burstable");
        let spec = serde_json::json!({
            "containers": [container(BOTH)], "ephemeralContainers": [container("{}")],
        });
        assert_eq!(class(spec), "Guaranteed");
    }

    #[test]
    fn pod_level_resources_decide_alone() {
        let both: serde_json::Value = serde_json::from_str(BOTH).expect("resources");
        let spec = serde_json::json!({"containers": [container("{}")], "resources": both});
        assert_eq!(class(spec), "Guaranteed");
        let spec =
            serde_json::json!({"containers": [container(BOTH)], "resources": {"requests": {"cpu": "1"}}});
        assert_eq!(class(spec), "Burstable");
    }
}

//! Whether the node is one of those that a pod, or a volume, asks for.

use std::collections::BTreeMap;

use crablet_model::api::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use super::{AdmissionNode, Failure};

pub const MISMATCH: Failure =
    Failure::Rule("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");

/// The selector and the required part of the affinity.
pub fn matches(spec: &PodSpec, node: &AdmissionNode) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| node.labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| terms_match(&required.node_selector_terms, &node.name, &node.labels))
}

/// Whether any of the terms holds for the node of this name.
pub fn terms_match(terms: &[NodeSelectorTerm], name: &str, labels: &BTreeMap<String, String>) -> bool {
    terms.iter().any(|term| holds(term, name, labels))
}

/// A term that asks for nothing, or for something that makes no sense, holds nowhere.
fn holds(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|wanted| label_holds(wanted, labels))
        && fields.iter().all(|wanted| field_holds(wanted, name))
}

fn label_holds(wanted: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let label = labels.get(&wanted.key);
    let compare = |holds: fn(i64, i64) -> bool| match (values, label) {
        ([limit], Some(label)) => {
            matches!((label.parse(), limit.parse()), (Ok(label), Ok(limit)) if holds(label, limit))
        }
        _ => false,
    };
    match wanted.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => !values.is_empty() && label.is_none_or(|label| !values.contains(label)),
        "Exists" => values.is_empty() && label.is_some(),
        "DoesNotExist" => values.is_empty() && label.is_none(),
        "Gt" => compare(|label, limit| label > limit),
        "Lt" => compare(|label, limit| label < limit),
        _ => false,
    }
}

/// A node has one field that may be asked for: its name.
fn field_holds(wanted: &NodeSelectorRequirement, name: &str) -> bool {
    let field = if wanted.key == "metadata.name" { name } else { "" };
    match (wanted.operator.as_str(), wanted.values.as_deref().unwrap_or_default()) {
        ("In", [value]) => value == field,
        ("NotIn", [value]) => value != field,
        _ => false,
    }
}

//! From where a volume can be reached: zones and regions in the words of old, and in those of its driver.
//! Its node affinity says it, or else its labels.

use std::collections::BTreeSet;

use crablet_model::api;

pub const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// In a label that names several zones.
pub const BETWEEN_ZONES: &str = "__";

/// Of a driver that knows zones only.
pub fn of_zone(volume: &mut api::PersistentVolume, key: &str) {
    let (zone, region) = keys(volume);
    let labelled = label(volume, zone).into_iter().flat_map(|zones| zones.split(BETWEEN_ZONES));
    let labelled = without_blanks(labelled);
    rename_or_add(volume, zone, key, labelled);
    // Nodes have the name of old no more.
    if region == BETA_REGION && has_values(volume, region) {
        rename(volume, region, REGION);
    }
}

/// Of a driver with names of its own for both. A label names one place.
pub fn of_zone_and_region(volume: &mut api::PersistentVolume, zone_key: &str, region_key: &str) {
    let (zone, region) = keys(volume);
    for (old, new) in [(zone, zone_key), (region, region_key)] {
        let labelled = without_blanks(label(volume, old).into_iter());
        rename_or_add(volume, old, new, labelled);
    }
}

pub fn label<'a>(volume: &'a api::PersistentVolume, name: &str) -> Option<&'a str> {
    volume.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// The keys of zone and region that this volume goes by: of terms before those of labels, new before old.
fn keys(volume: &api::PersistentVolume) -> (&'static str, &'static str) {
    let in_terms = |key: &str| requirements(volume).any(|wanted| wanted.key == key);
    let in_labels = |key: &str| label(volume, key).is_some();
    let is_beta = !in_terms(ZONE) && (in_terms(BETA_ZONE) || (!in_labels(ZONE) && in_labels(BETA_ZONE)));
    match is_beta {
        true => (BETA_ZONE, BETA_REGION),
        false => (ZONE, REGION),
    }
}

fn without_blanks<'a>(places: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    places.map(str::trim).filter(|place| !place.is_empty()).map(str::to_owned).collect()
}

fn rename_or_add(volume: &mut api::PersistentVolume, old: &str, new: &str, labelled: BTreeSet<String>) {
    match has_values(volume, old) {
        true => rename(volume, old, new),
        false => add(volume, new, labelled),
    }
}

fn has_values(volume: &api::PersistentVolume, key: &str) -> bool {
    let mut same = requirements(volume).filter(|wanted| wanted.key == key);
    same.any(|wanted| wanted.values.as_ref().is_some_and(|values| !values.is_empty()))
}

fn rename(volume: &mut api::PersistentVolume, old: &str, new: &str) {
    let required = volume.spec.as_mut().and_then(|spec| spec.node_affinity.as_mut()?.required.as_mut());
    let terms = required.into_iter().flat_map(|required| required.node_selector_terms.iter_mut());
    let all = terms.flat_map(|term| term.match_expressions.iter_mut().flatten());
    for wanted in all.filter(|wanted| wanted.key == old) {
        new.clone_into(&mut wanted.key);
    }
}

/// To each of the terms, or as the only one.
fn add(volume: &mut api::PersistentVolume, key: &str, places: BTreeSet<String>) {
    let Some(spec) = volume.spec.as_mut().filter(|_| !places.is_empty()) else { return };
    let wanted = api::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(places.into_iter().collect()),
    };
    let required = spec.node_affinity.get_or_insert_default().required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(api::NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(wanted.clone());
    }
}

fn requirements(volume: &api::PersistentVolume) -> impl Iterator<Item = &api::NodeSelectorRequirement> {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = required.into_iter().flat_map(|required| required.node_selector_terms.iter());
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

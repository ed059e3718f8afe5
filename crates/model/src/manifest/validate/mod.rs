//! What the API server would have refused: the rules of v1.36 for creating a pod, as far as they concern a static pod.
//!
//! Fields that this version does not run (see `supported`) are not checked here: they are refused as a whole.
//! Nor is what names objects of the API (see `references`): where a gate allows it, the pod waits for what is
//! not there.

mod container;
mod env;
mod fields;
mod hooks;
mod metadata;
mod mounts;
mod names;
mod network_volumes;
mod paths;
mod pod;
mod ports;
mod resize;
mod resources;
mod restarts;
mod security;
mod volumes;

use super::Gates;
use super::error::{Problems, quoted};
use crate::api::Pod;

pub(super) fn check(pod: &Pod, node_name: &str, gates: Gates) -> Problems {
    let mut problems = Problems::default();
    metadata::check(&pod.metadata, node_name, &mut problems);
    if let Some(spec) = pod.spec.as_ref() {
        pod::check(spec, gates, &mut problems);
        volumes::check_all(spec, &mut problems);
        container::check_all(spec, &mut problems);
    }
    problems
}

/// A text that must be one of a few.
fn one_of(path: String, value: Option<&str>, known: &[&str], problems: &mut Problems) {
    if let Some(value) = value
        && !known.contains(&value)
    {
        problems.add(path, format!("{} is not one of {}", quoted(value), known.join(", ")));
    }
}

/// A user or group number.
fn id(path: String, id: Option<i64>, problems: &mut Problems) {
    if let Some(id) = id
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        problems.add(path, format!("{id} is not between 0 and {}", i32::MAX));
    }
}

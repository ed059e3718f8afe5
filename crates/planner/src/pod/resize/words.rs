//! What events say of a resize: upstream's words, and the resources as JSON.

use crablet_model::api;
use serde::Serialize;

pub const STARTED: &str = "Pod resize started";
pub const COMPLETED: &str = "Pod resize completed";
pub const ERROR: &str = "Pod resize error";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Resources<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Resources<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Resources<'a> {
    name: &'a str,
    resources: api::ResourceRequirements,
}

/// The text of an event. `pod` has the resources that it tells of.
pub fn text(what: &str, pod: &api::Pod, generation: Option<i64>, error: &str) -> String {
    fn of(container: &api::Container) -> Resources<'_> {
        Resources { name: &container.name, resources: container.resources.clone().unwrap_or_default() }
    }
    let spec = pod.spec.as_ref();
    let summary = Summary {
        init_containers: spec.iter().flat_map(|s| s.init_containers.iter().flatten()).map(of).collect(),
        containers: spec.iter().flat_map(|s| &s.containers).map(of).collect(),
        generation: generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(json) => format!("{what}: {json}"),
        Err(_) => what.to_owned(),
    }
}

/// The same of a resize that has to wait.
pub fn pending(reason: &str, message: &str, pod: &api::Pod) -> String {
    text(&format!("Pod resize {reason}"), pod, pod.metadata.generation, message)
}

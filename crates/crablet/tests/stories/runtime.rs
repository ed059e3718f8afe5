//! What the runtime was asked to do, pod by pod, in words.

use std::collections::BTreeMap;

use crablet_proxy::CriRecord;
use serde_json::Value;

/// One call that changed something.
pub struct Call {
    /// The pod's name and UID.
    pub pod: (String, String),
    /// `RunPodSandbox`, `StartContainer main`.
    pub words: String,
}

/// The calls of a record that begin and end things, in the order in which they arrived.
pub fn calls<'a>(lines: impl Iterator<Item = &'a CriRecord>) -> Vec<Call> {
    let mut lines: Vec<&CriRecord> = lines.collect();
    lines.sort_by_key(|line| line.call);
    let mut known = Known::default();
    lines.into_iter().filter_map(|line| known.call(line)).collect()
}

/// Whom ids belong to.
#[derive(Default)]
struct Known {
    sandboxes: BTreeMap<String, (String, String)>,
    containers: BTreeMap<String, ((String, String), String)>,
}

impl Known {
    fn call(&mut self, line: &CriRecord) -> Option<Call> {
        let request = line.request.as_ref()?;
        let answer = line.response.as_ref().unwrap_or(&Value::Null);
        let method = line.method.as_str();
        let (pod, what) = match method {
            "RunPodSandbox" => {
                let pod = pod_of(&request["config"]["metadata"]);
                self.sandboxes.insert(text(&answer["pod_sandbox_id"]), pod.clone());
                (pod, String::new())
            }
            "CreateContainer" => {
                let pod = pod_of(&request["sandbox_config"]["metadata"]);
                let container = text(&request["config"]["metadata"]["name"]);
                self.containers.insert(text(&answer["container_id"]), (pod.clone(), container.clone()));
                (pod, container)
            }
            "StartContainer" | "StopContainer" | "RemoveContainer" => {
                self.containers.get(&text(&request["container_id"]))?.clone()
            }
            "StopPodSandbox" | "RemovePodSandbox" => {
                (self.sandboxes.get(&text(&request["pod_sandbox_id"]))?.clone(), String::new())
            }
            _ => return None,
        };
        let failed = if line.code.unwrap_or(0) == 0 { "" } else { " in vain" };
        Some(Call { pod, words: format!("{method} {what}").trim_end().to_owned() + failed })
    }
}

fn pod_of(metadata: &Value) -> (String, String) {
    (text(&metadata["name"]), text(&metadata["uid"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A pod's calls without what means nothing: removals, stops of what has been stopped, and the order of stops in a row.
pub fn order<'a>(calls: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut stops: Vec<String> = Vec::new();
    for call in calls.filter(|call| !call.starts_with("Remove")) {
        if call.starts_with("StopContainer") {
            if !stops.iter().any(|stop| stop == call) {
                stops.push(call.to_owned());
            }
            continue;
        }
        stops.sort();
        order.append(&mut stops);
        let stopped = order.iter().rev().find(|one| one.as_str() == "RunPodSandbox" || one.as_str() == call);
        if call.starts_with("StopPodSandbox") && stopped.is_some_and(|one| one == call) {
            continue;
        }
        order.push(call.to_owned());
    }
    stops.sort();
    order.append(&mut stops);
    order
}

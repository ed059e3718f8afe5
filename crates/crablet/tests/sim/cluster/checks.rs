//! What must be true of the cluster once the weather has cleared.

use std::collections::BTreeMap;

use base64::Engine;
use crablet_cri::fake::{TraceEntry, What};
use crablet_model::PodUid;
use crablet_model::names::annotation;
use crablet_model::runtime::{Container, ContainerState};
use serde_json::Value;

use super::api::SimApi;
use super::witness::{FOREIGN, is_mirror};
use crate::sim::Broken;
use crate::sim::pods::NODE;
use crate::sim::pods::volumes::Volume;
use crate::sim::world::{Manifest, ROOT, World};

const SHOWN: &str = "the API shows what is true";
const MIRRORS: &str = "mirrors are there for static pods and for nothing else";

/// Writes that a night may need for each thing that happened in it.
const WRITES_PER_CHANGE: u64 = 3;

/// What is not yet as it should be.
pub fn unsettled(world: &World) -> Vec<Broken> {
    let Some(cluster) = &world.cluster else { return Vec::new() };
    let mut found = Vec::new();
    let containers = world.runtime.containers();
    let mut pods: BTreeMap<String, Value> = BTreeMap::new();
    for pod in cluster.api.server.pods() {
        pods.insert(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod);
    }
    for (pod, plan) in world.story.pods.iter().enumerate() {
        let there = pods.remove(&plan.full_name());
        let (Some(uid), Some(there)) = (world.uid(pod), &there) else {
            if world.uid(pod).is_some() || there.is_some() {
                let promise = if plan.is_of_api() { "deleted pods go from the API" } else { MIRRORS };
                let text = format!(
                    "{}: wanted {:?}, in the API {}",
                    plan.name,
                    world.uid(pod),
                    there.unwrap_or_default()
                );
                found.push(Broken::new(promise, text));
            }
            continue;
        };
        let verdict = match plan.is_of_api() {
            true if there["metadata"]["uid"] != uid.as_str() => Err("is another pod".to_owned()),
            true => Ok(()),
            false => mirrors(world, pod, there),
        };
        let promise = if plan.is_of_api() { SHOWN } else { MIRRORS };
        let verdict = verdict.and_then(|()| {
            shows_what_the_agent_says(world, &uid, there)?;
            tells_what_it_has_seen(world, &uid, there)?;
            // What waits for its first hook is not told yet, as upstream.
            if plan.everyone().any(|c| c.extras.hangs()) {
                return Ok(());
            }
            shows_what_runs(&uid, there, &containers, plan.is_of_api())
        });
        if let Err(text) = debuggers_begin(world, &uid, there) {
            found.push(Broken::new("ephemeral containers begin", format!("{} {text}", plan.name)));
        }
        if let Err(text) = volumes_are_right(world, &cluster.api, pod, &uid, there) {
            found.push(Broken::new("volumes show what is true", format!("{} {text}", plan.name)));
        }
        if let Err(text) = verdict {
            found.push(Broken::new(promise, format!("{} {text}\n  in the API {there}", plan.name)));
        }
    }
    found.extend(pods.into_values().map(|pod| Broken::new("deleted pods go from the API", pod.to_string())));
    found.extend(node(world, &cluster.api));
    found
}

/// Who was added to a pod that runs is begun, whatever becomes of it.
fn debuggers_begin(world: &World, uid: &PodUid, there: &Value) -> Result<(), String> {
    let added = there["spec"]["ephemeralContainers"].as_array();
    for name in added.into_iter().flatten().filter_map(|c| c["name"].as_str()) {
        let is_begun = |entry: &TraceEntry| match &entry.what {
            What::ContainerCreated { container } => {
                container.uid.as_ref() == Some(uid) && *container.container == *name
            }
            _ => false,
        };
        let begun = world.runtime.read_trace(|trace| trace.iter().any(is_begun));
        if there["status"]["phase"] == "Running" && !begun {
            return Err(format!("has no {name}"));
        }
    }
    Ok(())
}

fn mirrors(world: &World, pod: usize, there: &Value) -> Result<(), String> {
    let plan = &world.story.pods[pod];
    let Manifest::Version(version) = world.manifests[pod] else { return Ok(()) };
    if !is_mirror(there) {
        return Err("has the name of a mirror and is none".to_owned());
    }
    let hash = &there["metadata"]["annotations"][annotation::CONFIG_MIRROR];
    if *hash != plan.hash(version).as_str() {
        return Err(format!("is mirrored with hash {hash} and has {}", plan.hash(version)));
    }
    if there["metadata"]["ownerReferences"][0]["name"] != NODE {
        return Err("is mirrored without an owner".to_owned());
    }
    if !there["metadata"]["deletionTimestamp"].is_null() {
        return Err("has a mirror that is being deleted".to_owned());
    }
    Ok(())
}

/// Phase, containers and conditions in the API are those that the agent would tell anybody on the node.
fn shows_what_the_agent_says(world: &World, uid: &PodUid, there: &Value) -> Result<(), String> {
    let said = world.agent().and_then(|agent| agent.view().status(uid)).ok_or("is not known to the agent")?;
    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
    let shown = &there["status"];
    for field in ["phase", "reason", "message", "startTime", "podIP", "podIPs", "hostIP", "containerStatuses"]
    {
        if bare(&said[field]) != bare(&shown[field]) {
            return Err(format!("says {field} {} and shows {}", said[field], shown[field]));
        }
    }
    let conditions = |status: &Value| -> BTreeMap<String, Value> {
        let all = status["conditions"].as_array().cloned().unwrap_or_default().into_iter();
        let without_generation = |mut condition: Value| {
            // Servers need not know it.
            condition["observedGeneration"] = Value::Null;
            bare(&condition)
        };
        all.filter(|c| c["type"] != FOREIGN).map(|c| (c["type"].to_string(), without_generation(c))).collect()
    };
    if conditions(&said) != conditions(shown) {
        return Err(format!("says conditions {} and shows {}", said["conditions"], shown["conditions"]));
    }
    Ok(())
}

/// Whatever was edited, also in a pod that is over, was seen by this life of the agent, and it says so.
fn tells_what_it_has_seen(world: &World, uid: &PodUid, there: &Value) -> Result<(), String> {
    // A mirror is not what the agent looks at.
    if is_mirror(there) {
        return Ok(());
    }
    let said = world.agent().and_then(|agent| agent.view().status(uid)).ok_or("is not known to the agent")?;
    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
    match &there["metadata"]["generation"] {
        generation if *generation == said["observedGeneration"] => Ok(()),
        generation => {
            Err(format!("is of generation {generation}, and {} was observed", said["observedGeneration"]))
        }
    }
}

/// Without what says nothing: the API does not tell it from what is not there.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), bare(value)));
            Value::Object(fields.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(bare).collect()),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The newest instance of each container is what the API shows of it.
fn shows_what_runs(
    uid: &PodUid,
    there: &Value,
    containers: &[Container],
    counts: bool,
) -> Result<(), String> {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .map(|list| there["status"][list].as_array());
    for status in lists.into_iter().flatten().flatten() {
        let of_name = containers.iter().filter(|c| c.uid == *uid && status["name"] == c.name.as_str());
        let Some(newest) = of_name.max_by_key(|c| c.restart_count) else { continue };
        let state = &status["state"];
        let is_right = match &newest.state {
            ContainerState::Running { .. } => {
                // A static pod that was put back under its old UID goes on from its old count.
                !state["running"].is_null() && (!counts || status["restartCount"] == newest.restart_count)
            }
            // It waits for its next start, or is over.
            ContainerState::Exited(exit) => {
                let ended = if state["terminated"].is_null() { &status["lastState"] } else { state };
                ended["terminated"]["exitCode"] == exit.code
            }
            ContainerState::Created | ContainerState::Unknown => true,
        };
        if !is_right {
            return Err(format!("shows {status}, and the runtime has {:?}", newest.state));
        }
    }
    Ok(())
}

/// A pod that runs sees the newest content of what it refers to, and what a pod that has ended held is given back.
fn volumes_are_right(
    world: &World,
    api: &SimApi,
    pod: usize,
    uid: &PodUid,
    there: &Value,
) -> Result<(), String> {
    let Manifest::Version(version) = world.manifests[pod] else { return Ok(()) };
    match there["status"]["phase"].as_str() {
        Some("Succeeded" | "Failed") => {
            let held = world.machine.held_by(uid.as_str());
            return if held.is_empty() {
                Ok(())
            } else {
                Err(format!("has ended and holds {}", held.join(", ")))
            };
        }
        Some("Running") => {}
        _ => return Ok(()),
    }
    let content = |plural: &str, name: &str| {
        let object = api.server.get(plural, "default", name).unwrap_or_default();
        let text = object["data"]["key"].as_str().unwrap_or_default().to_owned();
        if plural != "secrets" {
            return text;
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if let Some(projected) =
        world.story.pods[pod].volumes().iter().find(|v| matches!(v, Volume::Projected(_)))
    {
        let path = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~projected/{}/token", projected.name());
        if world.machine.volumes.content(path).is_none_or(|token| token.is_empty()) {
            return Err("has no token".to_owned());
        }
    }
    for (path, wanted) in world.story.pods[pod].volumes().iter().flat_map(|v| v.files(content, version)) {
        let found = world.machine.volumes.content(format!("{ROOT}/pods/{uid}/{path}"));
        let found = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if found.as_deref() != Some(wanted.as_str()) {
            return Err(format!("has {found:?} in {path} and not {wanted:?}"));
        }
    }
    Ok(())
}

fn node(world: &World, api: &SimApi) -> Option<Broken> {
    let broken = |text: String| Some(Broken::new("the node is ready and renews its lease", text));
    let Some(node) = api.server.get("nodes", "", NODE) else { return broken("there is no Node".to_owned()) };
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
    if ready.is_none_or(|ready| ready["status"] != "True") {
        return broken(format!("the Node is {ready:?}"));
    }
    let lease = api.server.get("leases", "kube-node-lease", NODE).unwrap_or_default();
    let renewed: Option<jiff::Timestamp> =
        lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
    match renewed {
        Some(time) if world.now().duration_since(time).as_secs() < 40 => None,
        _ => broken(format!("the lease is {lease}")),
    }
}

/// How pods are in the API, by name: the versions change with every write.
pub fn versions(world: &World, names: &[String]) -> BTreeMap<String, Value> {
    let pods = world.cluster.iter().flat_map(|cluster| cluster.api.server.pods());
    let pods = pods.map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod));
    pods.filter(|(name, _)| names.contains(name)).collect()
}

/// What is said once is not said again and again.
pub fn storms(world: &World) -> Vec<Broken> {
    let Some(cluster) = &world.cluster else { return Vec::new() };
    let writes = cluster.api.witness.writes();
    let mut broken = Vec::new();
    // What a server drops is told again by each life of the agent, and again with what changes.
    let dropped = world.lives * world.story.pods.len() as u64 + world.changes.len() as u64;
    let idle = 5 + writes.lost_answers + if cluster.api.is_old() { dropped } else { 0 };
    if writes.idle_patches > idle {
        let text = format!("{writes:?}");
        broken.push(Broken::new("the same status is not told again and again", text));
    }
    let is_change =
        |entry: &&crablet_cri::fake::TraceEntry| crate::sim::invariants::change_of(&entry.what).is_some();
    let changes =
        world.runtime.read_trace(|trace| trace.iter().filter(is_change).count()) + world.changes.len();
    let most = 50 + WRITES_PER_CHANGE * changes as u64 + writes.lost_answers + writes.failures;
    if writes.all > most {
        broken.push(Broken::new("writes are few", format!("{writes:?} for {changes} changes")));
    }
    broken
}

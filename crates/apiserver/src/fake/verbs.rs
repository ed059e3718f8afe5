//! What each verb does to the store.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::path::{Resource, Target};
use super::store::{Scope, Store};
use super::weather::status;
use super::{patch, token};
use crate::port::{ApiError, Verb};

pub(super) type Answer = Result<Bytes, ApiError>;

/// Seconds of grace that a pod has unless it says otherwise.
const DEFAULT_GRACE: i64 = 30;

pub(super) fn perform(store: &mut Store, now: Timestamp, verb: Verb, path: &str, body: &Bytes) -> Answer {
    let Some(target) = Target::parse(path) else {
        return Err(status(404, "NotFound", "the server could not find the requested resource"));
    };
    match (verb, target.name.as_deref(), target.subresource.as_deref()) {
        (Verb::Get, None, _) => Ok(list(store, &target)),
        (Verb::Get, Some(name), _) => store
            .json(&target.resource, &target.namespace, name)
            .ok_or_else(|| missing(&target.resource, name)),
        (Verb::Post, None, _) => create(store, now, &target, parsed(body)?, None),
        (Verb::Post, Some(name), Some("token")) => {
            token::request(store, now, &target.namespace, name, parsed(body)?)
        }
        (Verb::Put, Some(name), subresource) => replace(store, &target, name, subresource, parsed(body)?),
        (Verb::StrategicPatch | Verb::MergePatch, Some(name), subresource) => {
            apply(store, &target, name, subresource, verb, &parsed(body)?)
        }
        (Verb::Delete, Some(name), _) => delete(store, now, &target, name, body),
        _ => Err(status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

fn parsed(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| status(400, "BadRequest", format!("body is no JSON: {error}")))
}

pub(super) fn missing(resource: &Resource, name: &str) -> ApiError {
    status(404, "NotFound", format!("{} {name:?} not found", resource.qualified()))
}

fn conflict(resource: &Resource, name: &str, why: &str) -> ApiError {
    let what = resource.qualified();
    status(409, "Conflict", format!("Operation cannot be fulfilled on {what} {name:?}: {why}"))
}

fn invalid(resource: &Resource, name: &str, why: &str) -> ApiError {
    status(422, "Invalid", format!("{} {name:?} is invalid: {why}", resource.kind()))
}

fn list(store: &Store, target: &Target) -> Bytes {
    let scope = Scope { namespace: target.namespace.clone(), selector: target.query.selector.clone() };
    let items: Vec<Value> = store
        .all(&target.resource, &scope)
        .map(|object| {
            // As in a real list, whose items do not say what they are.
            let mut object = object.clone();
            if let Some(fields) = object.as_object_mut() {
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            object
        })
        .collect();
    let list = json!({
        "kind": format!("{}List", target.resource.kind()), "apiVersion": target.resource.api_version(),
        "metadata": {"resourceVersion": store.version().to_string()}, "items": items,
    });
    Bytes::from(list.to_string())
}

/// Gives a new object what the server gives it, and keeps it.
///
/// A UID is given by operators of the fake only.
pub(super) fn create(
    store: &mut Store,
    now: Timestamp,
    target: &Target,
    mut object: Value,
    uid: Option<String>,
) -> Answer {
    let resource = &target.resource;
    let meta = &object["metadata"];
    let name = match (meta["name"].as_str(), meta["generateName"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(start)) => format!("{start}{:05x}", store.version() + 1),
        (None, None) => {
            return Err(status(
                422,
                "Invalid",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
    };
    let namespace = if target.namespace.is_empty() && resource.namespaced() {
        meta["namespace"].as_str().unwrap_or("default").to_owned()
    } else {
        target.namespace.clone()
    };
    if store.get(resource, &namespace, &name).is_some() {
        return Err(status(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", resource.qualified()),
        ));
    }
    let uid = uid.unwrap_or_else(|| store.next_uid());
    if resource.kind() != "Unknown" {
        object["kind"] = json!(resource.kind());
        object["apiVersion"] = json!(resource.api_version());
    }
    let meta = &mut object["metadata"];
    meta["name"] = json!(name);
    meta["uid"] = json!(uid);
    meta["creationTimestamp"] = json!(seconds(now));
    if resource.namespaced() {
        meta["namespace"] = json!(namespace);
    }
    if resource.plural == "pods" {
        meta["generation"] = json!(1);
        if object["status"]["phase"].is_null() {
            object["status"]["phase"] = json!("Pending");
        }
    }
    Ok(store.write(resource, &namespace, &name, object))
}

fn replace(store: &mut Store, target: &Target, name: &str, subresource: Option<&str>, new: Value) -> Answer {
    let old = current(store, target, name)?;
    let versions = (new["metadata"]["resourceVersion"].as_str(), old["metadata"]["resourceVersion"].as_str());
    if matches!(versions, (Some(wanted), Some(actual)) if !wanted.is_empty() && wanted != actual) {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return Err(conflict(&target.resource, name, why));
    }
    update(store, target, name, subresource, old, new)
}

fn apply(
    store: &mut Store,
    target: &Target,
    name: &str,
    subresource: Option<&str>,
    verb: Verb,
    change: &Value,
) -> Answer {
    let old = current(store, target, name)?;
    let (wanted, actual) = (&change["metadata"]["uid"], &old["metadata"]["uid"]);
    if !wanted.is_null() && wanted != actual {
        // Not a conflict: to the server this is a change of a field that never changes.
        let why = format!("metadata.uid: Invalid value: {wanted}: field is immutable");
        return Err(invalid(&target.resource, name, &why));
    }
    let mut new = old.clone();
    if verb == Verb::MergePatch {
        patch::merge(&mut new, change);
    } else {
        patch::strategic(&mut new, change);
    }
    update(store, target, name, subresource, old, new)
}

fn current(store: &Store, target: &Target, name: &str) -> Result<Value, ApiError> {
    let object = store.get(&target.resource, &target.namespace, name);
    object.cloned().ok_or_else(|| missing(&target.resource, name))
}

/// Keeps `new`, with what may not change this way taken from `old`.
fn update(
    store: &mut Store,
    target: &Target,
    name: &str,
    subresource: Option<&str>,
    old: Value,
    mut new: Value,
) -> Answer {
    let keep = |new: &mut Value, field: &str| match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => {
            if let Some(fields) = new.as_object_mut() {
                fields.remove(field);
            }
        }
    };
    keep(&mut new, "kind");
    keep(&mut new, "apiVersion");
    match subresource {
        Some("status" | "approval") => keep(&mut new, "spec"),
        _ => keep(&mut new, "status"),
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => {
                if let Some(meta) = new["metadata"].as_object_mut() {
                    meta.remove(field);
                }
            }
        }
    }
    if target.resource.plural == "pods" && new["spec"] != old["spec"] {
        bump_generation(&mut new);
    }
    if new == old {
        return store
            .json(&target.resource, &target.namespace, name)
            .ok_or_else(|| missing(&target.resource, name));
    }
    let freed = !new["metadata"]["deletionTimestamp"].is_null()
        && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !has_finalizers(&new);
    let json = store.write(&target.resource, &target.namespace, name, new);
    if freed {
        store.remove(&target.resource, &target.namespace, name);
    }
    Ok(json)
}

fn bump_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    object["metadata"]["generation"] = json!(generation + 1);
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn delete(store: &mut Store, now: Timestamp, target: &Target, name: &str, body: &[u8]) -> Answer {
    let options = if body.is_empty() { Value::Null } else { parsed(body)? };
    let old = current(store, target, name)?;
    for (field, spelled) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, actual) = (&options["preconditions"][field], &old["metadata"][field]);
        if !wanted.is_null() && wanted != actual {
            let why = format!(
                "Precondition failed: {spelled} in precondition: {wanted}, {spelled} in object meta: {actual}"
            );
            return Err(conflict(&target.resource, name, &why.replace('"', "")));
        }
    }
    let wanted = target.query.grace_seconds.or(options["gracePeriodSeconds"].as_i64());
    let grace = if target.resource.plural == "pods" { pod_grace(&old, wanted) } else { 0 };
    let mut new = old.clone();
    let meta = &mut new["metadata"];
    if grace > 0 || has_finalizers(&old) {
        let begun = meta["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let given = meta["deletionGracePeriodSeconds"].as_i64();
        if let (Some(_), Some(given)) = (begun, given)
            && grace >= given
        {
            let json = store.json(&target.resource, &target.namespace, name);
            return json.ok_or_else(|| missing(&target.resource, name));
        }
        // A shorter grace counts from when the end began.
        let start = match (begun, given) {
            (Some(end), Some(given)) => end - jiff::SignedDuration::from_secs(given),
            _ => now,
        };
        meta["deletionTimestamp"] = json!(seconds(start + jiff::SignedDuration::from_secs(grace)));
        meta["deletionGracePeriodSeconds"] = json!(grace);
        if target.resource.plural == "pods" && begun.is_none() {
            bump_generation(&mut new);
        }
        return Ok(store.write(&target.resource, &target.namespace, name, new));
    }
    store.remove(&target.resource, &target.namespace, name).ok_or_else(|| missing(&target.resource, name))
}

/// A pod that no node has, or that has ended, goes at once.
fn pod_grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let scheduled = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !scheduled || ended {
        return 0;
    }
    wanted.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(DEFAULT_GRACE).max(0)
}

/// As the API writes times.
pub(super) fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

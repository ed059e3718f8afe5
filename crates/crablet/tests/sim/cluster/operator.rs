//! Carries out what a story asks of the cluster.

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::fake::FakeApiServer;
use crablet_host::fake::{FileFault, FileFaultKind};
use crablet_model::names::phase;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::SimApi;
use super::story::Event;
use super::witness::FOREIGN;
use crate::sim::pods::sizes::Claim;
use crate::sim::pods::volumes::{OBJECTS, PULL_SECRET, config_map, secret};
use crate::sim::pods::{EDITS, PRESENT, credentials};
use crate::sim::story::Moment;
use crate::sim::world::{Manifest, World};

/// A name that is taken is tried again this much later.
const NAME_IS_TAKEN: Duration = Duration::from_secs(3);

pub struct Cluster {
    pub api: Arc<SimApi>,
    pub outage: bool,
    pub bad_weather: bool,
    /// From when on the agent could see the cluster (`true`), and from when on it could not.
    pub sight: Vec<(Duration, bool)>,
}

impl Cluster {
    pub fn new(api: Arc<SimApi>) -> Self {
        let default = json!({"metadata": {"name": "default", "namespace": "default"}});
        api.server.put("serviceaccounts", default);
        api.server.put("services", json!({
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
        }));
        Self { api, outage: false, bad_weather: false, sight: Vec::new() }
    }
}

impl World {
    /// The operator gives the API server a pod, or edits it. A name that is still taken is waited for.
    pub fn put_in_api(&mut self, pod: usize, version: u32) {
        let Some(cluster) = &self.cluster else { return };
        let plan = &self.story.pods[pod];
        let (uid, name) = (plan.uid(version), plan.full_name());
        match cluster.api.server.get("pods", "default", &name) {
            Some(there) if there["metadata"]["uid"] == uid.as_str() => {
                if !there["metadata"]["deletionTimestamp"].is_null() {
                    return;
                }
                let mut object = plan.api_object(version);
                // Nobody but who adds them has a say in ephemeral containers.
                if let Some(ephemeral) = there["spec"].get("ephemeralContainers") {
                    object["spec"]["ephemeralContainers"] = ephemeral.clone();
                }
                cluster.api.server.put("pods", object);
            }
            Some(_) if version.is_multiple_of(EDITS) => {
                return self.later(NAME_IS_TAKEN, Moment::Put { pod, version });
            }
            None if version.is_multiple_of(EDITS) => {
                let mut object = plan.api_object(version);
                // Times in the API are whole seconds.
                let scheduled = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
                object["status"] = json!({
                    "phase": "Pending", "qosClass": plan.claim.map_or("BestEffort", Claim::qos),
                    "conditions": [
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled.to_string()},
                    ],
                });
                let kept = cluster.api.server.put("pods", object);
                cluster.api.witness.look(&kept);
            }
            // What was to be edited has gone.
            _ => return,
        }
        self.changed(pod, Manifest::Version(version), None);
    }

    pub fn happens_in_cluster(&mut self, event: Event) {
        let Some(cluster) = &mut self.cluster else { return };
        let server = cluster.api.server.clone();
        let name = |pod: usize| self.story.pods[pod].full_name();
        match event {
            Event::Delete { pod, grace } => {
                let deleted = server.delete_pod("default", &name(pod), grace.map(i64::from));
                if deleted.is_ok() {
                    let grace = grace.unwrap_or(self.story.pods[pod].grace_seconds);
                    self.changed(pod, Manifest::Absent, Some(grace));
                }
            }
            Event::DeleteByForce { pod } => {
                if server.delete("pods", "default", &name(pod)) {
                    let grace = self.story.pods[pod].grace_seconds;
                    self.changed(pod, Manifest::Absent, Some(grace));
                }
            }
            Event::DeleteMirror { pod, by_force } => {
                if by_force {
                    server.delete("pods", "default", &name(pod));
                } else {
                    // There may be none.
                    let _ = server.delete_pod("default", &name(pod), None);
                }
            }
            Event::Condition { pod } => {
                if let Some(mut object) = server.get("pods", "default", &name(pod)) {
                    let theirs = json!({"type": FOREIGN, "status": "True", "message": "by others"});
                    match object["status"]["conditions"].as_array_mut() {
                        Some(conditions) => {
                            conditions.retain(|c| c["type"] != FOREIGN);
                            conditions.push(theirs);
                        }
                        None => object["status"]["conditions"] = json!([theirs]),
                    }
                    cluster.api.witness.has_foreign(object["metadata"]["uid"].as_str().unwrap_or_default());
                    server.put("pods", object);
                }
            }
            Event::Resize { pod, container, size } => {
                let claim = self.story.pods[pod].claim.unwrap_or_default();
                if resize(&server, &name(pod), container, claim.resources(size)) {
                    let (at, uid) = (self.elapsed(), self.uid(pod));
                    self.resizes.extend(uid.map(|uid| (at, uid, pod, container)));
                }
            }
            Event::Debug { pod } => debug(&server, &name(pod), self.story.pods[pod].debuggers.len()),
            Event::PullSecret { right } => put_pull_secret(&server, right),
            Event::Objects { number, revision } => put_objects(&server, number, revision),
            Event::NoObjects { number } => {
                server.delete("configmaps", "default", &config_map(number));
                server.delete("secrets", "default", &secret(number));
            }
            Event::Weather(weather) => {
                cluster.bad_weather = weather != super::api::Weather::default();
                cluster.api.set_weather(weather);
            }
            Event::Outage(begins) => {
                cluster.outage = begins;
                if begins { server.outage() } else { server.clear_faults() }
            }
            Event::BreakWatches => server.break_watches(),
            Event::CloseWatches => server.close_watches(),
            Event::ExpireVersions => server.expire_versions(),
            Event::Bookmarks => server.send_bookmarks(),
            Event::OldServer => cluster.api.become_old(),
            Event::StreamingLists(supported) => server.set_streaming_lists(supported),
            Event::Cgroups { busy } => self.machine.fail_cgroups(busy),
            Event::Volumes { chaos } => self.machine.volumes.set_chaos(chaos),
            Event::VolumesHang { kind, times } => {
                let path_contains = format!("kubernetes.io~{kind}");
                let kind = FileFaultKind::Hang;
                self.machine.volumes.add_fault(FileFault {
                    call: None,
                    path_contains,
                    kind,
                    times: Some(times),
                });
            }
        }
        self.note_sight();
    }

    /// Whether the agent can see the cluster may have changed.
    pub fn note_sight(&mut self) {
        let (at, lives) = (self.elapsed(), self.agent().is_some());
        if let Some(cluster) = &mut self.cluster {
            cluster.sight.push((at, lives && !cluster.outage && !cluster.bad_weather));
        }
    }

    /// The weather clears, and what pods refer to is there.
    pub fn heal_cluster(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        (cluster.outage, cluster.bad_weather) = (false, false);
        cluster.api.server.clear_faults();
        cluster.api.set_weather(super::api::Weather::default());
        self.machine.volumes.clear_faults();
        self.machine.fail_cgroups(false);
        for number in 0..OBJECTS {
            put_objects(&cluster.api.server, number, 99);
        }
        put_pull_secret(&cluster.api.server, true);
        self.note_sight();
    }
}

/// Says whether the API server took it: a pod that has begun to go, or has finished, stays as it is.
fn resize(server: &FakeApiServer, name: &str, container: usize, resources: Value) -> bool {
    let Some(mut pod) = server.get("pods", "default", name) else { return false };
    let is_over = phase::is_terminal(pod["status"]["phase"].as_str().unwrap_or_default());
    if is_over || !pod["metadata"]["deletionTimestamp"].is_null() {
        return false;
    }
    pod["spec"]["containers"][container]["resources"] = resources;
    server.put("pods", pod);
    true
}

/// A pod that has begun to go, or has finished, is left alone, as users would.
fn debug(server: &FakeApiServer, name: &str, most: usize) {
    let Some(mut pod) = server.get("pods", "default", name) else { return };
    let is_over = phase::is_terminal(pod["status"]["phase"].as_str().unwrap_or_default());
    if is_over || !pod["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let spec = &mut pod["spec"];
    let number = spec["ephemeralContainers"].as_array().map_or(0, Vec::len);
    if number >= most {
        return;
    }
    let container = json!({
        "name": format!("e{number}"), "image": PRESENT, "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    match spec["ephemeralContainers"].as_array_mut() {
        Some(all) => all.push(container),
        None => spec["ephemeralContainers"] = json!([container]),
    }
    server.put("pods", pod);
}

fn put_pull_secret(server: &FakeApiServer, right: bool) {
    let known = credentials();
    let password = if right { known.password.as_str() } else { "wrong" };
    let auths =
        json!({"auths": {"registry.test": {"username": known.username, "password": password}}}).to_string();
    server.put(
        "secrets",
        json!({
            "metadata": {"name": PULL_SECRET, "namespace": "default"},
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": base64(&auths)},
        }),
    );
}

fn put_objects(server: &FakeApiServer, number: u8, revision: u32) {
    let text = format!("revision {revision}");
    let meta = |name: String| json!({"name": name, "namespace": "default"});
    let map: Value = json!({"metadata": meta(config_map(number)), "data": {"key": text}});
    server.put("configmaps", map);
    // The API has secrets in base64.
    let secret: Value =
        json!({"metadata": meta(secret(number)), "type": "Opaque", "data": {"key": base64(&text)}});
    server.put("secrets", secret);
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

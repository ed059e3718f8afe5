//! A node changes its kubelet while its pods run: upstream's gives way to Crablet and comes back, and the other way
//! round. The pods are those of the corpus that stay as they are, and some of manifests. Nothing of them is begun again,
//! stopped or removed, and their statuses stay what they are; then whoever has the node ends them, and nothing is left.
//!
//! Upstream's kubelet, when it starts, forgets the addresses of pods that have ended, the times of static pods and more, and
//! Crablet, when it comes back, remembers its own. So statuses are compared to the letter where Crablet takes over first;
//! else it is the containers that have to be the same ones, in the same state.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_proxy::{CriOptions, CriProxy};
use crablet_testbed::Flavor;
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet, Node, NodeOptions};
use crablet_testbed::wait::{self, Deadline};
use serde_json::{Value, json};

use super::corpus::{self, Case, Until};
use super::side::{self, NAMESPACE};
use super::watch::feed;
use crate::{alike, runtime};

const PATIENCE: Duration = Duration::from_secs(180);
/// A job of this many seconds, after which a kubelet has looked at everything more than once.
const WHILE: u32 = 15;
/// There are not addresses for many more.
const MOST: usize = 150;
const STATICS: &str = include_str!("statics.yaml");

pub fn both_ways(crablet: &Kubelet) -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new(Flavor::Pinned))?;
    let mut found = Vec::new();
    let ways = [(&Kubelet::Upstream, crablet), (crablet, &Kubelet::Upstream)];
    for (number, (first, second)) in ways.into_iter().enumerate() {
        let cases = pods_that_stay(number)?;
        found.append(&mut there_and_back(&cluster, first, second, &cases.iter().collect::<Vec<_>>())?);
    }
    cluster.stop()?;
    ensure!(found.is_empty(), "{} changes by a change of kubelets:\n{}", found.len(), found.join("\n"));
    Ok(())
}

/// Pods that stay as they are while nobody does anything: a part of them, and another for another number.
fn pods_that_stay(part: usize) -> Result<Vec<Case>> {
    let chosen = std::env::var("CRABLET_TEST_PODS").ok();
    let mut cases = corpus::read()?;
    cases.retain(|case| {
        let stays = matches!(case.until, Until::Ready | Until::Running | Until::Phase(_) | Until::Ephemeral);
        let wanted =
            chosen.as_ref().is_none_or(|parts| parts.split(',').any(|part| case.name.contains(part)));
        stays && wanted
    });
    let parts = cases.len() / MOST + 1;
    Ok(cases.into_iter().skip(part % parts).step_by(parts).collect())
}

fn there_and_back(
    cluster: &Cluster,
    first: &Kubelet,
    second: &Kubelet,
    cases: &[&Case],
) -> Result<Vec<String>> {
    let name = format!("{}-first", first.name());
    let (listen, log) =
        (cluster.dir().join(format!("{name}.sock")), cluster.dir().join(format!("{name}.jsonl")));
    let proxy =
        CriProxy::start_with(&CriOptions::new(&listen, cluster.containerd().scratch().socket(), log))?;
    let options = |kubelet: &Kubelet| NodeOptions {
        runtime_endpoint: Some(proxy.endpoint()),
        flags: vec!["--max-pods=400".into(), "--allowed-unsafe-sysctls=net.core.somaxconn".into()],
        ..NodeOptions::new(kubelet.clone())
    };
    let mut node = cluster.join(options(first))?;
    side::put_profile(&node)?;
    let _ = fs::remove_dir_all(side::scratch(cluster));
    fs::create_dir_all(side::scratch(cluster))?;
    side::create_objects(cluster)?;
    let statics = put_statics(cluster, &node)?;
    side::create_pods(cluster, cases)?;
    let settled = side::settled(cluster, cases)?;
    eprintln!("{name}: {} of {} pods have settled", settled.len(), cases.len());
    ensure!(settled.len() == cases.len(), "not all pods have settled with {}", first.name());
    wait_for(cluster, &statics, &["--for=create", "--for=condition=Ready"])?;
    let mut found = Vec::new();
    for (number, kubelet) in [second, first].into_iter().enumerate() {
        let (mut before, last) = (side::pods(cluster)?, proxy.record().last_call());
        node.kubelet().stop()?;
        drop(node);
        node = cluster.launch(options(kubelet))?;
        spend_a_while(cluster, &format!("canary-{number}"))?;
        let title = format!("{} with pods of {}", kubelet.name(), first.name());
        // All calls, so that ids are known; then those since.
        let lines = proxy.record().lines();
        let calls = runtime::calls(lines.iter().map(|line| &**line));
        let old = runtime::calls(lines.iter().filter(|line| line.call <= last).map(|line| &**line)).len();
        before.retain(|name, pod| !name.starts_with("canary") && !is_restless(pod));
        let calls = calls.iter().skip(old).filter(|call| !means_nothing(call, &before));
        found.extend(calls.map(|call| format!("{title}: {}: {}", call.pod.0, call.words)));
        let after = side::pods(cluster)?;
        let to_the_letter = number == 0 && !matches!(kubelet, Kubelet::Upstream);
        let changes = changes(&before, &after, to_the_letter);
        found.extend(changes.into_iter().map(|line| format!("{title}: {line}")));
        eprintln!("{title}: {} changes so far", found.len());
    }
    for entry in fs::read_dir(node.home().join("manifests"))? {
        fs::remove_file(entry?.path())?;
    }
    wait_for(cluster, &statics, &["--for=delete"])?;
    cluster.kubectl(&["delete", "pods", "--all", "--namespace", NAMESPACE, "--timeout=300s"])?;
    ends_with_nothing(cluster, &node)?;
    drop(node);
    Ok(found)
}

/// Writes manifests, and gives the names that their pods have in the API.
fn put_statics(cluster: &Cluster, node: &Node) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for text in STATICS.split("\n---\n") {
        let mut pod: Value = serde_saphyr::from_str(text)?;
        corpus::complete(&mut pod["spec"]);
        let name = pod["metadata"]["name"].as_str().context("a name")?.to_owned();
        pod["metadata"]["namespace"] = NAMESPACE.into();
        // Moved to its place at once: the folder is watched.
        let aside = cluster.dir().join(format!("{name}.json"));
        fs::write(&aside, pod.to_string())?;
        fs::rename(&aside, node.home().join("manifests").join(format!("{name}.json")))?;
        names.push(format!("pod/{name}-{}", node.name()));
    }
    Ok(names)
}

fn wait_for(cluster: &Cluster, pods: &[String], conditions: &[&str]) -> Result<()> {
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    for condition in conditions {
        let mut words = vec!["wait", condition, &timeout, "--namespace", NAMESPACE];
        words.extend(pods.iter().map(String::as_str));
        cluster.kubectl(&words).with_context(|| format!("static pods: {condition}"))?;
    }
    Ok(())
}

/// Until a new pod has come and done its work.
fn spend_a_while(cluster: &Cluster, name: &str) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": crablet_testbed::images::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", WHILE.to_string()],
            }],
        },
    });
    feed(cluster, &["create", "--namespace", NAMESPACE, "-f", "-"], &pod.to_string())?;
    let (pod, timeout) = (format!("pod/{name}"), format!("--timeout={}s", PATIENCE.as_secs()));
    let wait = ["wait", &pod, "--for=jsonpath={.status.phase}=Succeeded", &timeout, "--namespace", NAMESPACE];
    cluster.kubectl(&wait).with_context(|| format!("`{name}` with the other kubelet"))?;
    Ok(())
}

fn has_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

/// It was ready once, and now it is in a crash loop: things happen to it whoever has the node.
fn is_restless(pod: &Value) -> bool {
    let mut containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let ends = containers.any(|container| !container["state"]["running"].is_object());
    !has_ended(pod) && pod["spec"]["restartPolicy"] == "Always" && ends
}

/// Of pods that came meanwhile or are not looked at; and Crablet, which does not know whether somebody has done so, stops
/// the sandboxes of pods that have ended.
fn means_nothing(call: &runtime::Call, before: &BTreeMap<String, Value>) -> bool {
    before.get(&call.pod.0).is_none_or(|pod| has_ended(pod) && call.words == "StopPodSandbox")
}

/// Where a pod is not what it was.
fn changes(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
    to_the_letter: bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for (name, old) in before {
        let Some(new) = after.get(name) else {
            found.push(format!("{name} is gone"));
            continue;
        };
        if old["metadata"]["uid"] != new["metadata"]["uid"] {
            found.push(format!("{name} is another one"));
        }
        let lines = if to_the_letter {
            alike::differences("status", &compared(new), &compared(old))
        } else {
            alike::differences("containers", &lives(new), &lives(old))
        };
        found
            .extend(lines.into_iter().map(|line| format!("{name}: (crablet: now, upstream: before) {line}")));
    }
    found
}

/// The containers that the runtime has, and what became of them. What else is told of them changes when upstream's kubelet
/// starts: it calls those ready that may not be, forgets mounts, and makes up containers of pods that were never let in.
fn lives(pod: &Value) -> Value {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let known = all.filter(|container| container["containerID"].is_string());
    let told = ["name", "containerID", "restartCount", "state", "lastState"];
    known.map(|container| told.iter().map(|field| container[field].clone()).collect::<Value>()).collect()
}

fn compared(pod: &Value) -> Value {
    let mut status = pod["status"].clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    alike::forget_cgroup(&mut status);
    if status["resources"].as_object().is_some_and(serde_json::Map::is_empty) {
        status["resources"].take();
    }
    status
}

/// Folders of pods go after the pods.
fn ends_with_nothing(cluster: &Cluster, node: &Node) -> Result<()> {
    let folder = node.home().join("root/pods");
    let entries = |folder: &Path| fs::read_dir(folder).map(Iterator::count).unwrap_or(0);
    let empty = wait::until(Deadline::after(PATIENCE), || entries(&folder) == 0);
    ensure!(empty, "{} folders of pods are left", entries(&folder));
    let running = || cluster.containerd().ctr(&["tasks", "list", "--quiet"]);
    let ended =
        wait::until(Deadline::after(PATIENCE), || running().is_ok_and(|tasks| tasks.trim().is_empty()));
    ensure!(ended, "these run still: {:?}", running());
    Ok(())
}

//! What one kubelet made of the stories, as far as it is compared:
//!
//! | aspect | what it is |
//! |---|---|
//! | `status POD` | the last status; of a pod that went, the one that it went with |
//! | `phases POD` | one after the other |
//! | `ends POD` | how each container ended each time; equal ends in a row are one |
//! | `runtime POD` | what the runtime was asked to begin and to end, in order |
//! | `failure` | the step that did not come about |
//! | `events` | what a user is told, each thing once |
//! | `diary` | what the containers themselves wrote into the story's room |
//!
//! A pod that comes again by the same name is told apart by a number: `status x`, `status x 2`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::news::Item;
use super::runtime::{self, Call};
use super::tale::Tale;
use crate::alike;

const PROBE_MET_AN_END: &str = "probe errored and resulted in unknown state: rpc error: ";

pub type Aspects = BTreeMap<String, Value>;
/// By story.
pub type Told = BTreeMap<String, Aspects>;

#[derive(Default)]
pub struct Account {
    /// By story: the step that did not come about, and what there was instead.
    pub failures: BTreeMap<String, String>,
    /// What was told until the stories were over, and before everything was deleted.
    pub items: Vec<Item>,
    /// What was told at the end of those that were left then.
    pub farewells: Vec<Value>,
    pub calls: Vec<Call>,
    /// By story.
    pub diaries: BTreeMap<String, String>,
    pub own: Vec<alike::Own>,
}

/// One pod from its creation to its end.
struct Life<'a> {
    /// Name, and number if it is not the first by that name.
    label: String,
    uid: &'a str,
    versions: Vec<&'a Value>,
}

impl Account {
    pub fn of(&self, tale: &Tale) -> Aspects {
        let mut aspects = Aspects::new();
        for life in self.lives(tale) {
            let mut note = |what: &str, value: Value| aspects.insert(format!("{what} {}", life.label), value);
            let last = life.versions.last().map(|pod| pod["status"].clone()).unwrap_or_default();
            note("status", alike::status(last, &self.own));
            note("phases", json!(life.phases()));
            note("ends", self.ends(&life));
            let calls = self.calls.iter().filter(|call| call.pod.1 == life.kubelets_uid());
            note("runtime", json!(runtime::order(calls.map(|call| call.words.as_str()))));
        }
        if let Some(failure) = self.failures.get(&tale.name) {
            aspects.insert("failure".into(), json!(failure));
        }
        aspects.insert("events".into(), json!(self.events(tale)));
        aspects.insert("diary".into(), json!(self.diaries.get(&tale.name)));
        aspects
    }

    fn lives(&self, tale: &Tale) -> Vec<Life<'_>> {
        let mut lives: Vec<Life<'_>> = Vec::new();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for item in &self.items {
            let (Item::Pod(pod) | Item::Gone(pod)) = item else { continue };
            let word = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            let (name, uid) = (word("name"), word("uid"));
            if !tale.has_pod(name) {
                continue;
            }
            if let Some(life) = lives.iter_mut().find(|life| life.uid == uid) {
                life.versions.push(pod);
                continue;
            }
            let count = names.entry(name).or_default();
            *count += 1;
            let label = if *count == 1 { name.to_owned() } else { format!("{name} {count}") };
            lives.push(Life { label, uid, versions: vec![pod] });
        }
        lives
    }

    /// By container.
    fn ends(&self, life: &Life<'_>) -> Value {
        let mut order: BTreeMap<&str, Vec<(&str, Value)>> = BTreeMap::new();
        for pod in &life.versions {
            for one in containers(&pod["status"]) {
                let ends = order.entry(one["name"].as_str().unwrap_or_default()).or_default();
                for end in [&one["lastState"]["terminated"], &one["state"]["terminated"]] {
                    let Some(id) = end["containerID"].as_str() else { continue };
                    let known = ends.iter_mut().find(|(known, _)| *known == id);
                    let end = json!([end["reason"], end["exitCode"], end["signal"], end["message"]]);
                    match known {
                        Some((_, known)) => *known = end,
                        None => ends.push((id, end)),
                    }
                }
            }
        }
        let plain = order.into_iter().map(|(name, ends)| {
            let mut ends: Vec<Value> = ends.into_iter().map(|(_, end)| end).collect();
            ends.iter_mut().for_each(|end| alike::mask::all(end, &self.own));
            ends.dedup();
            (name.to_owned(), Value::Array(ends))
        });
        Value::Object(plain.filter(|(_, ends)| ends != &json!([])).collect())
    }

    fn events(&self, tale: &Tale) -> BTreeSet<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = self.items.iter().filter_map(|item| match item {
            Item::Event(event) => Some(event),
            _ => None,
        });
        let of = told.chain(&self.farewells);
        let of = of.filter(|event| tale.has_pod(&text(&event["involvedObject"]["name"])));
        // What a probe says that meets the end of its container is chance, and so is whether one does.
        let meets_the_end = |event: &Value| {
            event["reason"] == "Unhealthy" && text(&event["message"]).contains(PROBE_MET_AN_END)
        };
        let of = of.filter(|event| !meets_the_end(event));
        of.map(|event| {
            let about = &event["involvedObject"];
            let message = text(&event["message"]);
            let message = message.strip_prefix("(combined from similar events): ").unwrap_or(&message);
            let message = alike::mask::text(message, &self.own);
            let (kind, reason) = (text(&event["type"]), text(&event["reason"]));
            format!("{} {kind} {reason} {}: {message}", text(&about["name"]), text(&about["fieldPath"]))
        })
        .collect()
    }
}

impl Life<'_> {
    /// By which the kubelet and the runtime know it: a mirror stands for a pod with an UID of its own.
    fn kubelets_uid(&self) -> &str {
        let hash = self.versions.first().and_then(|pod| {
            let notes = &pod["metadata"]["annotations"];
            notes["kubernetes.io/config.mirror"].as_str()
        });
        hash.unwrap_or(self.uid)
    }

    fn phases(&self) -> Vec<String> {
        let all = self.versions.iter().filter_map(|pod| pod["status"]["phase"].as_str());
        let mut phases: Vec<String> = all.map(str::to_owned).collect();
        phases.dedup();
        phases
    }
}

pub fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    lists.into_iter().filter_map(|list| status[list].as_array()).flatten()
}

//! How a story is written.
//!
//! A file begins with comments: what it is about. Then:
//!
//! | field | what it is |
//! |---|---|
//! | `pod` | the pod, as in the corpus; it is called as the story is |
//! | `more` | other pods by a short name: the pod `b` of the story `x` is called `x--b` |
//! | `steps` | what happens, one after the other |
//! | `chance` | what is not compared: an aspect of `account.rs`, or a place in it (`status /podIP`), each with its reason |
//!
//! Pods are created at the beginning, unless a step says when. A step is one of these, or else lines for a shell that has
//! the words of `words.sh`, `STORY` for the story's name, `ROOM` for a folder that pods may use, and `MANIFESTS`; each
//! pod is a file in the room, `pod.json` or `b.json`:
//!
//! | step | what it does |
//! |---|---|
//! | `create`, `create b` | creates the pod |
//! | `ready`, `unready`, `phase X`, `gone` | waits until the pod is so |
//! | `C is running`, `C is waiting R`, `C has ended`, `C restarted N` | waits until the container `C` is so |
//! | `told R` | waits until an event with this reason is told |
//! | `b: ...` | waits for another pod; `node: ...` for the mirror of a static one |
//! | `the kubelet goes`, `the kubelet comes back` | twice: it is asked to stop, and it is killed; for all such stories at once |
//!
//! What is waited for has to be seen after the step before. A container that names `/room` has the story's room there;
//! `TELLS x` stands for a script that writes `x begins` and `x stops` into the diary in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use crablet_testbed::images;
use serde_json::{Value, json};

use crate::differential::corpus::complete;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/tales");
pub const NODE: &str = "node";

#[derive(Clone)]
pub struct Tale {
    pub name: String,
    /// By short name; the first has none.
    pub pods: BTreeMap<String, Value>,
    /// Before, during and after the kubelet's absence; or all of it.
    pub parts: Vec<Vec<Step>>,
    pub absence: Absence,
    chance: Vec<String>,
}

/// How the kubelet goes in the middle of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absence {
    None,
    Asked,
    Killed,
}

#[derive(Clone, Debug)]
pub enum Step {
    Create(String),
    Wait { pod: String, until: Until },
    Shell(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    Ready,
    Unready,
    Phase(String),
    Gone,
    Running(String),
    Waiting(String, String),
    Ended(String),
    Restarted(String, u64),
    Told(String),
}

/// All files of the folder, by name.
pub fn read() -> Result<Vec<Tale>> {
    let mut paths: Vec<_> = fs::read_dir(FOLDER)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut tales = Vec::new();
    for path in paths {
        tales.append(&mut Tale::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(tales)
}

impl Tale {
    /// One, or two of which the second begins as the first: the kubelet goes in two ways.
    fn read(path: &Path) -> Result<Vec<Tale>> {
        let text = fs::read_to_string(path)?.replace("BUSYBOX", images::BUSYBOX).replace("WEB", images::WEB);
        let file: Value = serde_saphyr::from_str(&text)?;
        let name = path.file_stem().and_then(|name| name.to_str()).context("a name")?;
        let steps = file["steps"].as_array().context("`steps`")?;
        let steps: Vec<&str> =
            steps.iter().map(|step| step.as_str().context("a step")).collect::<Result<_>>()?;
        let stays = !steps.contains(&"the kubelet goes");
        if stays {
            return Ok(vec![Tale::of(name.to_owned(), Absence::None, &file, &steps)?]);
        }
        let asked = Tale::of(format!("{name}-asked"), Absence::Asked, &file, &steps)?;
        Ok(vec![asked, Tale::of(format!("{name}-killed"), Absence::Killed, &file, &steps)?])
    }

    fn of(name: String, absence: Absence, file: &Value, steps: &[&str]) -> Result<Tale> {
        let mut pods = BTreeMap::new();
        if file["pod"].is_object() {
            pods.insert(String::new(), pod(&name, file["pod"].clone()));
        }
        for (short, one) in file["more"].as_object().into_iter().flatten() {
            pods.insert(short.clone(), pod(&format!("{name}--{short}"), one.clone()));
        }
        let parts = parts(steps, &pods);
        ensure!(
            parts.len() == if absence == Absence::None { 1 } else { 3 },
            "it goes, and comes back, or stays"
        );
        let chance = file["chance"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
        Ok(Tale { name, pods, parts, absence, chance })
    }

    /// Whether what is compared by this name, at this place in it, depends on more than the kubelet.
    pub fn is_chance(&self, aspect: &str, place: &str) -> bool {
        self.chance.iter().any(|chance| {
            let (what, path) = chance.split_once(" /").unwrap_or((chance, ""));
            aspect.starts_with(what) && place.trim_start_matches('/').starts_with(path)
        })
    }

    /// What a pod of this story is called.
    pub fn name_of(&self, short: &str) -> String {
        match short {
            "" => self.name.clone(),
            NODE => format!("{}-{NODE}", self.name),
            _ => format!("{}--{short}", self.name),
        }
    }

    pub fn has_pod(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("--") || rest == format!("-{NODE}"))
    }
}

fn pod(name: &str, pod: Value) -> Value {
    let mut pod = pod;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["namespace"] = super::teller::NAMESPACE.into();
    if pod["spec"].is_null() {
        pod["spec"] = json!({});
    }
    if pod["spec"]["nodeName"].is_null() {
        pod["spec"]["nodeName"] = NODE.into();
    }
    complete(&mut pod["spec"]);
    let spec = &mut pod["spec"];
    for list in ["initContainers", "containers"] {
        spec[list].as_array_mut().into_iter().flatten().for_each(expand);
    }
    if spec["initContainers"].is_null() {
        spec["initContainers"] = json!([]);
    }
    if spec.to_string().contains("/room") {
        add(&mut spec["volumes"], json!({ "name": "room", "hostPath": { "path": "ROOM" } }));
    }
    pod
}

fn expand(container: &mut Value) {
    for word in container["command"].as_array_mut().into_iter().flatten() {
        if let Some(name) = word.as_str().and_then(|word| word.strip_prefix("TELLS ")) {
            *word = format!(
                "trap 'echo {name} stops >> /room/diary; exit 0' TERM; echo {name} begins >> /room/diary; \
                 while true; do sleep 3600 & wait $!; done"
            )
            .into();
        }
    }
    if container.to_string().contains("/room") {
        add(&mut container["volumeMounts"], json!({ "name": "room", "mountPath": "/room" }));
    }
}

fn add(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn parts(steps: &[&str], pods: &BTreeMap<String, Value>) -> Vec<Vec<Step>> {
    let mut part = Vec::new();
    let is_create = |step: &&str| step.split(' ').next() == Some("create") || step.contains("MANIFESTS");
    if !steps.iter().any(is_create) {
        part.extend(pods.keys().cloned().map(Step::Create));
    }
    let mut parts = Vec::new();
    for step in steps {
        match *step {
            "the kubelet goes" | "the kubelet comes back" => parts.push(std::mem::take(&mut part)),
            step => part.push(Step::of(step)),
        }
    }
    parts.push(part);
    parts
}

impl Step {
    fn of(text: &str) -> Step {
        let (pod, rest) = match text.split_once(": ") {
            Some((pod, rest)) if pod.chars().all(|c| c.is_ascii_alphanumeric()) => (pod, rest),
            _ => ("", text),
        };
        let words: Vec<&str> = rest.split(' ').collect();
        let until = match words[..] {
            ["create"] => return Step::Create(String::new()),
            ["create", short] => return Step::Create(short.to_owned()),
            ["ready"] => Until::Ready,
            ["unready"] => Until::Unready,
            ["gone"] => Until::Gone,
            ["phase", phase] => Until::Phase(phase.to_owned()),
            ["told", reason] => Until::Told(reason.to_owned()),
            [container, "is", "running"] => Until::Running(container.to_owned()),
            [container, "is", "waiting", reason] => Until::Waiting(container.to_owned(), reason.to_owned()),
            [container, "has", "ended"] => Until::Ended(container.to_owned()),
            [container, "restarted", times] => match times.parse() {
                Ok(times) => Until::Restarted(container.to_owned(), times),
                Err(_) => return Step::Shell(text.to_owned()),
            },
            _ => return Step::Shell(text.to_owned()),
        };
        Step::Wait { pod: pod.to_owned(), until }
    }
}

impl Until {
    /// Whether a pod is such. `Gone` and `Told` are for others to say.
    pub fn holds(&self, pod: &Value) -> bool {
        let status = &pod["status"];
        let ready = || {
            let all = status["conditions"].as_array().into_iter().flatten();
            all.filter(|one| one["type"] == "Ready").any(|one| one["status"] == "True")
        };
        let container = |name: &str| {
            let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
            let mut all = lists.iter().filter_map(|list| status[*list].as_array()).flatten();
            all.find(|one| one["name"] == name)
        };
        let state = |name: &str| container(name).map_or(&Value::Null, |one| &one["state"]);
        match self {
            Until::Ready => ready(),
            Until::Unready => !ready(),
            Until::Phase(phase) => status["phase"] == **phase,
            Until::Gone | Until::Told(_) => false,
            Until::Running(name) => state(name)["running"].is_object(),
            Until::Waiting(name, reason) => state(name)["waiting"]["reason"] == **reason,
            Until::Ended(name) => state(name)["terminated"].is_object(),
            Until::Restarted(name, times) => {
                let count = container(name).and_then(|one| one["restartCount"].as_u64());
                count.unwrap_or(0) >= *times && state(name)["running"].is_object()
            }
        }
    }
}

//! The pods that both kubelets get.
//!
//! A file begins with comments: what it is about, and after `until:` when its status is the one to compare:
//!
//! | word | the pod |
//! |---|---|
//! | `ready` (also where nothing is said) | is ready |
//! | `running` | has all its containers running, ready or not |
//! | `Succeeded`, `Failed` | has ended so, and its sandbox is gone; what was never let in has no sandbox |
//! | `waiting REASON` | has a container that waits for this reason |
//! | `restarted` | has a container that runs again |
//! | `ephemeral` | has an ephemeral container that runs or has ended |
//! | `event REASON` | has been told so, and stays as it is |
//! | `ONE or ANOTHER` | whichever the machine lets it be |
//!
//! Then `metadata`, if there is any, and `spec`. Containers without an image have a shell's, and those without a command
//! or arguments do nothing until they are told to end. A second document is the list of ephemeral containers that the
//! pod gets once it runs. `SCRATCH` stands for a folder of the run that pods may use, `BUSYBOX` and `WEB` for images.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use crablet_testbed::images;
use serde_json::{Value, json};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential");
const QUIET: &str = "trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done";

pub struct Case {
    pub name: String,
    pub pod: Value,
    pub until: Until,
    pub ephemeral: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    Ready,
    Running,
    Phase(String),
    Waiting(String),
    Restarted,
    Ephemeral,
    Told(String),
    Either(Box<Until>, Box<Until>),
}

/// All files of the folder, by name.
pub fn read() -> Result<Vec<Case>> {
    let mut paths: Vec<_> = fs::read_dir(Path::new(FOLDER).join("pods"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| case(path).with_context(|| path.display().to_string())).collect()
}

/// The objects that pods refer to.
pub fn objects() -> Result<String> {
    Ok(fs::read_to_string(Path::new(FOLDER).join("objects.yaml"))?)
}

fn case(path: &Path) -> Result<Case> {
    let text = fs::read_to_string(path)?.replace("BUSYBOX", images::BUSYBOX).replace("WEB", images::WEB);
    let until = text.lines().find_map(|line| line.strip_prefix("# until: ")).unwrap_or("ready");
    let mut documents = text.split("\n---\n");
    let mut pod: Value = serde_saphyr::from_str(documents.next().unwrap_or_default())?;
    let ephemeral = documents.next().map(serde_saphyr::from_str::<Value>).transpose()?;
    let name = path.file_stem().and_then(|name| name.to_str()).context("a name")?.to_owned();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.clone().into();
    complete(&mut pod["spec"]);
    Ok(Case { name, pod, until: Until::of(until), ephemeral: ephemeral.map(containers_of) })
}

pub fn complete(spec: &mut Value) {
    let defaults = json!({ "automountServiceAccountToken": false, "containers": [{ "name": "main" }] });
    if let Value::Object(defaults) = defaults {
        for (name, value) in defaults {
            if spec.get(&name).is_none() {
                spec[name] = value;
            }
        }
    }
    for list in ["containers", "initContainers"] {
        if let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) {
            containers.iter_mut().for_each(complete_container);
        }
    }
}

fn containers_of(list: Value) -> Value {
    let mut list = list;
    list.as_array_mut().into_iter().flatten().for_each(complete_container);
    list
}

fn complete_container(container: &mut Value) {
    if container.get("image").is_none() {
        container["image"] = images::BUSYBOX.into();
    }
    if container["image"] == images::BUSYBOX
        && container.get("command").is_none()
        && container.get("args").is_none()
    {
        container["command"] = json!(["sh", "-c", QUIET]);
    }
    if container.get("imagePullPolicy").is_none() {
        container["imagePullPolicy"] = "IfNotPresent".into();
    }
}

impl Until {
    fn of(text: &str) -> Until {
        if let Some((one, other)) = text.split_once(" or ") {
            return Until::Either(Box::new(Until::of(one)), Box::new(Until::of(other)));
        }
        match text.split_once(' ') {
            Some(("waiting", reason)) => Until::Waiting(reason.trim().to_owned()),
            Some(("event", reason)) => Until::Told(reason.trim().to_owned()),
            _ => match text.trim() {
                "ready" => Until::Ready,
                "running" => Until::Running,
                "restarted" => Until::Restarted,
                "ephemeral" => Until::Ephemeral,
                phase => Until::Phase(phase.to_owned()),
            },
        }
    }

    /// States that pass by are to be caught; in others a pod stays.
    pub fn passes(&self) -> bool {
        matches!(self, Until::Waiting(_) | Until::Restarted | Until::Either(..))
    }

    /// Whether a pod of this status, that was told these events, is where its case wants it.
    pub fn holds(&self, status: &Value, events: &[&Value]) -> bool {
        let condition = |kind: &str| {
            let all = status["conditions"].as_array().into_iter().flatten();
            all.filter(|one| one["type"] == kind).any(|one| one["status"] == "True")
        };
        let list = |name: &str| status[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let regular = list("containerStatuses");
        let ephemeral = list("ephemeralContainerStatuses");
        let mut all = list("initContainerStatuses").iter().chain(regular).chain(ephemeral);
        match self {
            Until::Ready => condition("Ready"),
            Until::Running => {
                !regular.is_empty() && regular.iter().all(|one| one["state"]["running"].is_object())
            }
            Until::Phase(phase) => status["phase"] == *phase && !condition("PodReadyToStartContainers"),
            Until::Waiting(reason) => all.any(|one| one["state"]["waiting"]["reason"] == *reason),
            Until::Restarted => all.any(|one| {
                one["restartCount"].as_u64().unwrap_or(0) > 0 && one["state"]["running"].is_object()
            }),
            Until::Told(reason) => events.iter().any(|event| event["reason"] == **reason),
            Until::Either(one, other) => one.holds(status, events) || other.holds(status, events),
            Until::Ephemeral => ephemeral.iter().any(|one| {
                let state = &one["state"];
                state["running"].is_object() || state["terminated"].is_object()
            }),
        }
    }
}

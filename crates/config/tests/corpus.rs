//! The same command lines and files, given to upstream's kubelet v1.36.4 and to Crablet: the same effective configuration,
//! and the same refusals. `corpus/README.md` says how the answers of upstream were recorded, and where we differ.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crablet_config::{Command, Settings};
use serde_json::{Value, json};
use support::Tree;

const FOLDER: &str = "/corpus";

/// What the recording needs beside the case itself: see the README.
const ALWAYS: &str = "--kubeconfig=$DIR/kubeconfig --fail-cgroupv1=false";
const ACCEPTED: &str = "--cgroups-per-qos=false --enforce-node-allocatable=";

/// Cases in which Crablet answers differently on purpose.
const ACCEPTED_HERE: &[(&str, &str)] = &[
    ("refused-validation-run-once", "Crablet has the run-once mode that upstream removed"),
    ("late-provider-plugin", "credential providers are not started yet, so that nobody misses their folder"),
    ("late-reserved-cpus", "which CPUs exist is asked when they are used"),
];
const REFUSED_HERE: &[(&str, &str)] = &[
    ("late-hostname", "the names of static pods end in the node's name, so it must be a DNS subdomain"),
    ("late-manifest-url", "an address that can never be fetched is a mistake"),
];

struct Case {
    name: String,
    args: String,
    files: Tree,
    upstream: Result<Value, String>,
}

fn cases() -> Vec<Case> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus"));
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus")
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".case").map(str::to_owned))
        .collect();
    names.sort();
    names.into_iter().map(|name| case(&folder, name)).collect()
}

fn case(folder: &std::path::Path, name: String) -> Case {
    let read = |ending: &str| std::fs::read_to_string(folder.join(format!("{name}.{ending}")));
    let text = read("case").expect("a case");
    let mut args = String::new();
    let mut files: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    let mut current = None;
    for line in text.split('\n') {
        if let Some(path) = line.strip_prefix("--- ") {
            let path = PathBuf::from(FOLDER).join(path);
            files.insert(path.clone(), Vec::new());
            current = Some(path);
        } else if let Some(lines) = current.as_ref().and_then(|path| files.get_mut(path)) {
            lines.push(line);
        } else if let Some(typed) = line.strip_prefix("args: ") {
            args = typed.to_owned();
        }
    }
    let files = files.into_iter().map(|(path, lines)| (path, lines.join("\n").into_bytes())).collect();
    let upstream = match read("json") {
        Ok(json) => Ok(serde_json::from_str(&json).expect("json")),
        Err(_) => Err(read("refused").unwrap_or_else(|_| panic!("{name} was not recorded"))),
    };
    Case { name, args, files: Tree(files), upstream }
}

impl Case {
    fn run(&self) -> Result<Settings, String> {
        let extra = if self.name.starts_with("refused-") { "" } else { ACCEPTED };
        let args = format!("{ALWAYS} {extra} {}", self.args).replace("$DIR", FOLDER);
        match support::parse(&args, &self.files) {
            Ok(Command::Run(settings)) => Ok(*settings),
            Ok(other) => panic!("{}: {other:?}", self.name),
            Err(error) => Err(error.to_string()),
        }
    }

    fn says(&self, name: &str) -> bool {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(name);
        self.args.contains(name) || self.files.0.values().any(text)
    }

    /// Upstream's answer, changed where Crablet's defaults differ on purpose.
    fn expected(&self, mut json: Value) -> Value {
        if !self.args.contains("--config=") {
            // Upstream's insecure defaults without a config file.
            json["authentication"]["anonymous"]["enabled"] = json!(false);
            json["authentication"]["webhook"]["enabled"] = json!(true);
            json["authorization"]["mode"] = json!("Webhook");
            json.as_object_mut().expect("an object").remove("readOnlyPort");
        }
        let pulls = ["serializeImagePulls", "serialize-image-pulls", "maxParallelImagePulls"];
        if !pulls.iter().any(|name| self.says(name)) {
            json["serializeImagePulls"] = json!(false);
            json["maxParallelImagePulls"] = json!(5);
        }
        if self.name == "file-logging" {
            // Upstream never looks at the file's splitStream.
            json["logging"]["options"]["json"]["splitStream"] = json!(true);
        }
        json
    }
}

#[test]
fn the_effective_configuration_is_upstreams() {
    let mut wrong = Vec::new();
    let mut right = 0;
    for case in cases() {
        let Ok(upstream) = case.upstream.clone() else { continue };
        let excused = REFUSED_HERE.iter().any(|(name, _)| *name == case.name);
        match case.run() {
            Ok(_) if excused => wrong.push(format!("{} is accepted after all", case.name)),
            Ok(settings) => {
                let text = settings.configz.replace(FOLDER, "$DIR");
                let found: Value = serde_json::from_str(&text).expect("json");
                let differences = differences("", &case.expected(upstream), &found);
                right += usize::from(differences.is_empty());
                wrong.extend(differences.iter().map(|difference| format!("{}: {difference}", case.name)));
            }
            Err(_) if excused => right += 1,
            Err(error) => wrong.push(format!("{} is refused: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(right >= 40, "only {right} cases");
}

fn differences(path: &str, expected: &Value, found: &Value) -> Vec<String> {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            names
                .into_iter()
                .flat_map(|name| {
                    let part =
                        |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                    differences(&format!("{path}.{name}"), &part(a), &part(b))
                })
                .collect()
        }
        _ if expected == found => Vec::new(),
        _ => vec![format!("{path} is {found}, upstream has {expected}")],
    }
}

#[test]
fn what_upstream_refuses_is_refused() {
    let mut wrong = Vec::new();
    for case in cases() {
        let Err(upstream) = &case.upstream else { continue };
        let excused = ACCEPTED_HERE.iter().any(|(name, _)| *name == case.name);
        match case.run() {
            Ok(_) if excused => (),
            Ok(_) => wrong.push(format!("{} is accepted; upstream: {upstream}", case.name)),
            Err(error) if excused => wrong.push(format!("{} is refused after all: {error}", case.name)),
            Err(error) => wrong.extend(missing_words(&case.name, upstream, &error)),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Upstream's sentences of validation, each of which must be in our answer too; people and tools search for them.
fn missing_words(name: &str, upstream: &str, error: &str) -> Vec<String> {
    let Some((_, list)) = upstream.split_once("failed to validate kubelet configuration, error: ") else {
        return Vec::new();
    };
    let list = list.trim().trim_start_matches('[').trim_end_matches(']');
    list.replace(", invalid ", "\ninvalid ")
        .lines()
        // These end in Go's own words, or are two rules that are one here.
        .filter(|line| {
            !["unable to parse", "invalid taint: ", "cgroup v1"].iter().any(|odd| line.contains(odd))
        })
        .flat_map(|line| line.split(", tracing.").map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !error.contains(line.trim()))
        .map(|line| format!("{name}: not said: {line}"))
        .collect()
}

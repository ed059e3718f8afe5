//! Puts the configuration together: defaults, the file behind `--config`, the drop-ins of `--config-dir`, flags. Each
//! later one wins.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;

use crate::decode::{self, Decoded, Names};
use crate::error::{Problem, UsageError};
use crate::flags::Said;
use crate::gates::Gates;
use crate::merge::merge_patch;
use crate::schema::{self, Kind};
use crate::tree::{API_VERSION, KIND, Origin, Tree};
use crate::yaml::{self, Node};
use crate::{Files, defaults, go};

const GATES: &str = "featureGates";

/// The effective configuration, not yet validated.
pub struct Loaded {
    pub tree: Tree,
    pub gates: Gates,
    pub warnings: Vec<String>,
    pub config_file: Option<PathBuf>,
    pub config_dir: Option<PathBuf>,
}

/// Do fields that nobody knows stop the agent?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// As upstream: a warning.
    Lenient,
    /// For `config check`.
    Strict,
}

pub fn load(said: &Said, files: &impl Files, strictness: Strictness) -> Result<Loaded, UsageError> {
    let mut flags = Tree::default();
    said.apply(&mut flags)?;
    let (flag_gates, _) = Gates::resolve(&flags.bools(GATES))?;

    let mut warnings: Vec<String> = said.deprecations().collect();
    let path_of = |flag: &str| {
        said.last(flag).filter(|path| !path.is_empty()).map(|path| files.absolute(Path::new(path)))
    };
    let (config_file, config_dir) = (path_of("config"), path_of("config-dir"));
    let mut tree = match &config_file {
        Some(path) => file(path, files, &flags, strictness, &mut warnings)?,
        None => {
            let mut tree = Tree::default();
            defaults::apply(&mut tree, &flag_gates);
            tree
        }
    };
    if let Some(folder) = &config_dir {
        tree = drop_ins(&tree, folder, files, &flags)?;
    }
    defaults::apply_flags(&mut tree);
    let said_by_file = tree.get(GATES).cloned();
    said.apply(&mut tree)?;
    join_gates(&mut tree, said_by_file);
    let (gates, more) = Gates::resolve(&tree.bools(GATES))?;
    warnings.extend(more);
    forget_split_streams(&mut tree, &gates, &mut warnings);
    for key in ["--root-dir", "--cert-dir", "--container-logs-dir"] {
        let path = tree.text(key);
        if !path.is_empty() {
            let clean = go::clean_path(&files.absolute(Path::new(path)).to_string_lossy());
            let origin = tree.origin(key);
            tree.set(key, clean.into(), origin);
        }
    }
    defaults::settle(&mut tree);
    Ok(Loaded { tree, gates, warnings, config_file, config_dir })
}

/// Gates that only the file named are put back: the flag adds to them.
fn join_gates(tree: &mut Tree, said_by_file: Option<Value>) {
    let origin = tree.origin(GATES);
    if origin != Origin::Flag {
        return;
    }
    let (Some(Value::Object(mut all)), Some(Value::Object(by_flag))) =
        (said_by_file, tree.get(GATES).cloned())
    else {
        return;
    };
    all.extend(by_flag);
    tree.set(GATES, all.into(), origin);
}

/// Upstream never looks at the file's `splitStream`, whether its gate is on or off. Here it holds when the gate is on.
fn forget_split_streams(tree: &mut Tree, gates: &Gates, warnings: &mut Vec<String>) {
    for key in ["logging.options.text.splitStream", "logging.options.json.splitStream"] {
        let from_file = matches!(tree.origin(key), Origin::File(..));
        if tree.is(key) && from_file && !gates.enabled("LoggingAlphaOptions") {
            tree.unset(key);
            warnings.push(format!("{key} has no effect without the feature gate LoggingAlphaOptions"));
        }
    }
}

/// The decoded file with its defaults.
fn file(
    path: &Path,
    files: &impl Files,
    flags: &Tree,
    strictness: Strictness,
    warnings: &mut Vec<String>,
) -> Result<Tree, UsageError> {
    let name = path.display().to_string();
    let root = read(path, files)?;
    let mut decoded = decode::decode(&root, Names::Exact);
    refuse(&name, &decoded.fatal)?;
    let mut forgiven = std::mem::take(&mut decoded.unknown);
    forgiven.append(&mut decoded.duplicated);
    if !forgiven.is_empty() {
        if strictness == Strictness::Strict {
            forgiven.sort_by_key(|fault| fault.line);
            refuse(&name, &forgiven)?;
        }
        let what: Vec<_> =
            forgiven.iter().map(|fault| format!("line {}: {}", fault.line, fault.message)).collect();
        warnings.push(format!(
            "Using lenient decoding as strict decoding failed: {name}: strict decoding error: {}",
            what.join(", ")
        ));
    }
    let mut tree = Tree::default();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let origin: Rc<str> = name.into();
    for (field, setting, value, line) in decoded.values {
        let value = if setting.kind == Kind::Path { below(folder, value) } else { value };
        tree.set(field, value, Origin::File(origin.clone(), line));
    }
    let gates = gates_of(&tree, flags)?;
    defaults::apply(&mut tree, &gates);
    defaults::apply_eviction(&mut tree);
    Ok(tree)
}

fn refuse(name: &str, faults: &[decode::Fault]) -> Result<(), UsageError> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(faults.iter().map(|fault| fault.problem(name)).collect::<Vec<_>>().into())
}

/// The gates that hold while defaults are filled in.
fn gates_of(tree: &Tree, flags: &Tree) -> Result<Gates, UsageError> {
    let mut said = tree.bools(GATES);
    said.extend(flags.bools(GATES));
    Ok(Gates::resolve(&said)?.0)
}

/// A relative path starts at the folder; an empty one stays.
fn below(folder: &Path, value: Value) -> Value {
    match value.as_str() {
        Some(path) if !path.is_empty() && !path.starts_with('/') => {
            go::clean_path(&folder.join(path).to_string_lossy()).into()
        }
        _ => value,
    }
}

/// Reads one file, checked to be a KubeletConfiguration.
fn read(path: &Path, files: &impl Files) -> Result<Node, UsageError> {
    let name = path.display();
    let bytes = files.read(path).map_err(|error| {
        Problem::new(format!("failed to read kubelet config file {name:?}: {error}", name = name.to_string()))
    })?;
    let text = String::from_utf8(bytes).map_err(|_| Problem::new(format!("{name} is not valid UTF-8")))?;
    if text.is_empty() {
        return Err(Problem::new(format!("kubelet config file \"{name}\" was empty")).hint(start()).into());
    }
    let root = yaml::parse(text.trim_start_matches('\u{feff}'))
        .map_err(|error| Problem::new(format!("{name}:{}: {}", error.line, error.message)))?;
    check_kind(&root)
        .map_err(|problem| Problem { message: format!("{name}: {}", problem.message), ..problem })?;
    Ok(root)
}

fn start() -> String {
    format!("start the file with `apiVersion: {API_VERSION}` and `kind: {KIND}`")
}

fn check_kind(root: &Node) -> Result<(), Problem> {
    let text = |name: &str| root.get(name).and_then(Node::as_text).unwrap_or_default();
    if !matches!(root.data, yaml::Data::Map(_) | yaml::Data::Null) {
        return Err(Problem::new(format!("it holds {}, not a {KIND}", root.data.kind())).hint(start()));
    }
    match (text("apiVersion"), text("kind")) {
        (API_VERSION, KIND) => Ok(()),
        (_, "") => Err(Problem::new("Object 'Kind' is missing").hint(start())),
        ("", _) => Err(Problem::new("Object 'apiVersion' is missing").hint(start())),
        (version, kind) => {
            Err(Problem::new(format!("no kind {kind:?} is registered for version {version:?}"))
                .hint(format!("it must be a `{KIND}` of `{API_VERSION}`")))
        }
    }
}

/// What the drop-ins make of a configuration. Relative paths in them are left alone, and fields that nobody knows are
/// ignored, as upstream does it.
fn drop_ins(base: &Tree, folder: &Path, files: &impl Files, flags: &Tree) -> Result<Tree, UsageError> {
    let mut found = Vec::new();
    walk(folder, files, 0, &mut found)?;
    let mut json = base.to_json();
    let mut drop_ins: Vec<(Rc<str>, Decoded)> = Vec::new();
    for path in found {
        let root = read(&path, files)?;
        let name = path.display().to_string();
        let decoded = decode::decode(&root, Names::AnyCase);
        refuse(&name, &decoded.duplicated)?;
        merge_patch(&mut json, root.to_json());
        drop_ins.push((name.into(), decoded));
    }
    let merged = decode::decode(&Node::from_json(&json), Names::AnyCase);
    if !merged.fatal.is_empty() {
        for (name, decoded) in &drop_ins {
            refuse(name, &decoded.fatal)?;
        }
        refuse(&folder.display().to_string(), &merged.fatal)?;
    }
    let mut tree = Tree::default();
    for (field, _, value, _) in merged.values {
        let said = drop_ins.iter().rev().find_map(|(name, decoded)| {
            let (.., line) = decoded.values.iter().find(|(known, ..)| *known == field)?;
            Some(Origin::File(name.clone(), *line))
        });
        tree.set(field, value, said.unwrap_or_else(|| base.origin(field)));
    }
    let gates = gates_of(&tree, flags)?;
    defaults::apply(&mut tree, &gates);
    Ok(tree)
}

/// No folder of drop-ins is deeper or larger.
const MAX_DEPTH: usize = 32;
const MAX_FILES: usize = 10_000;

/// Every `*.conf`, in the order of the names in each folder.
fn walk(folder: &Path, files: &impl Files, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), UsageError> {
    let fail = |why: String| {
        Problem::new(format!(
            "failed to walk through kubelet dropin directory {:?}: {why}",
            folder.display().to_string()
        ))
        .hint("give a folder that can be read, or leave --config-dir out")
    };
    if depth > MAX_DEPTH {
        return Err(fail("it is nested too deeply".to_owned()).into());
    }
    let mut entries = files.list(folder).map_err(|error| fail(error.to_string()))?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let path = folder.join(&entry.name);
        if entry.is_folder {
            walk(&path, files, depth + 1, found)?;
        } else if entry.name.as_encoded_bytes().ends_with(b".conf") {
            if found.len() >= MAX_FILES {
                return Err(fail("it has too many files".to_owned()).into());
            }
            found.push(path);
        }
    }
    Ok(())
}

/// Settings that were set to something else than their default and have no effect in this version.
pub fn not_yet(tree: &Tree) -> Vec<String> {
    let mut defaults = Tree::default();
    defaults::apply(&mut defaults, &Gates::default());
    defaults::apply_flags(&mut defaults);
    schema::settings()
        .filter(|setting| setting.effect == schema::Effect::Later)
        .filter_map(|setting| {
            let key = setting.key();
            let entry = tree.entry(&key)?;
            let changed = entry.origin != Origin::Default && !same(defaults.get(&key), &entry.value);
            changed.then(|| match (&entry.origin, setting.flag) {
                (Origin::Flag, Some(flag)) => format!("--{flag}"),
                _ => key,
            })
        })
        .collect()
}

/// Nothing, "" and an empty list are the same here.
fn same(default: Option<&Value>, value: &Value) -> bool {
    let empty = match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    default.map_or(empty, |default| default == value)
}

//! What the architecture promises and a machine can check: who may depend on whom, and what may not be in the tree.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::sources;
use crate::workspace;

/// The layers, top first. A crate may use what is below it; neighbours may not use each other, except at the bottom,
/// where the vocabulary is.
const LAYERS: &[&[&str]] = &[
    &["crablet"],
    &["crablet-server"],
    &[
        "crablet-pods",
        "crablet-volumes",
        "crablet-resources",
        "crablet-node",
        "crablet-certificates",
        "crablet-stats",
        "crablet-plugins",
    ],
    &["crablet-apiclient"],
    &["crablet-cri", "crablet-host", "crablet-apiserver"],
    &["crablet-planner"],
    &["crablet-config", "crablet-model", "crablet-protos"],
];
/// Developer tools: nothing that ships may depend on them.
const TOOLS: &[&str] = &["crablet-proxy", "crablet-testbed", "xtask"];
/// The planner decides from its inputs alone, so nothing that waits, reads or asks the system may be in reach.
const NOT_IN_PLANNER: &[&str] = &["tokio", "rustix", "libc", "mio", "async-std"];
/// TLS is rustls with ring.
const NOT_IN_TREE: &[&str] = &["aws-lc-sys", "openssl-sys", "native-tls"];

pub fn check() -> Result<()> {
    let graph = Graph::read(&workspace::metadata()?)?;
    let mut problems = graph.layer_problems();
    problems.extend(graph.tree_problems());
    problems.extend(sources::problems(&workspace::root())?);
    if !problems.is_empty() {
        bail!("{} broken:\n  {}", problems.len(), problems.join("\n  "));
    }
    Ok(())
}

/// The resolved graph of normal dependencies; those of tests and build scripts do not ship.
struct Graph {
    names: BTreeMap<String, String>,
    uses: BTreeMap<String, Vec<String>>,
    members: Vec<String>,
}

impl Graph {
    fn read(metadata: &Value) -> Result<Graph> {
        let text =
            |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata changed its shape");
        let list = |value: &Value| value.as_array().cloned().context("cargo metadata changed its shape");
        let mut names = BTreeMap::new();
        for package in list(&metadata["packages"])? {
            names.insert(text(&package["id"])?, text(&package["name"])?);
        }
        let mut uses = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"])? {
            let mut targets = Vec::new();
            for dependency in list(&node["deps"])? {
                if list(&dependency["dep_kinds"])?.iter().any(|kind| kind["kind"].is_null()) {
                    targets.push(text(&dependency["pkg"])?);
                }
            }
            uses.insert(text(&node["id"])?, targets);
        }
        let members = list(&metadata["workspace_members"])?.iter().map(text).collect::<Result<_>>()?;
        Ok(Graph { names, uses, members })
    }

    fn name(&self, id: &str) -> &str {
        self.names.get(id).map_or("", String::as_str)
    }

    fn layer_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for member in &self.members {
            let from = self.name(member);
            let targets = self.uses.get(member).into_iter().flatten().filter(|id| self.members.contains(id));
            for to in targets.map(|id| self.name(id)) {
                problems.extend(layer_problem(from, to));
            }
        }
        problems
    }

    fn tree_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let everywhere: BTreeSet<&str> =
            self.members.iter().flat_map(|member| self.reachable(member)).collect();
        for name in NOT_IN_TREE.iter().filter(|name| everywhere.contains(**name)) {
            problems.push(format!("`{name}` is in the dependency tree"));
        }
        if let Some(planner) = self.members.iter().find(|id| self.name(id) == "crablet-planner") {
            let reachable = self.reachable(planner);
            for name in NOT_IN_PLANNER.iter().filter(|name| reachable.contains(**name)) {
                problems.push(format!("the planner can reach `{name}`: it must stay pure"));
            }
        }
        problems
    }

    /// The names of all that a package uses, directly or not.
    fn reachable(&self, from: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(self.uses.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        seen.into_iter().map(|id| self.name(id)).collect()
    }
}

fn layer_problem(from: &str, to: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    if TOOLS.contains(&from) {
        return None;
    }
    if TOOLS.contains(&to) {
        return Some(format!("`{from}` uses `{to}`, which is for developers only"));
    }
    match (layer(from), layer(to)) {
        (None, _) => Some(format!("`{from}` has no layer: give it one in `xtask/src/test/invariants.rs`")),
        (_, None) => Some(format!("`{to}` has no layer: give it one in `xtask/src/test/invariants.rs`")),
        (Some(upper), Some(lower)) if upper < lower || (upper == lower && upper == LAYERS.len() - 1) => None,
        _ => Some(format!("`{from}` uses `{to}`: dependencies point down the layers only")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dependencies_point_down() {
        assert_eq!(layer_problem("crablet", "crablet-model"), None);
        assert_eq!(layer_problem("crablet-config", "crablet-model"), None);
        assert_eq!(layer_problem("xtask", "crablet-testbed"), None);
        assert!(layer_problem("crablet-cri", "crablet-host").is_some());
        assert!(layer_problem("crablet-planner", "crablet-pods").is_some());
        assert!(layer_problem("crablet", "crablet-testbed").is_some());
        assert!(layer_problem("crablet-new", "crablet-model").is_some());
    }

    #[test]
    fn an_impure_planner_is_found_through_others_but_tests_may_do_as_they_like() {
        let node = |id: &str, deps: &[(&str, Value)]| {
            let dep = |(pkg, kind): &(&str, Value)| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
            json!({ "id": id, "deps": deps.iter().map(dep).collect::<Vec<_>>() })
        };
        let package = |id: &str, name: &str| json!({ "id": id, "name": name });
        let metadata = json!({
            "packages": [package("p", "crablet-planner"), package("j", "jiff"), package("l", "libc"), package("t", "tokio")],
            "workspace_members": ["p"],
            "resolve": { "nodes": [
                node("p", &[("j", Value::Null), ("t", json!("dev"))]),
                node("j", &[("l", Value::Null)]),
                node("l", &[]),
                node("t", &[]),
            ] },
        });
        let problems = Graph::read(&metadata).unwrap().tree_problems();
        assert_eq!(problems, ["the planner can reach `libc`: it must stay pure"]);
    }
}

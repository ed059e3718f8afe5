//! The kind of machine that a result was got on: what someone must know to compare it with theirs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use crablet_testbed::process::output_of;
use crablet_testbed::{Containerd, kube};
use serde_json::{Map, Value};

/// Names and values, for a file and for a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(pub BTreeMap<String, String>);

impl Facts {
    pub fn of(containerd: &Containerd) -> Facts {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let version_2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let cores = available_parallelism().map_or(0, usize::from);
        let said = output_of(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default();
        let facts = [
            ("date", said.trim().to_owned()),
            ("kernel", file("/proc/sys/kernel/osrelease")),
            ("cgroups", if version_2 { "v2" } else { "v1" }.to_owned()),
            ("cores", cores.to_string()),
            ("containerd", server_version(&containerd.ctr(&["version"]).unwrap_or_default())),
            ("kubernetes", kube::VERSION.to_owned()),
        ];
        Facts(facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("?", String::as_str)
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Facts {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    pub fn to_json(&self) -> Value {
        Value::Object(
            self.0.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect::<Map<_, _>>(),
        )
    }

    pub fn from_json(value: &Value) -> Facts {
        let texts = value.as_object().into_iter().flatten();
        Facts(texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
    }
}

/// `ctr version` tells the client's first, then the server's.
fn server_version(said: &str) -> String {
    let mut versions = said.lines().filter_map(|line| line.trim().strip_prefix("Version:"));
    let last = versions.next_back().unwrap_or("?").trim().trim_start_matches('v');
    // The pinned one adds where it was built, Debian's how it was packed.
    last.split(['+', '~']).next().unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_version_is_read() {
        let said = "Client:\n  Version:  1.6.20~ds1\n  Revision: x\n\nServer:\n  Version:  v2.3.7+unknown\n  UUID: y\n";
        assert_eq!(server_version(said), "2.3.7");
        assert_eq!(server_version(""), "?");
    }

    #[test]
    fn facts_survive_a_file() {
        let facts = Facts::default().with("cores", 2).with("kernel", "6.18");
        assert_eq!(Facts::from_json(&facts.to_json()), facts);
        assert_eq!((facts.get("cores"), facts.get("date")), ("2", "?"));
    }
}

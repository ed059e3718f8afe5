//! The last results of both kubelets, side by side: one line for each spec, sorted, so that a change is a line in a
//! diff. There are two sets of such files: the one of this checkout's own runs, in the target folder, and the kept one
//! in `docs/conformance`, which `--report` brings up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crablet_testbed::suites::report::{Report, State};
use serde_json::{Map, Value};

use super::facts::Facts;
use super::options::Options;
use super::progress::told;
use crate::cluster::Which;

const HEADING: &str = "spec\tupstream\tcrablet";
const RUNS: &str = "runs.json";

/// How one spec ended with one kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub state: State,
    /// Why it skipped itself.
    pub why: String,
}

/// One spec with both kubelets, as far as it ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    pub upstream: Option<Outcome>,
    pub crablet: Option<Outcome>,
}

/// All specs of a suite on one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table(pub BTreeMap<String, Row>);

/// Everything that is known: tables by `<suite>-<runtime>`, facts by `<suite>-<runtime>-<kubelet>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    pub tables: BTreeMap<String, Table>,
    pub runs: BTreeMap<String, Facts>,
}

impl Row {
    pub fn of(&self, which: Which) -> Option<&Outcome> {
        match which {
            Which::Upstream => self.upstream.as_ref(),
            Which::Crablet => self.crablet.as_ref(),
        }
    }

    fn of_mut(&mut self, which: Which) -> &mut Option<Outcome> {
        match which {
            Which::Upstream => &mut self.upstream,
            Which::Crablet => &mut self.crablet,
        }
    }

    pub fn has(&self, which: Which, state: State) -> bool {
        self.of(which).is_some_and(|outcome| outcome.state == state)
    }
}

impl Table {
    /// Takes a run's specs over; the others stay as they were.
    pub fn take(&mut self, which: Which, report: &Report) {
        for spec in &report.specs {
            let why = if spec.state == State::Skipped { one_line(&spec.message) } else { String::new() };
            *self.0.entry(spec.name.clone()).or_default().of_mut(which) =
                Some(Outcome { state: spec.state, why });
        }
    }

    /// The other's results where it has some.
    fn overlay(&mut self, other: Table) {
        for (name, row) in other.0 {
            let mine = self.0.entry(name).or_default();
            mine.upstream = row.upstream.or(mine.upstream.take());
            mine.crablet = row.crablet.or(mine.crablet.take());
        }
    }

    pub fn count(&self, which: Which, state: State) -> usize {
        self.0.values().filter(|row| row.has(which, state)).count()
    }

    pub fn ran(&self, which: Which) -> bool {
        self.0.values().any(|row| row.of(which).is_some())
    }

    /// Upstream passes, Crablet fails: what is to be done.
    pub fn ours_to_mend(&self) -> Vec<&str> {
        let to_mend =
            |row: &Row| row.has(Which::Upstream, State::Passed) && row.has(Which::Crablet, State::Failed);
        self.0.iter().filter(|(_, row)| to_mend(row)).map(|(name, _)| name.as_str()).collect()
    }

    fn to_text(&self) -> String {
        let cell = |outcome: &Option<Outcome>| match outcome {
            None => "-".to_owned(),
            Some(Outcome { state, why }) if why.is_empty() => told(*state).to_owned(),
            Some(Outcome { state, why }) => format!("{}: {why}", told(*state)),
        };
        let line =
            |(name, row): (&String, &Row)| format!("{name}\t{}\t{}", cell(&row.upstream), cell(&row.crablet));
        let lines = std::iter::once(HEADING.to_owned()).chain(self.0.iter().map(line));
        lines.map(|line| line + "\n").collect()
    }

    fn from_text(text: &str) -> Table {
        let cell = |text: &str| {
            let (state, why) = text.split_once(": ").unwrap_or((text, ""));
            let state = [State::Passed, State::Failed, State::Skipped]
                .into_iter()
                .find(|known| told(*known) == state)?;
            Some(Outcome { state, why: why.to_owned() })
        };
        let row = |line: &str| {
            let mut cells = line.split('\t');
            let name = cells.next()?.to_owned();
            Some((name, Row { upstream: cell(cells.next()?), crablet: cell(cells.next()?) }))
        };
        Table(text.lines().skip(1).filter_map(row).collect())
    }
}

impl Results {
    /// What lies in a folder; nothing when there is none.
    pub fn read(folder: &Path) -> Results {
        let mut results = Results::default();
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if let (Some("tsv"), Some(stem)) = (extension(&path), path.file_stem()) {
                let table = Table::from_text(&fs::read_to_string(&path).unwrap_or_default());
                results.tables.insert(stem.to_string_lossy().into_owned(), table);
            }
        }
        let runs = fs::read(folder.join(RUNS)).unwrap_or_default();
        let runs: Map<String, Value> = serde_json::from_slice(&runs).unwrap_or_default();
        results.runs = runs.iter().map(|(name, facts)| (name.clone(), Facts::from_json(facts))).collect();
        results
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (name, table) in &self.tables {
            put(&folder.join(format!("{name}.tsv")), &table.to_text())?;
        }
        let runs: Map<String, Value> =
            self.runs.iter().map(|(name, facts)| (name.clone(), facts.to_json())).collect();
        put(&folder.join(RUNS), &format!("{:#}\n", Value::Object(runs)))
    }

    /// Notes a run that is over.
    pub fn take(&mut self, options: &Options, report: &Report, facts: Facts) {
        self.tables.entry(table_name(options)).or_default().take(options.which, report);
        // A look at a few specs does not make the machine of all the others another one.
        if options.whole || !self.runs.contains_key(&options.name()) {
            self.runs.insert(options.name(), facts);
        }
    }

    /// These results, and over them those of the other set.
    pub fn overlaid(mut self, other: Results) -> Results {
        for (name, table) in other.tables {
            self.tables.entry(name).or_default().overlay(table);
        }
        self.runs.extend(other.runs);
        self
    }
}

pub fn table_name(options: &Options) -> String {
    format!("{}-{}", options.suite.name(), options.flavor.name())
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// Whole or not at all: a run may be killed at any moment.
fn put(path: &Path, text: &str) -> Result<()> {
    let unfinished: PathBuf = path.with_extension("unfinished");
    fs::write(&unfinished, text).with_context(|| format!("cannot write `{}`", unfinished.display()))?;
    fs::rename(&unfinished, path).with_context(|| format!("cannot write `{}`", path.display()))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use crablet_testbed::suites::report::Spec;

    use super::*;

    fn report(specs: &[(&str, State)]) -> Report {
        let spec = |(name, state): &(&str, State)| Spec {
            name: name.to_string(),
            state: *state,
            seconds: 1,
            message: "no\n swap".into(),
            output: String::new(),
        };
        Report { specs: specs.iter().map(spec).collect(), ..Report::default() }
    }

    #[test]
    fn a_run_changes_only_the_specs_that_ran() {
        let mut table = Table::default();
        table.take(
            Which::Upstream,
            &report(&[("a", State::Passed), ("b", State::Passed), ("c", State::Skipped)]),
        );
        table.take(Which::Crablet, &report(&[("a", State::Failed), ("b", State::Failed)]));
        assert_eq!(table.ours_to_mend(), ["a", "b"]);
        table.take(Which::Crablet, &report(&[("b", State::Passed)]));
        assert_eq!(table.ours_to_mend(), ["a"]);
        assert_eq!(
            table.to_text(),
            format!("{HEADING}\na\tpassed\tfailed\nb\tpassed\tpassed\nc\tskipped: no swap\t-\n")
        );
        assert_eq!(Table::from_text(&table.to_text()), table);
    }

    #[test]
    fn own_results_lie_over_the_kept_ones() {
        let mut kept = Table::default();
        kept.take(Which::Upstream, &report(&[("a", State::Passed), ("b", State::Passed)]));
        let mut own = Table::default();
        own.take(Which::Crablet, &report(&[("a", State::Failed)]));
        own.take(Which::Upstream, &report(&[("b", State::Failed)]));
        let set =
            |table| Results { tables: [("shared-pinned".to_owned(), table)].into(), ..Results::default() };
        let all = set(kept).overlaid(set(own));
        assert_eq!(
            all.tables["shared-pinned"].to_text(),
            format!("{HEADING}\na\tpassed\tfailed\nb\tfailed\t-\n")
        );
    }
}

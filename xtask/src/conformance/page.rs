//! `docs/conformance.md`: made from the kept results and the reasons beside them, by `--report`, and by nobody's hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use crablet_testbed::say;
use crablet_testbed::suites::report::State;

use super::Folders;
use super::facts::Facts;
use super::history;
use super::reasons::Reasons;
use super::results::{Results, Table};
use crate::cluster::Which;

/// More names than this are not read here but in the file.
const LISTED: usize = 60;

/// More specs than this with the same fate are counted, not named.
const NAMED: usize = 20;

const HEAD: &str = "\
# Conformance

<!-- Made by `cargo xtask conformance --report` from the files in `docs/conformance`. Do not edit. -->

Upstream's own specs judge both kubelets on the same machine, with the same configuration, credentials, runtime and
images. A spec counts where upstream's kubelet passes it: what upstream itself fails here is the machine's or the
images' doing, and said below.

- `shared`: the specs marked `NodeConformance` in the suite for clusters, on a cluster of one node;
- `node`: those that only the node suite has; it starts the kubelet itself and brings its own API server;
- `full`: the specs marked `Conformance`, on a cluster with kube-proxy and CoreDNS;
- `wide`: specs of pods and volumes without such a mark, where their drivers are to be had; run in parts so far, with `--focus`;
- `rest`: the same of the node suite; run in parts so far, with `--serial --focus`.

Specs that must run alone (`Serial`) are run by `--serial`. Specs marked `Flaky` are left out.
";

const TAIL: &str = "
## Again

```sh
cargo xtask conformance --suite shared --kubelet upstream            # and `--kubelet crablet`, `--runtime debian`
cargo xtask conformance --suite shared --focus 'Pods should be'      # a few specs
cargo xtask conformance --suite node --kubelet upstream
cargo xtask conformance --suite node --kubelet upstream --serial
cargo xtask conformance --report                                     # this page, with the results of those runs
```

The first run builds Kubernetes' programs and the suites (a quarter of an hour on two cores) and the images; they are
kept in the cache folder. The files `docs/conformance/<suite>-<runtime>.tsv` have one line for each spec, with both
kubelets side by side; `docs/conformance/reasons.json` has the reasons, written by hand.
";

/// Takes this checkout's own results over into the kept ones, and writes the page.
pub fn write(folders: &Folders) -> Result<ExitCode> {
    let results = folders.results();
    results.write(&folders.kept)?;
    let reasons = Reasons::read(&folders.kept.join("reasons.json"))?;
    let whole_runs = history::take_over(&folders.own, &folders.kept)?;
    fs::write(&folders.page, text(&results, &reasons, &whole_runs))
        .with_context(|| format!("cannot write `{}`", folders.page.display()))?;
    say::step(format!("wrote `{}`", folders.page.display()));
    Ok(ExitCode::SUCCESS)
}

fn text(results: &Results, reasons: &Reasons, whole_runs: &[String]) -> String {
    let sections = [
        counts(results),
        history::section(whole_runs),
        machines(results),
        to_mend(results),
        failures(results, reasons),
        skips(results),
    ];
    format!("{HEAD}{}{TAIL}", sections.concat())
}

const BOTH: [Which; 2] = [Which::Upstream, Which::Crablet];

fn counts(results: &Results) -> String {
    let mut text = String::from(
        "\n## Results\n\n| suite | runtime | kubelet | passed | failed | skipped |\n|---|---|---|---|---|---|\n",
    );
    for (name, table) in &results.tables {
        for which in BOTH.into_iter().filter(|which| table.ran(*which)) {
            let count = |state| table.count(which, state);
            let (passed, failed, skipped) =
                (count(State::Passed), count(State::Failed), count(State::Skipped));
            let (suite, runtime) = suite_and_runtime(name);
            text +=
                &format!("| {suite} | {runtime} | {} | {passed} | {failed} | {skipped} |\n", which.name());
        }
    }
    text
}

fn machines(results: &Results) -> String {
    const COLUMNS: &[&str] = &["date", "kubernetes", "containerd", "kernel", "cgroups", "cores", "minutes"];
    let mut text = format!(
        "\n## Machines\n\n| run | {} |\n|---|{}\n",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    for (name, facts) in &results.runs {
        let cells = |facts: &Facts| {
            COLUMNS.iter().map(|name| facts.get(name).to_owned()).collect::<Vec<_>>().join(" | ")
        };
        text += &format!("| {name} | {} |\n", cells(facts));
    }
    text
}

fn to_mend(results: &Results) -> String {
    let mut text = String::from("\n## Upstream passes, Crablet fails\n\n");
    let compared = |table: &&Table| BOTH.iter().all(|which| table.ran(*which));
    if !results.tables.values().any(|table| compared(&table)) {
        return text + "No suite has been run with both yet.\n";
    }
    for (name, table) in results.tables.iter().filter(|(_, table)| compared(table)) {
        let specs = table.ours_to_mend();
        text += &format!("`{name}`: {}\n", specs.len());
        if specs.len() > LISTED {
            text += &format!("(see {})\n", file(name));
        } else {
            text.extend(specs.iter().map(|spec| format!("- {}\n", escaped(spec))));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn failures(results: &Results, reasons: &Reasons) -> String {
    let mut found: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (name, table) in &results.tables {
        for (spec, _) in table.0.iter().filter(|(_, row)| row.has(Which::Upstream, State::Failed)) {
            let tables = found.entry(reasons.of(name, spec)).or_default().entry(spec).or_default();
            tables.push(name);
        }
    }
    let mut lines = Vec::new();
    for (reason, specs) in &found {
        if specs.len() > NAMED {
            let tables: BTreeSet<&str> = specs.values().flatten().copied().collect();
            let files: Vec<_> = tables.into_iter().map(file).collect();
            lines.push(format!("- {} specs ({}): {reason}\n", specs.len(), files.join(", ")));
            continue;
        }
        lines.extend(specs.iter().map(|(spec, tables)| {
            let tables: Vec<_> = tables.iter().map(|table| format!("`{table}`")).collect();
            format!("- {} ({}): {reason}\n", escaped(spec), tables.join(", "))
        }));
    }
    lines.sort();
    if lines.is_empty() {
        lines.push("Nothing.\n".to_owned());
    }
    format!("\n## What upstream's kubelet fails here\n\n{}", lines.concat())
}

fn skips(results: &Results) -> String {
    let mut text = String::from("\n## What skips itself here, in the suites' own words\n");
    for (name, table) in &results.tables {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (spec, row) in &table.0 {
            let outcome = row.of(Which::Upstream).or(row.of(Which::Crablet));
            if let Some(outcome) = outcome.filter(|outcome| outcome.state == State::Skipped) {
                groups.entry(&outcome.why).or_default().push(spec);
            }
        }
        let count: usize = groups.values().map(Vec::len).sum();
        match count {
            0 => continue,
            1..=NAMED => text += &format!("\n`{name}`:\n\n"),
            _ => text += &format!("\n`{name}`, {count} specs, named in {}:\n\n", file(name)),
        }
        for (why, specs) in groups {
            let what = match count {
                1..=NAMED => specs.iter().map(|spec| escaped(spec)).collect::<Vec<_>>().join("; "),
                _ => specs.len().to_string(),
            };
            text += &format!("- {}: {what}\n", escaped(why));
        }
    }
    text
}

/// A link to all that is known of a table.
fn file(table: &str) -> String {
    format!("[{table}.tsv](conformance/{table}.tsv)")
}

fn suite_and_runtime(table: &str) -> (&str, &str) {
    table.split_once('-').unwrap_or((table, ""))
}

/// Specs' names hold signs that Markdown would take for its own.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if "*_<>[]`|".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use crablet_testbed::suites::report::{Report, Spec};

    use super::*;

    fn table() -> Table {
        let spec = |name: &str, state, message: &str| Spec {
            name: name.into(),
            state,
            seconds: 0,
            message: message.into(),
            output: String::new(),
        };
        let mut table = Table::default();
        let upstream = vec![
            spec("[sig-node] Pods run", State::Passed, ""),
            spec("[sig-node] Pods *not* run", State::Failed, "it ran"),
            spec("[sig-node] Swap", State::Skipped, "no swap"),
        ];
        table.take(Which::Upstream, &Report { specs: upstream, ..Report::default() });
        let crablet = vec![spec("[sig-node] Pods run", State::Failed, "")];
        table.take(Which::Crablet, &Report { specs: crablet, ..Report::default() });
        table
    }

    #[test]
    fn the_page_tells_counts_reasons_and_what_is_to_be_done() {
        let results = Results {
            tables: [("shared-pinned".to_owned(), table())].into(),
            runs: [("shared-pinned-upstream".to_owned(), Facts::default().with("cores", 2))].into(),
        };
        let page = text(&results, &Reasons::default(), &[]);
        for line in [
            "| shared | pinned | upstream | 1 | 1 | 1 |",
            "| shared | pinned | crablet | 0 | 1 | 0 |",
            "| shared-pinned-upstream | ? | ? | ? | ? | ? | 2 | ? |",
            "`shared-pinned`: 1\n- \\[sig-node\\] Pods run",
            "- \\[sig-node\\] Pods \\*not\\* run (`shared-pinned`): no reason known yet",
            "- no swap: \\[sig-node\\] Swap",
        ] {
            assert!(page.contains(line), "no `{line}` in:\n{page}");
        }
    }

    #[test]
    fn many_specs_with_the_same_fate_are_counted() {
        let spec = |state| {
            move |number: usize| Spec {
                name: format!("[sig-storage] {state:?} {number}"),
                state,
                seconds: 0,
                message: "no disk".into(),
                output: String::new(),
            }
        };
        let all =
            (0..=NAMED).flat_map(|number| [State::Failed, State::Skipped].map(|state| spec(state)(number)));
        let mut table = Table::default();
        table.take(Which::Upstream, &Report { specs: all.collect(), ..Report::default() });
        let results = Results { tables: [("wide-pinned".to_owned(), table)].into(), ..Results::default() };
        let page = text(&results, &Reasons::default(), &[]);
        for line in [
            "- 21 specs ([wide-pinned.tsv](conformance/wide-pinned.tsv)): no reason known yet\n",
            "`wide-pinned`, 21 specs, named in [wide-pinned.tsv](conformance/wide-pinned.tsv):\n\n- no disk: 21\n",
        ] {
            assert!(page.contains(line), "no `{line}` in:\n{page}");
        }
    }
}

//! Whole runs, one line each, the latest last: one good run may be luck, several in a row are not.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crablet_testbed::suites::report::{Report, State};

use super::options::Options;
use super::results::{Table, table_name};
use crate::cluster::Which;

/// Not a table of specs, so not called `tsv` as those are.
const FILE: &str = "whole-runs.txt";
const HEADING: &str = "run\tend\tminutes\tpassed\tfailed\tskipped\tupstream passes, crablet fails";

/// Notes a whole run that is over. `known` has upstream's results.
pub fn note(folder: &Path, options: &Options, report: &Report, known: &Table, minutes: &str) -> Result<()> {
    let ours = |name: &str| known.0.get(name).is_some_and(|row| row.has(Which::Upstream, State::Passed));
    let to_mend = report.with_state(State::Failed).filter(|spec| ours(&spec.name)).count();
    let to_mend = match options.which {
        Which::Crablet => to_mend.to_string(),
        Which::Upstream => "-".to_owned(),
    };
    let end = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M");
    let counts = [State::Passed, State::Failed, State::Skipped].map(|state| report.count(state).to_string());
    let line = format!(
        "{}-{}\t{end}\t{minutes}\t{}\t{to_mend}",
        table_name(options),
        options.which.name(),
        counts.join("\t")
    );
    append(&folder.join(FILE), &[line])
}

/// What is in one folder and not yet in the other goes there.
pub fn take_over(from: &Path, to: &Path) -> Result<Vec<String>> {
    let mut known = lines(&to.join(FILE));
    let new: Vec<String> = lines(&from.join(FILE)).into_iter().filter(|line| !known.contains(line)).collect();
    append(&to.join(FILE), &new)?;
    known.extend(new);
    Ok(known)
}

/// The page's part about them.
pub fn section(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let row = |line: &str| format!("| {} |\n", line.replace('\t', " | "));
    let columns = HEADING.split('\t').count();
    let rows: String = lines.iter().map(|line| row(line)).collect();
    format!("\n## Whole runs, the latest last\n\n{}|{}\n{rows}", row(HEADING), "---|".repeat(columns))
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().skip(1).map(str::to_owned).collect()
}

fn append(path: &PathBuf, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let heading = if path.exists() { None } else { Some(HEADING) };
    let text: String =
        heading.into_iter().chain(lines.iter().map(String::as_str)).map(|line| format!("{line}\n")).collect();
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_once_and_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let [own, kept] = ["own", "kept"].map(|name| folder.path().join(name));
        for folder in [&own, &kept] {
            fs::create_dir_all(folder).expect("a folder");
        }
        let line = |end: &str| format!("shared-pinned-crablet\t{end}\t26\t245\t1\t0\t0");
        append(&own.join(FILE), &[line("1")]).expect("a line");
        assert_eq!(take_over(&own, &kept).expect("lines"), [line("1")]);
        append(&own.join(FILE), &[line("2")]).expect("a line");
        assert_eq!(take_over(&own, &kept).expect("lines"), [line("1"), line("2")]);
        let page = section(&lines(&kept.join(FILE)));
        assert!(page.ends_with("| shared-pinned-crablet | 2 | 26 | 245 | 1 | 0 | 0 |\n"), "{page}");
        assert_eq!(section(&[]), "");
    }
}

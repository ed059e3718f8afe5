//! Promises that the source text itself shows.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// The only crate that may opt out of `unsafe_code = "deny"`.
const UNSAFE_ROOM: &str = "crates/host";
/// What a pure planner has no business with: time, files, the environment and chance are inputs.
const NOT_IN_PLANNER: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::fs",
    "std::env",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "fastrand",
];

pub fn problems(root: &Path) -> Result<Vec<String>> {
    let readme = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    let mut problems = Vec::new();
    for path in rust_files(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path)?;
        problems.extend(unsafe_problems(&shown, &text));
        problems.extend(planner_problems(&shown, &text));
        problems.extend(ignore_problems(&shown, &text, &readme));
    }
    for manifest in member_manifests(root)? {
        let text = fs::read_to_string(&manifest)?;
        if !text.contains("[lints]\nworkspace = true") {
            let shown = manifest.strip_prefix(root).unwrap_or(&manifest).display().to_string();
            problems.push(format!("{shown}: does not take over the workspace's lints"));
        }
    }
    Ok(problems)
}

/// The compiler denies `unsafe` where it is not allowed: so look for who allows it.
fn unsafe_problems(shown: &str, text: &str) -> Option<String> {
    let allows = code_lines(text).any(|(_, line)| line.contains(concat!("allow(", "unsafe_code")));
    (allows && !shown.starts_with(UNSAFE_ROOM))
        .then(|| format!("{shown}: allows unsafe code, which belongs into `{UNSAFE_ROOM}`"))
}

fn planner_problems(shown: &str, text: &str) -> Vec<String> {
    if !shown.starts_with("crates/planner/src") {
        return Vec::new();
    }
    let found = code_lines(text).flat_map(|(number, line)| {
        let words = NOT_IN_PLANNER.iter().filter(move |word| line.contains(**word));
        words.map(move |word| format!("{shown}:{number}: `{word}` in the planner, which must stay pure"))
    });
    found.collect()
}

/// A test that is left out is named in the README, where it says what does not work yet.
fn ignore_problems(shown: &str, text: &str, readme: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut ignored_at = None;
    for (number, line) in code_lines(text) {
        if line.trim_start().starts_with(concat!("#[", "ignore")) {
            ignored_at = Some(number);
        }
        let name = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
        if let (Some(at), Some(name)) = (ignored_at, name) {
            if !readme.contains(name) {
                problems
                    .push(format!("{shown}:{at}: test `{name}` is ignored and README.md does not say so"));
            }
            ignored_at = None;
        }
    }
    problems
}

/// Lines with their numbers, comments left out.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn member_manifests(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![root.join("xtask/Cargo.toml")];
    for entry in fs::read_dir(root.join("crates"))? {
        found.push(entry?.path().join("Cargo.toml"));
    }
    found.retain(|path| path.exists());
    Ok(found)
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_for_one_room() {
        let text = concat!("#![allow(", "unsafe_code)]\n");
        assert!(unsafe_problems("crates/pods/src/lib.rs", text).is_some());
        assert!(unsafe_problems("crates/host/src/lib.rs", text).is_none());
        assert!(unsafe_problems("crates/pods/src/lib.rs", "// nothing of the kind\n").is_none());
    }

    #[test]
    fn a_clock_in_the_planner_is_found_and_a_comment_about_one_is_not() {
        let text = "// no Instant::now here\nlet now = Instant::now();\n";
        assert_eq!(planner_problems("crates/planner/src/a.rs", text).len(), 1);
        assert!(planner_problems("crates/pods/src/a.rs", text).is_empty());
    }

    #[test]
    fn an_ignored_test_must_be_confessed() {
        let text = concat!("#[test]\n#[", "ignore = \"slow\"]\nfn takes_a_day() {}\n");
        assert_eq!(ignore_problems("a.rs", text, "").len(), 1);
        assert!(ignore_problems("a.rs", text, "- `takes_a_day` waits for ...").is_empty());
    }
}

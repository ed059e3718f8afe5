//! Messages for the person who typed.

use std::fmt;

/// One thing that is wrong, and what to do about it where that can be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Why the program did not start: one `error:` line per problem, each with at most one `hint:` line. Belongs on stderr,
/// with exit code 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UsageError {
    pub problems: Vec<Problem>,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "error: {}", problem.message)?;
            if let Some(hint) = &problem.hint {
                write!(f, "\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl From<Problem> for UsageError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl From<Vec<Problem>> for UsageError {
    fn from(problems: Vec<Problem>) -> Self {
        Self { problems }
    }
}

/// The candidate that was most likely meant, if any is near enough to be worth naming.
pub fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Long garbage is near nothing, and the distance costs the product of the lengths.
    if typed.len() > 64 {
        return None;
    }
    let typed = typed.to_ascii_lowercase();
    let allowed = (typed.len() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (distance(&typed, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be added, removed or changed to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_recognised_and_strangers_are_not() {
        let known = ["pod-manifest-path", "root-dir", "v"];
        for (typed, expected) in [
            ("pod-manifest-pth", Some("pod-manifest-path")),
            ("rootdir", Some("root-dir")),
            ("Root-Dir", Some("root-dir")),
            ("banana", None),
            ("", Some("v")),
            (&"x".repeat(100_000), None),
        ] {
            assert_eq!(nearest(typed, known.into_iter()), expected, "{typed}");
        }
    }

    #[test]
    fn each_problem_is_one_line_with_its_hint_below() {
        let error = UsageError::from(vec![Problem::new("one").hint("do this"), Problem::new("two")]);
        assert_eq!(error.to_string(), "error: one\nhint: do this\nerror: two");
    }
}

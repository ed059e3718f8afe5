//! Counts tests from cargo's `test result:` lines.

use std::fmt;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`, also with colours in it.
    pub fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let count = |word: &str| -> u64 {
            let part = counts.split(['.', ';']).find_map(|part| part.trim().strip_suffix(word));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.skipped += count("ignored");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 5 tests",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.87s",
            "test result: \u{1b}[31mFAILED\u{1b}[0m. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.to_string(), "7 passed, 3 failed, 1 skipped");
    }
}

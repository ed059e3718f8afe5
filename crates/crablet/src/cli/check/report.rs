//! Findings, and how they are shown.

use std::fmt::Write;

use serde::Serialize;

use super::facts::Unread;
use super::wanted::Wanted;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// The agent runs; something will be missing or worse than it could be.
    Warning,
    /// The agent does not start, or no pod runs.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub group: &'static str,
    pub name: String,
    pub state: State,
    pub seen: String,
    /// Empty when all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// What the findings of one subject go under.
#[derive(Clone, Copy, Debug)]
pub struct Group(pub &'static str);

impl Group {
    pub fn ok(self, name: impl Into<String>, seen: impl Into<String>) -> Finding {
        self.finding(name, State::Ok, seen, "")
    }

    pub fn warning(
        self,
        name: impl Into<String>,
        seen: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        self.finding(name, State::Warning, seen, fix)
    }

    pub fn error(self, name: impl Into<String>, seen: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.finding(name, State::Error, seen, fix)
    }

    pub fn finding(
        self,
        name: impl Into<String>,
        state: State,
        seen: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding { group: self.0, name: name.into(), state, seen: seen.into(), fix: fix.into() }
    }

    /// What could not be read is not known to be bad.
    pub fn unread(self, name: impl Into<String>, why: &Unread) -> Finding {
        let fix = match why {
            Unread::TooLate => "look for a hung mount or device; nothing was judged here",
            Unread::Failed(_) => "run it as root on the node itself; nothing was judged here",
        };
        self.warning(name, format!("could not be read: {why}"), fix)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    checks: Vec<Finding>,
    pub fine: usize,
    pub warnings: usize,
    pub errors: usize,
}

impl Report {
    pub fn new(wanted: &Wanted, checks: Vec<Finding>) -> Self {
        let count = |state| checks.iter().filter(|check| check.state == state).count();
        Self {
            node: wanted.node_name.clone(),
            config: wanted.config_file.as_ref().map(|path| path.display().to_string()),
            fine: count(State::Ok),
            warnings: count(State::Warning),
            errors: count(State::Error),
            checks,
        }
    }

    pub fn json(&self) -> String {
        // Strings and numbers only: this cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// What is fine comes first and the worst last, where the eye is when the command has ended.
    pub fn text(&self) -> String {
        let config = self.config.as_deref().unwrap_or("no config file");
        let mut out = format!("checked for node {}, with {}\n", printable(&self.node), printable(config));
        self.fine_part(&mut out);
        self.problems(&mut out, State::Warning, "warnings");
        self.problems(&mut out, State::Error, "errors");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "\n{} fine, {}, {}",
            self.fine,
            counted(self.warnings, "warning"),
            counted(self.errors, "error")
        );
        out
    }

    fn of(&self, state: State) -> impl Iterator<Item = &Finding> {
        self.checks.iter().filter(move |check| check.state == state)
    }

    fn fine_part(&self, out: &mut String) {
        if self.fine > 0 {
            out.push_str("\nfine\n");
        }
        let group_width = self.of(State::Ok).map(|check| check.group.len()).max().unwrap_or(0);
        let name_width = self.of(State::Ok).map(|check| check.name.chars().count()).max().unwrap_or(0);
        let mut last = "";
        for check in self.of(State::Ok) {
            // A group's name stands on its first line only: the eye finds the groups by it.
            let group = if check.group == last { "" } else { check.group };
            last = check.group;
            let (name, seen) = (&check.name, printable(&check.seen));
            let _ = writeln!(out, "  {group:group_width$}  {name:name_width$}  {seen}");
        }
    }

    fn problems(&self, out: &mut String, state: State, title: &str) {
        let mut first = true;
        for check in self.of(state) {
            if std::mem::take(&mut first) {
                let _ = writeln!(out, "\n{title}");
            }
            let _ = writeln!(out, "  {}, {}: {}", check.group, check.name, printable(&check.seen));
            if !check.fix.is_empty() {
                let _ = writeln!(out, "      fix: {}", printable(&check.fix));
            }
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Findings quote files and the runtime: they must not steer the terminal, and stay on their line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Group = Group("swap");

    fn report(checks: Vec<Finding>) -> Report {
        Report::new(&super::super::judge::tests::wanted(), checks)
    }

    #[test]
    fn what_is_fine_comes_first_and_errors_last() {
        let checks = vec![
            GROUP.error("swap", "swap is on", "swapoff -a"),
            Group("permissions").ok("user", "root"),
            Group("permissions").ok("capabilities", "all\u{1b}[31m of them"),
            GROUP.warning("tmpfs", "old\nkernel", ""),
        ];
        assert_eq!(
            report(checks).text(),
            "checked for node node1, with no config file\n\
             \nfine\n  permissions  user          root\n               capabilities  all [31m of them\n\
             \nwarnings\n  swap, tmpfs: old kernel\n\
             \nerrors\n  swap, swap: swap is on\n      fix: swapoff -a\n\
             \n2 fine, 1 warning, 1 error\n"
        );
    }

    #[test]
    fn programs_read_the_same_findings() {
        let json: serde_json::Value =
            serde_json::from_str(&report(vec![GROUP.error("swap", "on", "off"), GROUP.ok("x", "y")]).json())
                .expect("json");
        assert_eq!(
            json,
            serde_json::json!({
                "node": "node1",
                "checks": [
                    {"group": "swap", "name": "swap", "state": "error", "seen": "on", "fix": "off"},
                    {"group": "swap", "name": "x", "state": "ok", "seen": "y"},
                ],
                "fine": 1, "warnings": 0, "errors": 1,
            })
        );
    }

    #[test]
    fn nothing_found_is_said_too() {
        assert_eq!(
            report(Vec::new()).text(),
            "checked for node node1, with no config file\n\n0 fine, 0 warnings, 0 errors\n"
        );
    }
}

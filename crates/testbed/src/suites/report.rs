//! Ginkgo's JSON report: what was asked, what ran, how it ended.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Ginkgo's words for specs of an ordered group behind the one that failed.
const AFTER_A_FAILURE: &str = "Spec skipped because an earlier spec in an ordered container failed";

/// How a spec ended, as people count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Passed,
    Failed,
    Skipped,
}

/// One spec that was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// All texts of its containers and its own, as `--focus` sees them.
    pub name: String,
    pub state: State,
    pub seconds: u64,
    /// Why it failed, or why it skipped itself.
    pub message: String,
    /// What it wrote on its way.
    pub output: String,
}

/// A whole run.
#[derive(Debug, Default)]
pub struct Report {
    pub specs: Vec<Spec>,
    /// What went wrong outside of any spec: a node of the suite itself, with its message and output.
    pub suite_failures: Vec<Spec>,
    /// Ginkgo's own words for a run that did not come to its end.
    pub reasons: Vec<String>,
}

impl Report {
    pub fn read(path: &Path) -> Result<Report> {
        let text = fs::read(path).with_context(|| format!("cannot read the report `{}`", path.display()))?;
        Report::parse(&text).with_context(|| format!("`{}` is no report of Ginkgo", path.display()))
    }

    pub fn parse(text: &[u8]) -> Result<Report> {
        let suites: Vec<RawSuite> = serde_json::from_slice(text)?;
        let mut report = Report::default();
        for suite in suites {
            report.reasons.extend(suite.special_suite_failure_reasons.unwrap_or_default());
            for raw in suite.spec_reports.unwrap_or_default() {
                report.take(raw);
            }
        }
        report.specs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(report)
    }

    fn take(&mut self, raw: RawSpec) {
        let is_spec = raw.leaf_node_type == "It";
        // Ginkgo lists the whole suite: what focus and labels left out is "skipped" too, but without a word.
        if is_spec && raw.was_selected() {
            self.specs.push(raw.into_spec());
        } else if !is_spec && raw.state() == State::Failed {
            self.suite_failures.push(raw.into_spec());
        }
    }

    pub fn count(&self, state: State) -> usize {
        self.specs.iter().filter(|spec| spec.state == state).count()
    }

    pub fn with_state(&self, state: State) -> impl Iterator<Item = &Spec> {
        self.specs.iter().filter(move |spec| spec.state == state)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawSuite {
    special_suite_failure_reasons: Option<Vec<String>>,
    spec_reports: Option<Vec<RawSpec>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawSpec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    run_time: u64,
    failure: RawFailure,
    additional_failures: Option<Vec<RawAdditionalFailure>>,
    captured_ginkgo_writer_output: String,
    captured_std_out_err: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawFailure {
    message: String,
    forwarded_panic: String,
    location: RawLocation,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawAdditionalFailure {
    failure: RawFailure,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawLocation {
    file_name: String,
    line_number: u64,
}

impl RawSpec {
    fn state(&self) -> State {
        match self.state.as_str() {
            "passed" => State::Passed,
            // It did not skip itself: it could not run, and so it did not pass.
            "skipped" if self.failure.message == AFTER_A_FAILURE => State::Failed,
            "skipped" | "pending" | "" => State::Skipped,
            _ => State::Failed,
        }
    }

    fn was_selected(&self) -> bool {
        self.state() != State::Skipped || !self.failure.message.is_empty()
    }

    fn name(&self) -> String {
        let texts = self.container_hierarchy_texts.iter().flatten().map(String::as_str);
        let own = if self.leaf_node_text.is_empty() { &self.leaf_node_type } else { &self.leaf_node_text };
        texts.chain([own.as_str()]).collect::<Vec<_>>().join(" ")
    }

    fn into_spec(self) -> Spec {
        let more = self.additional_failures.iter().flatten().map(|more| more.failure.told());
        let message = std::iter::once(self.failure.told()).chain(more).collect::<Vec<_>>().join("\n\n");
        // A skipped spec's message is a sentence for people; where it was said is of no interest.
        let message = if self.state() == State::Skipped { self.failure.message.clone() } else { message };
        let outputs = [self.captured_std_out_err.as_str(), self.captured_ginkgo_writer_output.as_str()];
        Spec {
            name: self.name(),
            state: self.state(),
            seconds: self.run_time / 1_000_000_000,
            message: message.trim().to_owned(),
            output: outputs.join(""),
        }
    }
}

impl RawFailure {
    fn told(&self) -> String {
        let RawLocation { file_name, line_number } = &self.location;
        let panic = if self.forwarded_panic.is_empty() {
            String::new()
        } else {
            format!("\n{}", self.forwarded_panic)
        };
        match file_name.as_str() {
            "" => format!("{}{panic}", self.message),
            file => format!("{}{panic}\nat {file}:{line_number}", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[{
      "SuiteSucceeded": false, "SpecialSuiteFailureReasons": ["Interrupted by User"],
      "SpecReports": [
        {"LeafNodeType": "It", "LeafNodeText": "left out", "State": "skipped", "ContainerHierarchyTexts": ["[sig-node] Pods"]},
        {"LeafNodeType": "It", "LeafNodeText": "should run", "State": "passed", "RunTime": 2500000000,
         "ContainerHierarchyTexts": ["[sig-node] Pods", "[NodeConformance]"], "CapturedGinkgoWriterOutput": "hello"},
        {"LeafNodeType": "It", "LeafNodeText": "needs swap", "State": "skipped", "ContainerHierarchyTexts": null,
         "Failure": {"Message": "no swap here", "Location": {"FileName": "a.go", "LineNumber": 3}}},
        {"LeafNodeType": "It", "LeafNodeText": "breaks", "State": "timedout", "ContainerHierarchyTexts": ["A"],
         "Failure": {"Message": "too late", "Location": {"FileName": "b.go", "LineNumber": 7}},
         "AdditionalFailures": [{"State": "failed", "Failure": {"Message": "and cleanup failed"}}]},
        {"LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "", "State": "failed", "Failure": {"Message": "no cluster"}},
        {"LeafNodeType": "SynchronizedAfterSuite", "LeafNodeText": "", "State": "passed"}
      ]}]"#;

    #[test]
    fn selected_specs_are_told_from_those_left_out() {
        let report = Report::parse(TEXT.as_bytes()).unwrap();
        let told: Vec<_> = report.specs.iter().map(|spec| (spec.name.as_str(), spec.state)).collect();
        assert_eq!(
            told,
            [
                ("A breaks", State::Failed),
                ("[sig-node] Pods [NodeConformance] should run", State::Passed),
                ("needs swap", State::Skipped),
            ]
        );
        assert_eq!(report.specs[0].message, "too late\nat b.go:7\n\nand cleanup failed");
        assert_eq!((report.specs[1].seconds, report.specs[1].output.as_str()), (2, "hello"));
        assert_eq!(report.specs[2].message, "no swap here");
    }

    #[test]
    fn what_the_suite_itself_broke_is_kept_apart() {
        let report = Report::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(report.suite_failures.len(), 1);
        assert_eq!(report.suite_failures[0].name, "SynchronizedBeforeSuite");
        assert_eq!(report.suite_failures[0].message, "no cluster");
        assert_eq!(report.reasons, ["Interrupted by User"]);
    }
}

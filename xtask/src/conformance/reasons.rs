//! Why upstream's own kubelet fails a spec here: written by hand, joined to the results by the page.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// What is said about a failure that nobody looked into.
pub const UNKNOWN: &str = "no reason known yet";

/// One reason for all specs whose name contains a text, perhaps only in some tables (`shared-debian`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reason {
    spec: String,
    only: Option<String>,
    reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons(Vec<Reason>);

impl Reasons {
    /// No file is no reasons.
    pub fn read(path: &Path) -> Result<Reasons> {
        let Ok(text) = fs::read_to_string(path) else { return Ok(Reasons::default()) };
        Reasons::parse(&text).with_context(|| format!("cannot read `{}`", path.display()))
    }

    fn parse(text: &str) -> Result<Reasons> {
        let list: Vec<Value> = serde_json::from_str(text)?;
        let field = |entry: &Value, name: &str| entry[name].as_str().map(str::to_owned);
        let reason = |entry: &Value| {
            Some(Reason {
                spec: field(entry, "spec")?,
                only: field(entry, "only"),
                reason: field(entry, "reason")?,
            })
        };
        list.iter()
            .map(|entry| reason(entry).context("`spec` and `reason` are texts"))
            .collect::<Result<_>>()
            .map(Reasons)
    }

    pub fn of(&self, table: &str, spec: &str) -> &str {
        let fits = |reason: &&Reason| {
            spec.contains(&reason.spec) && reason.only.as_ref().is_none_or(|only| table.contains(only))
        };
        self.0.iter().find(fits).map_or(UNKNOWN, |reason| &reason.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_that_fits_is_given() {
        let text = r#"[
            {"spec": "Pods should", "only": "debian", "reason": "an old runtime"},
            {"spec": "Pods", "reason": "the image"}
        ]"#;
        let reasons = Reasons::parse(text).unwrap();
        assert_eq!(reasons.of("shared-debian", "[sig-node] Pods should run"), "an old runtime");
        assert_eq!(reasons.of("shared-pinned", "[sig-node] Pods should run"), "the image");
        assert_eq!(reasons.of("shared-pinned", "[sig-node] Other"), UNKNOWN);
        assert!(Reasons::parse(r#"[{"spec": "x"}]"#).is_err());
    }
}

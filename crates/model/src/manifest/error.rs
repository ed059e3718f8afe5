//! Refusals: what is wrong, where, and what to do about it, on one line.

use std::fmt;

use super::MAX_MANIFEST_BYTES;
use crate::image::shorten;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is empty; write a `v1` `Pod` into it, or remove it")]
    Empty,
    #[error("the manifest has {bytes} bytes; the limit is {MAX_MANIFEST_BYTES}")]
    TooLarge { bytes: usize },
    #[error("the manifest holds {values} values; the limit is {}", super::parse::MAX_VALUES)]
    TooManyValues { values: usize },
    #[error("byte {offset} is not valid UTF-8; save the manifest as UTF-8")]
    NotUtf8 { offset: usize },
    /// Neither YAML nor JSON. The message names line and column.
    #[error("{0}")]
    Syntax(String),
    /// Not a pod, or a field holds a value of the wrong type.
    #[error("{0}")]
    Undecodable(Problems),
    /// The API server would refuse it.
    #[error("{0}")]
    Invalid(Problems),
    /// It names an API object, which a static pod may not.
    #[error("{0}")]
    Reference(Problems),
    /// A real kubelet would run it; this version does not yet.
    #[error("{0}")]
    Unsupported(Problems),
}

impl ManifestError {
    pub(super) fn undecodable(path: &str, message: impl Into<String>) -> Self {
        let mut problems = Problems::default();
        problems.add(path, message);
        Self::Undecodable(problems)
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Everything that one step found. Prints as one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// More than this many are counted rather than printed: a person mends these first.
    const PRINTED: usize = 10;

    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into() });
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The same problems, seen from further outside.
    pub(super) fn below(mut self, prefix: &str) -> Self {
        for problem in &mut self.0 {
            problem.path = join(prefix, &problem.path);
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(Self::PRINTED).enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{problem}")?;
        }
        match self.0.len().saturating_sub(Self::PRINTED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A path below another one; either may be empty.
pub(super) fn join(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("", path) | (path, "") => path.to_owned(),
        _ => format!("{outer}.{inner}"),
    }
}

/// Text from a manifest inside a message: in quotes, on one line, and not endless.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", shorten(text))
}

/// A map key inside a field path. Keys come from the manifest, so they are kept on one line, too.
pub(super) fn key(text: &str) -> String {
    shorten(text).escape_debug().to_string()
}

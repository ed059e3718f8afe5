//! Files in volumes that variables are taken from.
//!
//! Such a file is a strict subset of what a shell reads: `NAME='value'` on each line, the value in single quotes and
//! maybe over several lines, with comments and empty lines between.

use crablet_model::api;

use super::ConfigError;
use super::container::ContainerInputs;

/// A file in a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileReference {
    pub volume: String,
    pub path: String,
}

impl FileReference {
    pub(super) fn of(selector: &api::FileKeySelector) -> Self {
        Self { volume: selector.volume_name.clone(), path: selector.path.clone() }
    }
}

/// What a file holds, or why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvFile {
    /// On the node.
    pub path: String,
    pub text: Result<String, String>,
}

/// `None` where the reference is optional and the file does not name the variable, or names it without a value.
pub(super) fn value_of(
    inputs: &ContainerInputs<'_>,
    wanted: &api::FileKeySelector,
) -> Result<Option<String>, ConfigError> {
    let file = inputs.objects.files.get(&FileReference::of(wanted)).ok_or_else(|| {
        ConfigError(format!("cannot find the volume {:?} referenced by FileKeyRef", wanted.volume_name))
    })?;
    let unreadable = || ConfigError::new("couldn't parse env file");
    let text = file.text.as_ref().map_err(|_| unreadable())?;
    match find(text, &wanted.key).map_err(|_| unreadable())? {
        value if !value.is_empty() => Ok(Some(value)),
        _ if wanted.optional.unwrap_or(false) => Ok(None),
        _ => Err(ConfigError(format!(
            "environment variable key {:?} not found in file {:?}",
            wanted.key, file.path
        ))),
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// The number of the line that is none of an environment file.
#[derive(Debug, PartialEq, Eq)]
struct BadLine(usize);

/// The value of the variable; empty where there is none. What follows it is not looked at.
fn find(text: &str, key: &str) -> Result<String, BadLine> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(BadLine(number))?;
        if name.is_empty() || name.ends_with(BLANKS) {
            return Err(BadLine(number));
        }
        // As in a shell, a blank after the sign means that nothing is assigned.
        let value = match value.strip_prefix(BLANKS) {
            Some(_) => String::new(),
            None => {
                let first = value.strip_prefix('\'').ok_or(BadLine(number))?;
                quoted(first, number, &mut lines)?
            }
        };
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

/// What stands up to the closing quote, which may be lines further on.
fn quoted<'t>(
    first: &'t str,
    began: usize,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<String, BadLine> {
    let mut value = String::new();
    let (mut number, mut rest) = (began, first);
    loop {
        if let Some((inside, after)) = rest.split_once('\'') {
            value.push_str(inside);
            let after = after.trim_start_matches(BLANKS);
            let ends = after.is_empty() || after.starts_with('#');
            return if ends { Ok(value) } else { Err(BadLine(number)) };
        }
        value.push_str(rest);
        value.push('\n');
        (number, rest) = lines.next().ok_or(BadLine(began))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_as_upstream_finds_them() {
        for (text, key, expected) in [
            ("   A='1'\n\tB='2'\n", "B", Ok("2")),
            ("# note\n\n  # another\nA='x'", "A", Ok("x")),
            ("A='x' # note", "A", Ok("x")),
            ("A='x'", "B", Ok("")),
            ("A=''\nA='later'", "A", Ok("")),
            ("A='a=b#c $D ${E} \"f\" \\'", "A", Ok("a=b#c $D ${E} \"f\" \\")),
            ("A='one\n two\n\n# three'\nB='x'", "A", Ok("one\n two\n\n# three")),
            ("A='one\ntwo'\nB='x'", "B", Ok("x")),
            ("A= 'x'", "A", Ok("")),
            ("A= 'x'\nB='y'", "B", Ok("y")),
            ("A='x'\nnonsense", "A", Ok("x")),
            ("A ='x'", "A", Err(BadLine(1))),
            ("='x'", "A", Err(BadLine(1))),
            ("\nnonsense", "A", Err(BadLine(2))),
            ("A=x", "A", Err(BadLine(1))),
            ("A=\"x\"", "A", Err(BadLine(1))),
            ("A=", "A", Err(BadLine(1))),
            ("A='x''y'", "A", Err(BadLine(1))),
            ("A='x' y", "A", Err(BadLine(1))),
            ("B='1'\nA='x\ny", "A", Err(BadLine(2))),
            ("A='x\ny' z", "A", Err(BadLine(2))),
        ] {
            assert_eq!(find(text, key), expected.map(str::to_owned), "{text}");
        }
    }
}

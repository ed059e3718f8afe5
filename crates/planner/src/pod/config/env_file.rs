//! Files in volumes that variables are taken from.
//!
//! Such a file is a strict subset of what a shell reads: `NAME='value'` on each line, the value in single quotes and
//! maybe over several lines, with comments and empty lines between.

use crablet_model::api;
use crablet_model::runtime::EnvValue;

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
    pub content: Result<Vec<u8>, String>,
}

/// `None` where the reference is optional and the file does not name the variable, or names it without a value.
pub(super) fn value_of(
    inputs: &ContainerInputs<'_>,
    wanted: &api::FileKeySelector,
) -> Result<Option<EnvValue>, ConfigError> {
    let file = inputs.objects.files.get(&FileReference::of(wanted)).ok_or_else(|| {
        ConfigError(format!("cannot find the volume {:?} referenced by FileKeyRef", wanted.volume_name))
    })?;
    let unreadable = || ConfigError::new("couldn't parse env file");
    let content = file.content.as_ref().map_err(|_| unreadable())?;
    match find(content, &wanted.key).map_err(|_| unreadable())? {
        value if !value.is_empty() => Ok(Some(value.into())),
        _ if wanted.optional.unwrap_or(false) => Ok(None),
        _ => Err(ConfigError(format!(
            "environment variable key {:?} not found in file {:?}",
            wanted.key, file.path
        ))),
    }
}

/// A line of so many bytes before its end is more than upstream's scanner takes.
const TOO_LONG: usize = 64 << 10;

/// The number of the line that is none of an environment file.
#[derive(Debug, PartialEq, Eq)]
struct BadLine(usize);

/// The value of the variable; empty where there is none. What follows it is not looked at.
fn find(content: &[u8], key: &str) -> Result<Vec<u8>, BadLine> {
    let mut lines = lines(content);
    while let Some(line) = lines.next() {
        let (number, line) = line?;
        let line = without_blanks(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let (name, value) = split_at(line, b'=').ok_or(BadLine(number))?;
        if name.last().is_none_or(is_blank) {
            return Err(BadLine(number));
        }
        // As in a shell, a blank after the sign means that nothing is assigned.
        let value = match value.first().is_some_and(is_blank) {
            true => Vec::new(),
            false => {
                let first = value.strip_prefix(b"'").ok_or(BadLine(number))?;
                quoted(first, number, &mut lines)?
            }
        };
        if name == key.as_bytes() {
            return Ok(value);
        }
    }
    Ok(Vec::new())
}

/// What stands up to the closing quote, which may be lines further on.
fn quoted<'t>(
    first: &'t [u8],
    began: usize,
    lines: &mut impl Iterator<Item = Result<(usize, &'t [u8]), BadLine>>,
) -> Result<Vec<u8>, BadLine> {
    let mut value = Vec::new();
    let (mut number, mut rest) = (began, first);
    loop {
        if let Some((inside, after)) = split_at(rest, b'\'') {
            value.extend_from_slice(inside);
            let after = without_blanks(after);
            let ends = after.is_empty() || after.starts_with(b"#");
            return if ends { Ok(value) } else { Err(BadLine(number)) };
        }
        value.extend_from_slice(rest);
        value.push(b'\n');
        (number, rest) = lines.next().ok_or(BadLine(began))??;
    }
}

/// Lines and their numbers. A carriage return at the end of one is no part of it, nor at the end of the file.
fn lines(content: &[u8]) -> impl Iterator<Item = Result<(usize, &[u8]), BadLine>> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.split(|byte| *byte == b'\n').zip(1..).map(|(line, number)| match line.len() < TOO_LONG {
        true => Ok((number, line.strip_suffix(b"\r").unwrap_or(line))),
        false => Err(BadLine(number)),
    })
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn without_blanks(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    &line[start..]
}

fn split_at(line: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let place = line.iter().position(|byte| *byte == mark)?;
    Some((&line[..place], &line[place + 1..]))
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
            ("A='x'\r\nB='y'\r\n", "B", Ok("y")),
            ("A='x'\r", "A", Ok("x")),
            ("A='x'\r\r", "A", Err(BadLine(1))),
            ("", "A", Ok("")),
            ("\n", "A", Ok("")),
        ] {
            assert_eq!(find(text.as_bytes(), key), expected.map(|value| value.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn values_need_not_be_text() {
        assert_eq!(find(b"\xfe='1'\nA='\xff\n\xfe'\n", "A"), Ok(b"\xff\n\xfe".to_vec()));
    }

    #[test]
    fn lines_have_to_fit_into_64_kib_with_their_end() {
        let line = |length: usize| format!("A='{}'", "x".repeat(length - 4));
        let found = |text: &str| find(text.as_bytes(), "A").map(|value| value.len());
        assert_eq!(found(&line(TOO_LONG - 1)), Ok(TOO_LONG - 5));
        assert_eq!(found(&format!("{}\n", line(TOO_LONG - 1))), Ok(TOO_LONG - 5));
        assert_eq!(found(&line(TOO_LONG)), Err(BadLine(1)));
        assert_eq!(found(&format!("{}\r\n", line(TOO_LONG - 1))), Err(BadLine(1)));
        assert_eq!(found(&format!("A='x'\n{}\n", line(TOO_LONG))), Ok(1), "what follows is not looked at");
        assert_eq!(found(&format!("B='\n{}\n'", "x".repeat(TOO_LONG))), Err(BadLine(2)));
    }
}

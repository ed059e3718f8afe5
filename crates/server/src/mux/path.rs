//! Paths as Go reads and writes them.

use std::borrow::Cow;
use std::fmt::Write;

/// Percent signs resolved. `None`: one of them means nothing.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    Some(bytes)
}

/// What Go leaves as it is in a path.
pub(crate) fn escape(path: &[u8]) -> String {
    escape_but(path, b"-_.~$&+,/:;=@")
}

/// What may stay as it is in a segment of a path.
pub(super) fn escape_segment(segment: &[u8]) -> String {
    escape_but(segment, b"-_.~$&+,:;=@!'()*")
}

fn escape_but(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || plain.contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}

/// Without empty segments, `.` and `..`. A slash at the end stays.
pub(super) fn clean(path: &str) -> Cow<'_, str> {
    let inner = path.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let is_clean = inner.is_some_and(|inner| {
        path == "/" || inner.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
    });
    if is_clean {
        return Cow::Borrowed(path);
    }
    let mut cleaned = clean_bytes(path.as_bytes());
    if path.ends_with('/') && cleaned != b"/" {
        cleaned.push(b'/');
    }
    // Whole segments of a string are strings.
    Cow::Owned(String::from_utf8_lossy(&cleaned).into_owned())
}

/// As [`clean`], for any bytes, and without a slash at the end unless that is all.
pub(crate) fn clean_bytes(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    let mut cleaned = vec![b'/'];
    cleaned.extend_from_slice(&kept.join(&b'/'));
    cleaned
}

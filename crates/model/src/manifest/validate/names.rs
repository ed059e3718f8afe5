//! The kinds of names that Kubernetes knows. Each check returns what such a name looks like when the text is none.

pub(super) type Check = Result<(), &'static str>;

const LABEL: &str =
    "must be at most 63 lower-case letters, digits and `-`, and begin and end with a letter or digit";
const SUBDOMAIN: &str = "must be at most 253 lower-case letters, digits, `-` and `.`, and each part must begin and end with a letter or digit";
const QUALIFIED: &str = "must be a name of at most 63 letters, digits, `-`, `_` and `.`, that begins and ends with a letter or digit, with an optional DNS name and `/` before it";
const VALUE: &str =
    "must be at most 63 letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit";
const ENV: &str = "must be printable ASCII without `=`";
const PORT: &str = "must be at most 15 lower-case letters, digits and single `-`, with at least one letter";

fn check(valid: bool, rule: &'static str) -> Check {
    if valid { Ok(()) } else { Err(rule) }
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&text.len()) && is_framed(text, inner, |b| b == b'-')
}

/// Begins and ends with an inner character, and holds nothing but inner characters and joints.
fn is_framed(text: &str, inner: impl Fn(u8) -> bool, joint: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
        && bytes.iter().all(|b| inner(*b) || joint(*b))
}

fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= 253 && text.split('.').all(|part| is_framed(part, inner, |b| b == b'-'))
}

fn is_word(text: &str) -> bool {
    text.len() <= 63 && is_framed(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

pub(super) fn dns_label(text: &str) -> Check {
    check(is_label(text), LABEL)
}

pub(super) fn dns_subdomain(text: &str) -> Check {
    check(is_subdomain(text), SUBDOMAIN)
}

/// A label or annotation key, or a resource name.
pub(super) fn qualified(text: &str) -> Check {
    let valid = match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_word(name),
        None => is_word(text),
    };
    check(valid, QUALIFIED)
}

pub(super) fn label_value(text: &str) -> Check {
    check(text.is_empty() || is_word(text), VALUE)
}

pub(super) fn uid(text: &str) -> Check {
    // Upstream takes any text; this one becomes the name of folders, cgroups and labels.
    check(is_word(text), VALUE)
}

/// Upstream allows more than shells do since v1.34.
pub(super) fn env_name(text: &str) -> Check {
    check(!text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'='), ENV)
}

pub(super) fn port_name(text: &str) -> Check {
    let valid = is_label(text)
        && text.len() <= 15
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase());
    check(valid, PORT)
}

/// An entry of a DNS search list: a subdomain that may hold `_` and end with a dot, or a single dot.
pub(super) fn dns_search(text: &str) -> Check {
    let trimmed = text.strip_suffix('.').unwrap_or(text);
    check(text == "." || is_subdomain(&trimmed.replace('_', "0")), SUBDOMAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_and_names_that_are_not() {
        type Kind = fn(&str) -> Check;
        let long_label = "a".repeat(63);
        let too_long = "a".repeat(64);
        let tables: [(Kind, &[&str], &[&str]); 7] = [
            (
                dns_label,
                &["a", "a-b", "0", &long_label],
                &["", "A", "-a", "a-", "a.b", "a_b", "é", &too_long],
            ),
            (
                dns_subdomain,
                &["a", "a.b", "a-b.c", &too_long],
                &["", ".", "a.", ".a", "a..b", "A", "a_b", "a-.b"],
            ),
            (
                qualified,
                &["a", "A_b.c", "example.com/x", &long_label],
                &["", "/", "a/", "/a", "a/b/c", "A.com/x", "-a", &too_long],
            ),
            (label_value, &["", "A", "a_b"], &["-", "a b", &too_long]),
            (env_name, &["A", "a.b-c", "1", " "], &["", "A=B", "é", "A\n"]),
            (port_name, &["http", "a1", "1-a"], &["", "1", "a--b", "-a", "abcdefghijklmnop", "A"]),
            (dns_search, &["a.b", "a.b.", ".", "_tcp.a", "a_b.c"], &["", "..", "-a", "a b"]),
        ];
        for (index, (kind, good, bad)) in tables.iter().enumerate() {
            for text in *good {
                assert!(kind(text).is_ok(), "table {index} refused {text:?}");
            }
            for text in *bad {
                assert!(kind(text).is_err(), "table {index} accepted {text:?}");
            }
        }
    }
}

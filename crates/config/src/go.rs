//! How Go reads and writes the small things: operators' files and scripts were written for it.

use crablet_model::duration;

/// What `strconv.ParseBool` accepts.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// What `strconv.ParseInt` accepts with base 0: `10`, `-0x1F`, `0o17`, `017`, `0b11`, and `1_000`.
pub fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number = i128::from(parse_uint(digits)?);
    i64::try_from(if negative { -number } else { number }).ok()
}

fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // An underscore stands between two digits, or between the prefix and a digit.
    let prefixed = radix != 10;
    if digits.ends_with('_') || digits.contains("__") || (!prefixed && digits.starts_with('_')) {
        return None;
    }
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if plain.is_empty() || plain.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(&plain, radix).ok()
}

/// Nanoseconds, as `time.ParseDuration` reads them: also negative ones.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with(['-', '+']) => (true, rest),
        _ => (false, text),
    };
    let duration = duration::parse(rest).map_err(|error| error.to_string())?;
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    Ok(if negative { -nanos } else { nanos })
}

/// As Go prints a duration: `1m0s`, `100ms`, `-1s`.
pub fn format_duration(nanos: i64) -> String {
    let text = duration::format(std::time::Duration::from_nanos(nanos.unsigned_abs()));
    if nanos < 0 { format!("-{text}") } else { text }
}

/// One line of comma-separated values, as the parser of list flags reads it: `a,"b,c"`. `None`: the quotes do not match.
pub fn parse_csv(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let field;
        (field, rest) = csv_field(rest)?;
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.is_empty().then_some(fields),
        }
    }
}

fn csv_field(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let (field, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        return (!field.contains('"')).then(|| (field.to_owned(), rest));
    };
    let mut field = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        // A doubled quote is a quote.
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, after)),
        }
    }
}

/// As `path.Clean`: no `.`, no `..` that can be resolved, no doubled or trailing slash.
pub fn clean_path(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => (),
            part => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("+5", Some(5)),
            ("0x50", Some(80)),
            ("-0X1f", Some(-31)),
            ("0b1010", Some(10)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("1_000", Some(1000)),
            ("0_7", Some(7)),
            ("", None),
            ("-", None),
            ("--5", None),
            ("08", None),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0x", None),
            ("1.0", None),
            (" 1", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
        ] {
            assert_eq!(parse_int(text), number, "{text}");
        }
    }

    #[test]
    fn durations_may_be_negative_here() {
        assert_eq!(parse_duration("-1s"), Ok(-1_000_000_000));
        assert_eq!(format_duration(-1_000_000_000), "-1s");
        assert!(parse_duration("--1s").is_err() && parse_duration("-").is_err());
    }

    #[test]
    fn lists_may_be_quoted() {
        let fields = |text: &str| parse_csv(text);
        assert_eq!(fields("a,b"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(fields("\"a,b\",c\"\""), None);
        assert_eq!(fields("\"a,\"\"b\",c"), Some(vec!["a,\"b".to_owned(), "c".to_owned()]));
        assert_eq!(fields(""), Some(vec![String::new()]));
        assert_eq!(fields("\"a"), None);
    }

    #[test]
    fn paths_are_cleaned() {
        for (path, clean) in
            [("/a/../b/", "/b"), ("a//./b", "a/b"), ("../a", "../a"), ("/..", "/"), ("", "."), ("a/..", ".")]
        {
            assert_eq!(clean_path(path), clean, "{path}");
        }
    }
}

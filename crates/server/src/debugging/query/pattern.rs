//! Whether a pattern is a regular expression. It is journalctl that uses it, and its own ones know more; upstream checks
//! first whether Go can read it.

/// `Err` in Go's words where they are known.
pub fn check(pattern: &str) -> Result<(), String> {
    structure(pattern)?;
    let simple = without_classes(pattern);
    match regex_lite::Regex::new(&simple) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}: `{pattern}`")),
    }
}

/// Brackets, parentheses and repetitions.
fn structure(pattern: &str) -> Result<(), String> {
    let mut open = 0_usize;
    // Whether there is something to repeat, and the repetition that it has already.
    let mut item = false;
    let mut repeated: Option<usize> = None;
    let mut rest = pattern.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let mut next_repeated = None;
        match c {
            '\\' => match rest.next() {
                // Taken as they are up to `\E`.
                Some((_, 'Q')) => return Ok(()),
                Some(_) => item = true,
                None => return Err("trailing backslash at end of expression: ``".to_owned()),
            },
            '[' => {
                let end =
                    class_end(&pattern[at..]).ok_or(format!("missing closing ]: `{}`", &pattern[at..]))?;
                while rest.next_if(|(next, _)| *next < at + end).is_some() {}
                item = true;
            }
            '(' => {
                open += 1;
                item = false;
                // The question mark of a group's kind is no repetition.
                if pattern[at + 1..].starts_with('?') {
                    rest.next();
                    item = true;
                }
            }
            ')' => {
                open = open.checked_sub(1).ok_or(format!("unexpected ): `{pattern}`"))?;
                item = true;
            }
            '|' => item = false,
            '*' | '+' | '?' => {
                if !item {
                    return Err(format!("missing argument to repetition operator: `{c}`"));
                }
                let lazy = usize::from(rest.next_if(|(_, next)| *next == '?').is_some());
                let end = at + 1 + lazy;
                if let Some(begin) = repeated {
                    let both = &pattern[begin..end];
                    return Err(format!("invalid nested repetition operator: `{both}`"));
                }
                next_repeated = Some(at);
            }
            _ => item = true,
        }
        repeated = next_repeated;
    }
    if open > 0 { Err(format!("missing closing ): `{pattern}`")) } else { Ok(()) }
}

/// How long the class is that begins here.
fn class_end(text: &str) -> Option<usize> {
    let mut rest = text.char_indices().skip(1).peekable();
    rest.next_if(|(_, c)| *c == '^');
    // A bracket that comes first is one of the class.
    rest.next_if(|(_, c)| *c == ']');
    while let Some((at, c)) = rest.next() {
        match c {
            '\\' => {
                rest.next();
            }
            // `[:alpha:]`
            '[' if text[at..].starts_with("[:") => {
                if let Some(end) = text[at..].find(":]") {
                    while rest.next_if(|(next, _)| *next < at + end + 2).is_some() {}
                }
            }
            ']' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The checker does not know Unicode's classes; Go does.
fn without_classes(pattern: &str) -> String {
    let mut simple = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        simple.push_str(before);
        let class = escape.starts_with("\\p") || escape.starts_with("\\P");
        let named =
            escape.get(2..).filter(|name| class && name.starts_with('{')).and_then(|name| name.find('}'));
        let length = match (class, named) {
            (true, Some(end)) => 2 + end + 1,
            (true, None) => 2 + escape.chars().nth(2).map_or(0, char::len_utf8),
            (false, _) => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        simple.push_str(if class { "\\d" } else { &escape[..length] });
        rest = &escape[length..];
    }
    simple.push_str(rest);
    simple
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_judged_as_go_judges_them() {
        for pattern in [
            "",
            "error|warn",
            "^a.*?b+$",
            r"\p{Greek}\pL\d[[:alpha:]]",
            "[]a]",
            "(?i)x",
            "(?:a|b)*",
            r"\(",
            "é+",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
        for (pattern, why) in [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ] {
            assert_eq!(check(pattern), Err(why.to_owned()), "{pattern}");
        }
        for pattern in ["a{5,2}", "[z-a]", r"\q", "(?<"] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
    }
}

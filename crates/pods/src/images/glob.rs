//! Wildcards in one label of a host name: `*`, `?` and `[a-z]`, as Go's `filepath.Match` has them.

pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to go on when what came after the last star does not fit: one character further.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = one(&pattern, p, text[t]) {
                    (p, t) = (next, t + 1);
                    continue;
                }
            }
            None => {}
        }
        match star {
            Some((at, from)) => {
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
            None => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Where the pattern goes on if what it has at `p` fits the character.
fn one(pattern: &[char], p: usize, c: char) -> Option<usize> {
    match pattern[p] {
        '?' => Some(p + 1),
        '\\' => (pattern.get(p + 1) == Some(&c)).then_some(p + 2),
        '[' => {
            let end = p + 2 + pattern.get(p + 2..)?.iter().position(|c| *c == ']')?;
            let (negated, set) = match pattern[p + 1] {
                '^' => (true, &pattern[p + 2..end]),
                _ => (false, &pattern[p + 1..end]),
            };
            let mut within = false;
            let mut rest = set;
            while let [low, tail @ ..] = rest {
                if let ['-', high, more @ ..] = tail {
                    within |= (*low..=*high).contains(&c);
                    rest = more;
                } else {
                    within |= *low == c;
                    rest = tail;
                }
            }
            (within != negated).then_some(end + 1)
        }
        other => (other == c).then_some(p + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a*b*c", "a1b2b3c", true),
            ("?b", "ab", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[ab", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}

//! Patterns for paths and names: `*` stands for any run of characters but `/`, `**` for any run at all.

/// A pattern; without a star it is the exact text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    pub fn new(pattern: impl Into<String>) -> Glob {
        Glob(pattern.into())
    }

    pub fn matches(&self, text: &str) -> bool {
        matches(self.0.as_bytes(), text.as_bytes())
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    if first != b'*' {
        return text.split_first().is_some_and(|(&head, tail)| head == first && matches(rest, tail));
    }
    let (rest, within_segment) = match rest.split_first() {
        Some((b'*', rest)) => (rest, false),
        _ => (rest, true),
    };
    let reach = if within_segment {
        text.iter().position(|&byte| byte == b'/').unwrap_or(text.len())
    } else {
        text.len()
    };
    (0..=reach).any(|taken| matches(rest, &text[taken..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_in_their_segment_and_double_stars_do_not() {
        for (pattern, text, expected) in [
            ("/api/v1/nodes", "/api/v1/nodes", true),
            ("/api/v1/nodes", "/api/v1/nodes/a", false),
            ("/api/v1/nodes/*", "/api/v1/nodes/a", true),
            ("/api/v1/nodes/*", "/api/v1/nodes/a/status", false),
            ("/api/v1/nodes/**", "/api/v1/nodes/a/status", true),
            ("**/status", "/api/v1/nodes/a/status", true),
            ("/api/v1/namespaces/*/pods/*/status", "/api/v1/namespaces/default/pods/web/status", true),
            ("/api/v1/namespaces/*/pods/*/status", "/api/v1/namespaces/default/pods/status", false),
            ("/*/RunPodSandbox", "/runtime.v1.RuntimeService/RunPodSandbox", true),
            ("system:node:*", "system:node:a", true),
            ("**", "", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }
}

//! Which images on the node a pod may use without showing credentials: the setting
//! `imagePullCredentialsVerificationPolicy`.

use super::records::plain_name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Any pod may use any image; nothing is recorded.
    Off,
    /// The same, but what is pulled is recorded.
    Never,
    /// Images that nobody pulled through this agent are for all.
    NeverPreloaded,
    /// Images of this list are for all. A name may end in `/*`.
    NeverAllowlisted(Vec<String>),
    Always,
}

impl Verification {
    pub(super) fn records(&self) -> bool {
        *self != Self::Off
    }

    /// Whether a pod has to show that it may use this image.
    pub(super) fn needed(&self, image: &str, pulled_here: bool) -> bool {
        match self {
            Self::Off | Self::Never => false,
            Self::NeverPreloaded => pulled_here,
            Self::NeverAllowlisted(list) => !list.iter().any(|pattern| is_listed(pattern, plain_name(image))),
            Self::Always => true,
        }
    }
}

fn is_listed(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_to_show_credentials() {
        let listed = Verification::NeverAllowlisted(vec!["a.io/team/*".to_owned(), "b.io/app".to_owned()]);
        for (policy, image, pulled_here, needed) in [
            (&Verification::Never, "a.io/x", true, false),
            (&Verification::Always, "a.io/x", false, true),
            (&Verification::NeverPreloaded, "a.io/x", false, false),
            (&Verification::NeverPreloaded, "a.io/x", true, true),
            (&listed, "a.io/team/x:1", true, false),
            (&listed, "a.io/other", true, true),
            (&listed, "b.io/app:1", false, false),
            (&listed, "b.io/app/more", false, true),
        ] {
            assert_eq!(policy.needed(image, pulled_here), needed, "{policy:?} {image}");
        }
    }
}

//! Image references: `[registry[:port]/]path[:tag][@digest]`.
//!
//! References are checked, never normalised: what the manifest says is what the runtime is asked for.

mod words;

pub use self::words::refusal;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("the image is empty; name one, like `registry.k8s.io/pause:3.10`")]
    Empty,
    #[error("{image:?} is not an image reference: {why}")]
    Malformed { image: String, why: &'static str },
}

const UPPER_CASE: &str = "the repository name must be lower case";
const AN_ID: &str = "64 hex digits are an image id, not a name";
const TOO_LONG: &str = "the name is longer than 255 characters";
/// Without the registry.
const LONGEST_PATH: usize = 255;

/// A reference taken apart. The pieces borrow from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Registry and path, as written.
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

/// Takes a reference apart and checks every piece.
pub fn parse(image: &str) -> Result<Reference<'_>, ImageError> {
    let fail = |why| Err(ImageError::Malformed { image: shorten(image), why });
    if image.is_empty() {
        return Err(ImageError::Empty);
    }
    if is_id(image) {
        return fail(AN_ID);
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let path_start = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[path_start..].find(':') {
        Some(colon) => (&rest[..path_start + colon], Some(&rest[path_start + colon + 1..])),
        None => (rest, None),
    };
    if let Err(why) = check_name(name) {
        return fail(why);
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return fail(
            "the tag is 1 to 128 letters, digits, `_`, `.` and `-`, and begins with a letter, digit or `_`",
        );
    }
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return fail(
            "the digest is an algorithm and its hex value, like `sha256:` and 64 lower-case hex digits",
        );
    }
    Ok(Reference { name, tag, digest })
}

pub fn validate(image: &str) -> Result<(), ImageError> {
    parse(image).map(|_| ())
}

/// Appends `:latest` when there is neither a tag nor a digest.
pub fn with_default_tag(image: &str) -> Result<String, ImageError> {
    let reference = parse(image)?;
    Ok(match (reference.tag, reference.digest) {
        (None, None) => format!("{image}:latest"),
        _ => image.to_owned(),
    })
}

/// The pull policy of a container that names none: `Always` for `latest`, said or meant, and else `IfNotPresent`.
/// An image that cannot be parsed has no tag, as upstream v1.36 sees it.
pub fn default_pull_policy(image: &str) -> &'static str {
    match parse(image) {
        Ok(Reference { tag: None, digest: None, .. } | Reference { tag: Some("latest"), .. }) => "Always",
        _ => "IfNotPresent",
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if is_registry(first) => (first, path),
        _ => ("", name),
    };
    if !registry.is_empty() && !is_host_and_port(registry) {
        return Err("the registry is a host name or address, with an optional port");
    }
    if path.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(UPPER_CASE);
    }
    if !path.split('/').all(is_path_component) {
        return Err(
            "each part of the repository name is lower-case letters and digits, joined by `.`, `_`, `__` or `-`",
        );
    }
    // The limit counts what a runtime would fill in.
    let filled_in = if registry.is_empty() && !path.contains('/') { "library/".len() } else { 0 };
    if filled_in + path.len() > LONGEST_PATH {
        return Err(TOO_LONG);
    }
    Ok(())
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(is_hex_digit)
}

fn is_hex_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Whether the first part of a name is a registry rather than the beginning of a path.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase())
}

fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    if let Some(address) = host.strip_prefix('[') {
        return address
            .strip_suffix(']')
            .is_some_and(|a| !a.is_empty() && a.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'));
    }
    host.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// Lower-case alphanumeric runs joined by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !text.starts_with(alphanumeric) || !text.ends_with(alphanumeric) {
        return false;
    }
    text.split(alphanumeric)
        .filter(|gap| !gap.is_empty())
        .all(|gap| matches!(gap, "." | "_" | "__") || gap.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        hex_digits(algorithm) == Some(hex.len()) && hex.bytes().all(is_hex_digit)
    })
}

/// How long a digest of this algorithm is, if it is known.
fn hex_digits(algorithm: &str) -> Option<usize> {
    match algorithm {
        "sha256" => Some(64),
        "sha384" => Some(96),
        "sha512" => Some(128),
        _ => None,
    }
}

/// Enough of a long text to recognise it by.
pub(crate) fn shorten(text: &str) -> String {
    const KEPT: usize = 80;
    match text.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn takes_references_apart() {
        for (image, name, tag) in [
            ("nginx", "nginx", None),
            ("nginx:1.27", "nginx", Some("1.27")),
            ("library/nginx", "library/nginx", None),
            ("localhost:5000/a/b", "localhost:5000/a/b", None),
            ("localhost:5000/a/b:x", "localhost:5000/a/b", Some("x")),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause", Some("3.10")),
            ("Registry.Example/pause", "Registry.Example/pause", None),
            ("[::1]:5000/pause", "[::1]:5000/pause", None),
            ("a--b__c.d", "a--b__c.d", None),
        ] {
            assert_eq!(parse(image), Ok(Reference { name, tag, digest: None }), "{image}");
        }
        let image = format!("a.b/c:t@sha256:{HEX}");
        let digest = format!("sha256:{HEX}");
        assert_eq!(parse(&image), Ok(Reference { name: "a.b/c", tag: Some("t"), digest: Some(&digest) }));
    }

    #[test]
    fn refuses_what_is_no_reference() {
        let long = "a".repeat(256);
        let bad_digest = format!("a@sha256:{}", HEX.to_uppercase());
        for image in [
            "",
            " ",
            "nginx ",
            "Nginx",
            "a/B",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a::b",
            "a:-x",
            "a@",
            "a@sha256:12",
            "a_-b",
            "a..b",
            "-a",
            "a___b",
            "a.b:x/c",
            "a b",
            "é",
            HEX,
            &long,
            &bad_digest,
            "-a.b/c",
            "[::1/c",
        ] {
            assert!(parse(image).is_err(), "{image:?} was accepted");
        }
    }

    #[test]
    fn a_refusal_says_which_piece_is_wrong() {
        let message = |image: &str| parse(image).map_err(|e| e.to_string()).unwrap_err();
        assert_eq!(
            message("Nginx"),
            "\"Nginx\" is not an image reference: the repository name must be lower case"
        );
        assert!(message("a:-").contains("the tag is"));
        assert!(message(&"A".repeat(5000)).len() < 200);
    }

    #[test]
    fn the_default_tag_is_added_only_where_nothing_is_pinned() {
        let pinned = format!("nginx@sha256:{HEX}");
        for (image, expected) in [
            ("nginx", "nginx:latest"),
            ("nginx:1", "nginx:1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            (&pinned, &pinned),
        ] {
            assert_eq!(with_default_tag(image).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        let pinned = format!("nginx@sha256:{HEX}");
        let both = format!("nginx:latest@sha256:{HEX}");
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            (&pinned, "IfNotPresent"),
            (&both, "Always"),
            ("Not An Image", "IfNotPresent"),
        ] {
            assert_eq!(default_pull_policy(image), policy, "{image}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(image in "\\PC{0,40}|[a-zA-Z0-9:/@._\\[\\]-]{0,40}") {
            let _ = validate(&image);
            let _ = default_pull_policy(&image);
        }

        #[test]
        fn a_defaulted_image_is_valid_and_stays_as_it_is(image in "([a-z0-9]{1,4}\\.[a-z]{1,3}(:[0-9]{1,4})?/)?[a-z0-9]{1,8}(/[a-z0-9]{1,8})?(:[a-z0-9]{1,5})?") {
            let tagged = with_default_tag(&image).unwrap();
            prop_assert!(tagged.starts_with(&image));
            prop_assert_eq!(with_default_tag(&tagged), Ok(tagged.clone()));
        }
    }
}

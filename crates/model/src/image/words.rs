//! What upstream v1.36 says in statuses and events of an image reference that is none.

/// As far as upstream takes the text apart before it gives up.
struct Pieces<'a> {
    /// The path with the folder of official images where the runtime would fill it in.
    path: String,
    digest: Option<&'a str>,
}

/// Why `image` is no reference. Only for one that [`super::parse`] refuses.
pub fn refusal(image: &str) -> String {
    format!("couldn't parse image name {image:?}: {}", fault(image))
}

fn fault(image: &str) -> String {
    if super::is_id(image) {
        return format!("invalid repository name ({image}), cannot specify 64-byte hexadecimal strings");
    }
    let pieces = Pieces::of(image);
    // A digest without a tag before it counts up to its colon.
    let named = pieces.path.split(':').next().unwrap_or_default();
    if named.to_lowercase() != named {
        return format!("invalid reference format: repository name ({named}) must be lowercase");
    }
    let name = named.split('@').next().unwrap_or_default();
    if name.len() > super::LONGEST_PATH && name.split('/').all(super::is_path_component) {
        return format!("repository name must not be more than {} characters", super::LONGEST_PATH);
    }
    let of_digest = pieces.digest.and_then(digest_fault);
    of_digest.unwrap_or("invalid reference format").to_owned()
}

impl<'a> Pieces<'a> {
    fn of(image: &'a str) -> Self {
        let (registry, rest) = match image.split_once('/') {
            Some((first, rest)) if super::is_registry(first) => (first, rest),
            _ => ("", image),
        };
        let is_official = matches!(registry, "" | "docker.io" | "index.docker.io") && !rest.contains('/');
        let path = if is_official { format!("library/{rest}") } else { rest.to_owned() };
        Self { path, digest: image.split_once('@').map(|(_, digest)| digest) }
    }
}

/// Of something that looks like a digest; what does not look like one makes the whole reference bad.
fn digest_fault(digest: &str) -> Option<&'static str> {
    let (algorithm, hex) = digest.split_once(':')?;
    let looks_like_one = algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.'))
        && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !looks_like_one {
        return None;
    }
    Some(match super::hex_digits(algorithm) {
        None => "unsupported digest algorithm",
        Some(wanted) if hex.len() != wanted => "invalid checksum digest length",
        Some(_) => "invalid checksum digest format",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn statuses_speak_of_bad_names_as_upstream_does() {
        let long = "a".repeat(256);
        let invalid = "invalid reference format";
        let lower = |name: &str| format!("{invalid}: repository name ({name}) must be lowercase");
        for (image, words) in [
            ("a.test/UPPER:1".to_owned(), lower("UPPER")),
            ("UPPER".to_owned(), lower("library/UPPER")),
            ("docker.io/Upper:1".to_owned(), lower("library/Upper")),
            ("some/Thing".to_owned(), lower("some/Thing")),
            (format!("a@SHA256:{HEX}"), lower("library/a@SHA256")),
            ("a b".to_owned(), invalid.to_owned()),
            (String::new(), invalid.to_owned()),
            ("a.test/b:-c".to_owned(), invalid.to_owned()),
            ("https://a.test/b:1".to_owned(), invalid.to_owned()),
            ("a@sha256:12".to_owned(), invalid.to_owned()),
            (format!("a@sha256:{HEX}0"), "invalid checksum digest length".to_owned()),
            (format!("a@sha256:{}", HEX.to_uppercase()), "invalid checksum digest format".to_owned()),
            (format!("a@sha257:{HEX}"), "unsupported digest algorithm".to_owned()),
            (format!("a.test/{long}"), "repository name must not be more than 255 characters".to_owned()),
            (
                HEX.to_owned(),
                format!("invalid repository name ({HEX}), cannot specify 64-byte hexadecimal strings"),
            ),
        ] {
            assert!(super::super::parse(&image).is_err(), "{image}");
            assert_eq!(refusal(&image), format!("couldn't parse image name {image:?}: {words}"));
        }
    }
}

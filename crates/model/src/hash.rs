//! FNV-1a hashes, and the container definition hash that a node's running containers carry.

const PRIME_32: u32 = 0x0100_0193;
const OFFSET_32: u32 = 0x811c_9dc5;
const PRIME_64: u64 = 0x0000_0100_0000_01b3;
const OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME_128: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
const OFFSET_128: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET_32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME_32))
}

pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME_64))
}

pub fn fnv1a_128(bytes: &[u8]) -> u128 {
    Fnv128::default().with(bytes).finish()
}

/// FNV-1a over several pieces, for inputs that are not one slice.
#[derive(Clone, Copy, Debug)]
pub struct Fnv128(u128);

impl Default for Fnv128 {
    fn default() -> Self {
        Self(OFFSET_128)
    }
}

impl Fnv128 {
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME_128)))
    }

    pub fn finish(self) -> u128 {
        self.0
    }
}

/// The hash by which a restarted agent sees that a container's definition changed.
///
/// Only name and image count. The value equals upstream v1.36's, byte for byte: a node that changes over from the
/// upstream kubelet would otherwise see every running container as changed, and kill it.
pub fn container_hash(name: &str, image: &str) -> String {
    let json = format!("{{\"image\":{},\"name\":{}}}", go_json_string(image), go_json_string(name));
    // What is hashed is not the JSON but its printed form as a slice of bytes.
    let mut printed = String::with_capacity(json.len() * 4 + 12);
    printed.push_str("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        if index > 0 {
            printed.push(' ');
        }
        printed.push_str(&byte.to_string());
    }
    printed.push(']');
    format!("{:x}", fnv1a_32(printed.as_bytes()))
}

/// A JSON string as Go's encoder writes it: it also escapes what would be unsafe inside HTML and JavaScript.
fn go_json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_matches_the_published_vectors() {
        // From the FNV authors' test suite.
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128(b""), OFFSET_128);
        assert_eq!(fnv1a_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn pieces_hash_like_their_concatenation() {
        assert_eq!(Fnv128::default().with(b"foo").with(b"").with(b"bar").finish(), fnv1a_128(b"foobar"));
    }

    #[test]
    fn the_container_hash_is_upstreams() {
        assert_eq!(container_hash("test_container", "foo/image:v1"), "8e45cbd0");
    }

    #[test]
    fn only_name_and_image_count_and_both_do() {
        let base = container_hash("web", "nginx:1");
        assert_eq!(base, container_hash("web", "nginx:1"));
        assert_ne!(base, container_hash("web", "nginx:2"));
        assert_ne!(base, container_hash("www", "nginx:1"));
    }

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        assert_eq!(
            go_json_string("a<b>&\"\\\u{1}\u{2028}\u{7f}é\n"),
            "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\u0001\\u2028\u{7f}é\\n\""
        );
    }
}

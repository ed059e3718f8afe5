//! Bytes that are shown as text, though they may be none.

/// What containers wrote, as text. Each byte that is no part of a character becomes U+FFFD, as in Go's JSON.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Cuts a text of [`of_bytes`] to the first `most` of the bytes that it was made of: U+FFFD stands for one of them. What
/// is left of a character that does not fit are bytes that are no text. Cutting again changes nothing.
pub fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let mut left = most;
    let end = text.char_indices().find_map(|(at, character)| {
        let bytes = if character == char::REPLACEMENT_CHARACTER { 1 } else { character.len_utf8() };
        if bytes > left {
            return Some(at);
        }
        left -= bytes;
        None
    });
    if let Some(end) = end {
        text.truncate(end);
        text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, left));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_stray_byte_is_told() {
        for (bytes, expected) in [
            (&b"plain"[..], "plain"),
            (b"a\xffb", "a\u{fffd}b"),
            ("€".as_bytes(), "€"),
            (b"\xe2\x82", "\u{fffd}\u{fffd}"),
            (b"\xe2\x82a\xac", "\u{fffd}\u{fffd}a\u{fffd}"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"", ""),
        ] {
            assert_eq!(of_bytes(bytes), expected, "{bytes:?}");
        }
    }

    proptest! {
        /// Where no text has U+FFFD of its own.
        #[test]
        fn cut_text_is_text_of_cut_bytes(bytes in "([a-z]|ü|€|🦀){0,12}", tail: Vec<u8>, most in 0..60_usize) {
            let bytes: Vec<u8> = bytes.into_bytes().into_iter().chain(tail).collect();
            prop_assume!(!bytes.windows(3).any(|three| three == "\u{fffd}".as_bytes()));
            let mut text = of_bytes(&bytes);
            cut(&mut text, most);
            prop_assert_eq!(&text, &of_bytes(&bytes[..most.min(bytes.len())]));
            let once = text.clone();
            cut(&mut text, most);
            prop_assert_eq!(text, once);
        }
    }
}

//! What kind of content a file has, as Go tells it: by the name's ending, else by the first bytes.

/// How many bytes are looked at.
pub const SNIFFED: usize = 512;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const XML: &str = "text/xml; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// The endings that Go knows by itself. What else an upstream kubelet says depends on files of its machine.
const BY_ENDING: [(&str, &str); 28] = [
    ("avif", "image/avif"),
    ("bin", BYTES),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("eml", "message/rfc822"),
    ("exe", BYTES),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", HTML),
    ("html", HTML),
    ("ico", "image/vnd.microsoft.icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ps", "application/postscript"),
    ("shtml", HTML),
    ("svg", "image/svg+xml"),
    ("text", TEXT),
    ("txt", TEXT),
    ("wasm", "application/wasm"),
    ("webp", "image/webp"),
    ("xml", XML),
    ("zip", "application/zip"),
];

const BY_BEGINNING: [(&[u8], &str); 17] = [
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xef\xbb\xbf", TEXT),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"ID3", "audio/mpeg"),
    (b"OggS\x00", "application/ogg"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"Rar!\x1a\x07", "application/x-rar-compressed"),
    (b"\x00asm", "application/wasm"),
];

const HTML_TAGS: [&[u8]; 17] = [
    b"<!DOCTYPE HTML",
    b"<HTML",
    b"<HEAD",
    b"<SCRIPT",
    b"<IFRAME",
    b"<H1",
    b"<DIV",
    b"<FONT",
    b"<TABLE",
    b"<A",
    b"<STYLE",
    b"<TITLE",
    b"<B",
    b"<BODY",
    b"<BR",
    b"<P",
    b"<!--",
];

pub fn by_ending(name: &[u8]) -> Option<&'static str> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let ending = std::str::from_utf8(&name[dot + 1..]).ok()?.to_ascii_lowercase();
    BY_ENDING.iter().find(|(known, _)| *known == ending).map(|(_, kind)| *kind)
}

pub fn by_beginning(bytes: &[u8]) -> &'static str {
    let is_space = |byte: &u8| matches!(*byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ');
    let begin = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    let words = &bytes[begin..];
    let is_tag = |tag: &&[u8]| {
        words.get(..tag.len()).is_some_and(|found| found.eq_ignore_ascii_case(tag))
            && words.get(tag.len()).is_some_and(|next| matches!(next, b' ' | b'>'))
    };
    if HTML_TAGS.iter().any(is_tag) {
        return HTML;
    }
    if words.starts_with(b"<?xml") {
        return XML;
    }
    if let Some((_, kind)) = BY_BEGINNING.iter().find(|(known, _)| bytes.starts_with(known)) {
        return kind;
    }
    let is_binary = |byte: &u8| matches!(*byte, 0..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if words.iter().any(is_binary) { BYTES } else { TEXT }
}

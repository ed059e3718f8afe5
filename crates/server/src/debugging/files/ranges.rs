//! The `Range` header, as Go reads it.

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub start: u64,
    pub length: u64,
}

impl Piece {
    pub fn content_range(&self, size: u64) -> String {
        // Go says `0--1` of nothing at the beginning.
        let last = i128::from(self.start) + i128::from(self.length) - 1;
        format!("bytes {}-{last}/{size}", self.start)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRange {
    Invalid,
    /// All of it lies behind the end.
    NoOverlap,
}

/// The pieces that are asked for. None: everything.
pub fn parse(header: &str, size: u64) -> Result<Vec<Piece>, BadRange> {
    let specs = header.strip_prefix("bytes=").ok_or(BadRange::Invalid)?;
    let mut pieces = Vec::new();
    let mut behind = false;
    for spec in specs.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        let (start, end) = spec.split_once('-').ok_or(BadRange::Invalid)?;
        let (start, end) = (start.trim(), end.trim());
        if start.is_empty() {
            let length = number(end)?.min(size);
            pieces.push(Piece { start: size - length, length });
            continue;
        }
        let start = number(start)?;
        if start >= size {
            behind = true;
            continue;
        }
        let last = if end.is_empty() { size - 1 } else { number(end)? };
        if last < start {
            return Err(BadRange::Invalid);
        }
        pieces.push(Piece { start, length: last.min(size - 1) - start + 1 });
    }
    if pieces.is_empty() && behind {
        // Some clients put a range into every request; an empty file is given whole.
        return if size == 0 { Ok(pieces) } else { Err(BadRange::NoOverlap) };
    }
    // Who wants more than there is wants it all.
    let total = pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.length));
    if total > size {
        pieces.clear();
    }
    Ok(pieces)
}

fn number(text: &str) -> Result<u64, BadRange> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadRange::Invalid);
    }
    digits.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok()).ok_or(BadRange::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_they_mean_to_go() {
        let piece = |start, length| Piece { start, length };
        for (header, expected) in [
            ("bytes=0-0", Ok(vec![piece(0, 1)])),
            ("bytes=2-", Ok(vec![piece(2, 8)])),
            ("bytes=2-99", Ok(vec![piece(2, 8)])),
            ("bytes=-3", Ok(vec![piece(7, 3)])),
            ("bytes=-99", Ok(vec![piece(0, 10)])),
            ("bytes= 0 - 1 ,, 3-4", Ok(vec![piece(0, 2), piece(3, 2)])),
            ("bytes=99-,0-1", Ok(vec![piece(0, 2)])),
            ("bytes=0-9,0-9", Ok(vec![])),
            ("bytes=", Ok(vec![])),
            ("bytes=10-", Err(BadRange::NoOverlap)),
            ("bytes=5-4", Err(BadRange::Invalid)),
            ("bytes=--1", Err(BadRange::Invalid)),
            ("bytes=1", Err(BadRange::Invalid)),
            ("bytes=99999999999999999999-", Err(BadRange::Invalid)),
            ("items=0-1", Err(BadRange::Invalid)),
        ] {
            assert_eq!(parse(header, 10), expected, "{header}");
        }
        assert_eq!(parse("bytes=0-", 0), Ok(vec![]));
        assert_eq!(parse("bytes=-0", 10), Ok(vec![piece(10, 0)]));
    }
}

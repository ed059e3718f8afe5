//! The few forms of DER that keys and stub requests are made of.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_ID: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;
pub const NULL: &[u8] = &[0x05, 0x00];

/// Tag, length, content.
pub fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        out.push(0x80 | bytes.len() as u8);
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(content);
    out
}

pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(SEQUENCE, &parts.concat())
}

/// Of a number that is not negative, as big-endian bytes.
pub fn integer(number: &[u8]) -> Vec<u8> {
    let zeroes = number.iter().take_while(|byte| **byte == 0).count();
    let digits = &number[zeroes.min(number.len().saturating_sub(1))..];
    // A first bit that is set would mean a negative number.
    let sign: &[u8] = if digits.first().is_none_or(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
    tagged(INTEGER, &[sign, digits].concat())
}

/// Of whole bytes.
pub fn bit_string(bytes: &[u8]) -> Vec<u8> {
    tagged(BIT_STRING, &[&[0], bytes].concat())
}

/// An algorithm with its parameters, which may be none.
pub fn algorithm(id: &[u8], parameters: &[u8]) -> Vec<u8> {
    sequence(&[&tagged(OBJECT_ID, id), parameters])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_have_their_shortest_form() {
        assert_eq!(tagged(OCTET_STRING, &[7; 3]), [4, 3, 7, 7, 7]);
        assert_eq!(tagged(OCTET_STRING, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(tagged(OCTET_STRING, &[0; 0x123])[..4], [4, 0x82, 0x01, 0x23]);
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(bit_string(&[1]), [3, 2, 0, 1]);
    }
}

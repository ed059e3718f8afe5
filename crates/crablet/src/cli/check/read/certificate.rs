//! From when until when a certificate is valid, and nothing else of it: that much of DER is small enough to read here.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::facts::Validity;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The explicit version of a certificate, which old ones leave out.
const VERSION: u8 = 0xa0;

/// Of each certificate in a PEM text.
pub fn validity(pem: &[u8]) -> Result<Vec<Validity>, &'static str> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "not a PEM file")?;
        found.push(of_certificate(&certificate).ok_or("not an X.509 certificate")?);
    }
    if found.is_empty() { Err("no certificate in it") } else { Ok(found) }
}

/// `Certificate { tbs { [version], serial, algorithm, issuer, validity { not before, not after }, ... }, ... }`
fn of_certificate(der: &[u8]) -> Option<Validity> {
    let (_, certificate, _) = element(der).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    if let Some((VERSION, _, after)) = element(rest) {
        rest = after;
    }
    for _ in ["serial", "algorithm", "issuer"] {
        (_, _, rest) = element(rest)?;
    }
    let (_, times, _) = element(rest).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (first_tag, first, times) = element(times)?;
    let (second_tag, second, _) = element(times)?;
    Some(Validity { not_before: time(first_tag, first)?, not_after: time(second_tag, second)? })
}

/// Tag, content, and what follows. Lengths of more than four bytes do not occur.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, short], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ`, where 50 is 1950 and 49 is 2049; or with the whole year.
fn time(tag: u8, content: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let whole = match tag {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let moment = DateTime::strptime("%Y%m%d%H%M%S", whole).ok()?;
    Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The usual alphabet; blanks and padding are passed over.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Made with `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=test`.
    pub const PEM: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBcjCCARmgAwIBAgIUKj8lTRNlz9J4CgtRWmdylTw7IAcwCgYIKoZIzj0EAwIw\n\
        DzENMAsGA1UEAwwEdGVzdDAeFw0yNjExMTUwODExMDdaFw0zNjExMTIwODExMDda\n\
        MA8xDTALBgNVBAMMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT+txhb\n\
        pgq1Oh+rW5YDEMCVNORywvTcFK+mvoxMCuLqttbjVHt1s3h/YZ6MYkC9fzypiRkp\n\
        hIo3dLrGOFWicnFBo1MwUTAdBgNVHQ4EFgQU1AAvmy3g+2SlIVCR6alJE9cdmnEw\n\
        HwYDVR0jBBgwFoAU1AAvmy3g+2SlIVCR6alJE9cdmnEwDwYDVR0TAQH/BAUwAwEB\n\
        /zAKBggqhkjOPQQDAgNHADBEAiBuDKzVSJ7lRdq3/juibcSNzyuGBkBode/TrDYq\n\
        ImJapgIgERNW/vh2S8mahgVi1vBHqFNueHyKH3RTDavyQtrlj7s=\n\
        -----END CERTIFICATE-----\n";
    pub const NOT_BEFORE: &str = "2026-11-15T08:11:07Z";
    pub const NOT_AFTER: &str = "2036-11-12T08:11:07Z";

    /// As a kubeconfig holds it.
    pub fn encoded() -> &'static str {
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJjakNDQVJtZ0F3SUJBZ0lVS2o4bFRSTmx6OUo0Q2d0UldtZHlsVHc3\
         SUFjd0NnWUlLb1pJemowRUF3SXcKRHpFTk1Bc0dBMVVFQXd3RWRHVnpkREFlRncweU5qRXhNVFV3T0RFeE1EZGFGdzB6TmpF\
         eE1USXdPREV4TURkYQpNQTh4RFRBTEJnTlZCQU1NQkhSbGMzUXdXVEFUQmdjcWhrak9QUUlCQmdncWhrak9QUU1CQndOQ0FB\
         VCt0eGhiCnBncTFPaCtyVzVZREVNQ1ZOT1J5d3ZUY0ZLK212b3hNQ3VMcXR0YmpWSHQxczNoL1laNk1Za0M5Znp5cGlSa3AK\
         aElvM2RMckdPRldpY25GQm8xTXdVVEFkQmdOVkhRNEVGZ1FVMUFBdm15M2crMlNsSVZDUjZhbEpFOWNkbW5FdwpId1lEVlIw\
         akJCZ3dGb0FVMUFBdm15M2crMlNsSVZDUjZhbEpFOWNkbW5Fd0R3WURWUjBUQVFIL0JBVXdBd0VCCi96QUtCZ2dxaGtqT1BR\
         UURBZ05IQURCRUFpQnVES3pWU0o3bFJkcTMvanVpYmNTTnp5dUdCa0JvZGUvVHJEWXEKSW1KYXBnSWdFUk5XL3ZoMlM4bWFo\
         Z1ZpMXZCSHFGTnVlSHlLSDNSVERhdnlRdHJsajdzPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="
    }

    #[test]
    fn validity_is_read_from_a_real_certificate() {
        let expected = Validity {
            not_before: NOT_BEFORE.parse().expect("a time"),
            not_after: NOT_AFTER.parse().expect("a time"),
        };
        assert_eq!(validity(PEM.as_bytes()), Ok(vec![expected]));
        let bundle = format!("{PEM}{PEM}");
        assert_eq!(validity(bundle.as_bytes()), Ok(vec![expected, expected]));
    }

    #[test]
    fn anything_else_is_told_and_never_panics() {
        assert_eq!(validity(b""), Err("no certificate in it"));
        assert_eq!(validity(b"hello"), Err("no certificate in it"));
        let empty = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(validity(empty), Err("not an X.509 certificate"));
        let der = CertificateDer::from_pem_slice(PEM.as_bytes()).expect("a certificate");
        for length in 0..der.len() {
            // Cut anywhere, it is never a panic.
            assert_eq!(of_certificate(&der[..length]), None, "{length}");
        }
        for at in 0..der.len() {
            let mut changed = der.to_vec();
            changed[at] ^= 0xff;
            of_certificate(&changed);
        }
    }

    #[test]
    fn both_forms_of_time_are_read() {
        for (tag, text, expected) in [
            (UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (UTC_TIME, "500101000000Z", Some("1950-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "20500101000000Z", Some("2050-01-01T00:00:00Z")),
            (UTC_TIME, "4912", None),
            (UTC_TIME, "Z", None),
            (GENERALIZED_TIME, "20501301000000Z", None),
            (SEQUENCE, "491231235959Z", None),
        ] {
            let expected = expected.map(|time| time.parse::<Timestamp>().expect("a time"));
            assert_eq!(time(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        for (text, expected) in [
            ("", Some("")),
            ("aGk=", Some("hi")),
            ("aGk", Some("hi")),
            ("aGVs\nbG8=", Some("hello")),
            ("a-b_", None),
        ] {
            assert_eq!(base64(text), expected.map(|text| text.as_bytes().to_vec()), "{text}");
        }
        assert_eq!(base64(encoded()).as_deref(), Some(PEM.as_bytes()));
    }
}

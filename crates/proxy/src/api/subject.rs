//! The subject of an X.509 certificate: as much DER as it takes to find a common name and organizations.
//!
//! Only for certificates that rustls has verified, so their shape is known to be right.

/// Who a certificate is for, in Kubernetes' reading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The common name.
    pub user: String,
    /// The organizations.
    pub groups: Vec<String>,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0] EXPLICIT`, the version, which the first version has not.
const VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// `None`: this is no certificate.
pub fn of(certificate: &[u8]) -> Option<Subject> {
    let mut certificate = certificate;
    let mut outer = expect(&mut certificate, SEQUENCE)?;
    let mut fields = expect(&mut outer, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        element(&mut fields)?;
    }
    let mut names = expect(&mut fields, SEQUENCE)?;
    let mut subject = Subject::default();
    while !names.is_empty() {
        let mut set = expect(&mut names, SET)?;
        while !set.is_empty() {
            let mut attribute = expect(&mut set, SEQUENCE)?;
            let kind = expect(&mut attribute, OBJECT_IDENTIFIER)?;
            let (_, value) = element(&mut attribute)?;
            let value = String::from_utf8_lossy(value).into_owned();
            match kind {
                COMMON_NAME => subject.user = value,
                ORGANIZATION => subject.groups.push(value),
                _ => {}
            }
        }
    }
    Some(subject)
}

fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(bytes).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// The next element's tag and content.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, length], mut rest) = bytes.split_first_chunk::<2>()?;
    let length = match length {
        short @ ..=0x7f => usize::from(short),
        long => {
            let (digits, after) = rest.split_at_checked(usize::from(long & 0x7f))?;
            rest = after;
            // More than four bytes of length is more than there is memory.
            let digits = digits.iter().take(5).map(|&byte| usize::from(byte));
            digits.fold(0, |length, byte| length << 8 | byte)
        }
    };
    let (content, after) = rest.split_at_checked(length)?;
    *bytes = after;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_are_found() {
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        let printable = DnValue::PrintableString("system:nodes".replace(':', "-").try_into().unwrap());
        let der = certificate(&[
            (DnType::CountryName, text("XX")),
            (DnType::OrganizationName, printable),
            (DnType::CommonName, text("system:node:a")),
        ]);
        let expected = Subject { user: "system:node:a".into(), groups: vec!["system-nodes".into()] };
        assert_eq!(of(&der), Some(expected));
    }

    #[test]
    fn several_organizations_are_several_groups() {
        // rcgen keeps only one: double it by hand, and mend the lengths of what it is in.
        let der = certificate(&[(DnType::OrganizationName, DnValue::Utf8String("one".into()))]);
        let set = [&[0x31, 12, 0x30, 10, 6, 3][..], ORGANIZATION, &[12, 3], b"one"].concat();
        let at = (0..der.len()).rev().find(|at| der[*at..].starts_with(&set)).unwrap();
        let mut fields = [&[SEQUENCE, 28][..], &set, &set].concat();
        fields[28..].copy_from_slice(b"tw");
        // Enough of a certificate: four fields that are skipped, and the subject.
        let skipped = [5, 0].repeat(4);
        let inner = [&[SEQUENCE, (skipped.len() + fields.len()) as u8][..], &skipped, &fields].concat();
        let outer = [&[SEQUENCE, inner.len() as u8][..], &inner].concat();
        assert!(at > 0);
        assert_eq!(of(&outer).unwrap().groups, ["one", "otw"]);
    }

    #[test]
    fn what_is_no_certificate_has_no_subject() {
        let der = certificate(&[(DnType::CommonName, DnValue::Utf8String("a".into()))]);
        for length in 0..der.len() {
            // No panic, whatever is missing.
            let _ = of(&der[..length]);
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(b"-----BEGIN CERTIFICATE-----"), None);
    }
}

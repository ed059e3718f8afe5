//! The keys of pods' certificates, and the stub requests that prove who has them.

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};

use super::{der, rsa};
use crate::pair::encode;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ECDSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// In upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("unknown key type {0:?}")]
    Unknown(String),
    #[error("while generating {0} key")]
    Generate(String),
    #[error("while generating stub PKCS#10 request")]
    Request,
}

/// A new key. Has no `Debug`.
pub struct NewKey {
    /// PKCS #8, as PEM.
    pub pem: String,
    /// A PKCS #10 request for nobody, signed with the key: DER.
    pub stub: Vec<u8>,
}

/// By the API's name of the kind. Those of RSA take seconds.
pub fn generate(kind: &str) -> Result<NewKey, KeyError> {
    match kind {
        "RSA3072" => of_rsa(3072),
        "RSA4096" => of_rsa(4096),
        "ECDSAP256" => of_curve(&ECDSA_P256_SHA256_ASN1_SIGNING, "ECDSA P256", P256, ECDSA_SHA256),
        "ECDSAP384" => of_curve(&ECDSA_P384_SHA384_ASN1_SIGNING, "ECDSA P384", P384, ECDSA_SHA384),
        "ECDSAP521" => of_p521(),
        "ED25519" => of_ed25519(),
        other => Err(KeyError::Unknown(other.to_owned())),
    }
}

fn of_rsa(bits: u32) -> Result<NewKey, KeyError> {
    let failed = || KeyError::Generate(format!("RSA {bits}"));
    let pkcs1 = rsa::generate(bits)?;
    // Not a key for ring unless its numbers fit each other.
    let pair = RsaKeyPair::from_der(&pkcs1).map_err(|_| failed())?;
    let algorithm = der::algorithm(RSA, der::NULL);
    let octets = der::tagged(der::OCTET_STRING, &pkcs1);
    let pkcs8 = der::sequence(&[&der::integer(&[0]), &algorithm, &octets]);
    let public = public_key(&algorithm, pair.public_key().as_ref());
    let stub = stub(&public, &der::algorithm(RSA_SHA256, der::NULL), |message| {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok()?;
        Some(signature)
    })?;
    Ok(NewKey { pem: encode("PRIVATE KEY", &pkcs8), stub })
}

fn of_curve(
    algorithm: &'static EcdsaSigningAlgorithm,
    name: &str,
    curve: &[u8],
    signature: &[u8],
) -> Result<NewKey, KeyError> {
    let failed = || KeyError::Generate(name.to_owned());
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| failed())?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).map_err(|_| failed())?;
    let public = public_key(&ec(curve), pair.public_key().as_ref());
    let stub = stub(&public, &der::algorithm(signature, &[]), |message| {
        pair.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec())
    })?;
    Ok(NewKey { pem: encode("PRIVATE KEY", pkcs8.as_ref()), stub })
}

/// ring has no such curve.
fn of_p521() -> Result<NewKey, KeyError> {
    use p521::ecdsa::signature::Signer;
    use p521::ecdsa::{DerSignature, SigningKey};
    use p521::elliptic_curve::Generate;

    let key = SigningKey::try_generate().map_err(|_| KeyError::Generate("ECDSA P521".to_owned()))?;
    let point = key.verifying_key().to_sec1_point(false);
    // RFC 5915, without the curve, which the envelope names.
    let secret = der::sequence(&[
        &der::integer(&[1]),
        &der::tagged(der::OCTET_STRING, &key.to_bytes()),
        &der::tagged(0xa1, &der::bit_string(point.as_bytes())),
    ]);
    let octets = der::tagged(der::OCTET_STRING, &secret);
    let pkcs8 = der::sequence(&[&der::integer(&[0]), &ec(P521), &octets]);
    let public = public_key(&ec(P521), point.as_bytes());
    let stub = stub(&public, &der::algorithm(ECDSA_SHA512, &[]), |message| {
        let signature: DerSignature = key.try_sign(message).ok()?;
        Some(signature.as_bytes().to_vec())
    })?;
    Ok(NewKey { pem: encode("PRIVATE KEY", &pkcs8), stub })
}

/// In the old form without the public key: the new one, which ring would make, is not understood by everybody.
fn of_ed25519() -> Result<NewKey, KeyError> {
    let failed = |_| KeyError::Generate("Ed25519".to_owned());
    let mut seed = [0_u8; 32];
    SystemRandom::new().fill(&mut seed).map_err(failed)?;
    let pair =
        Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Generate("Ed25519".to_owned()))?;
    let algorithm = der::algorithm(ED25519, &[]);
    let secret = der::tagged(der::OCTET_STRING, &der::tagged(der::OCTET_STRING, &seed));
    let pkcs8 = der::sequence(&[&der::integer(&[0]), &algorithm, &secret]);
    let public = public_key(&algorithm, pair.public_key().as_ref());
    let stub = stub(&public, &algorithm, |message| Some(pair.sign(message).as_ref().to_vec()))?;
    Ok(NewKey { pem: encode("PRIVATE KEY", &pkcs8), stub })
}

fn ec(curve: &[u8]) -> Vec<u8> {
    der::algorithm(EC, &der::tagged(der::OBJECT_ID, curve))
}

/// `SubjectPublicKeyInfo`
fn public_key(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    der::sequence(&[algorithm, &der::bit_string(key)])
}

/// A request with no subject and no attributes: all that it says is that its sender has the key.
fn stub(
    public: &[u8],
    algorithm: &[u8],
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, KeyError> {
    let info = der::sequence(&[&der::integer(&[0]), &der::sequence(&[]), public, &der::tagged(0xa0, &[])]);
    let signature = sign(&info).ok_or(KeyError::Request)?;
    Ok(der::sequence(&[&info, algorithm, &der::bit_string(&signature)]))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What openssl says to what it is given.
    fn openssl(arguments: &[&str], input: &[u8]) -> String {
        let mut child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{text}");
        text
    }

    #[test]
    fn keys_and_proofs_of_every_kind_are_understood_by_others() {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("nothing is tested: openssl is not installed");
            return;
        }
        for (kind, shown) in [
            ("RSA3072", "3072 bit"),
            ("RSA4096", "4096 bit"),
            ("ECDSAP256", "prime256v1"),
            ("ECDSAP384", "secp384r1"),
            ("ECDSAP521", "secp521r1"),
            ("ED25519", "ED25519"),
        ] {
            let NewKey { pem, stub } = generate(kind).unwrap();
            assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
            let key = openssl(&["pkey", "-noout", "-text", "-check"], pem.as_bytes());
            assert!(key.contains("Key is valid") && key.contains(shown), "{kind}: {}", key.len());
            let request = openssl(&["req", "-inform", "DER", "-noout", "-verify", "-pubkey"], &stub);
            assert!(request.contains("verify OK"), "{kind}: {request}");
            let of_key = openssl(&["pkey", "-pubout"], pem.as_bytes());
            assert!(request.contains(of_key.trim()), "{kind}: the proof is of another key");
        }
    }

    #[test]
    fn a_kind_that_nobody_knows_is_named() {
        let error = generate("DSA").err().unwrap();
        assert_eq!(error.to_string(), "unknown key type \"DSA\"");
    }
}

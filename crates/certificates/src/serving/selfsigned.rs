//! A pair that a certificate authority made for the moment has signed. Nobody can check it, but traffic is encrypted.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_host::{Clock, Files};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use tracing::info;

use super::ServingError;
use crate::pair::{LONGEST_FILE, signing_key};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Clients whose clocks are late take it too.
const BEFORE: Duration = Duration::from_secs(60 * 60);

/// The certificate's file and the key's, made if they are not there.
pub(super) async fn ensure(
    files: &dyn Files,
    clock: &dyn Clock,
    folder: &Path,
    host: &str,
    addresses: &[IpAddr],
) -> Result<(PathBuf, PathBuf), ServingError> {
    let (certificate_path, key_path) = (folder.join("kubelet.crt"), folder.join("kubelet.key"));
    let disk = |doing, path: &Path| {
        let path = path.to_owned();
        move |error| ServingError::Disk { doing, path, error }
    };
    let certificate_is_there =
        files.kind(&certificate_path).await.map_err(disk("read", &certificate_path))?.is_some();
    let key_is_there = files.kind(&key_path).await.map_err(disk("read", &key_path))?.is_some();
    let key = match (certificate_is_there, key_is_there) {
        (true, true) => return Ok((certificate_path, key_path)),
        (true, false) => return Err(ServingError::HalfAPair { missing: key_path }),
        // The key is written first: this is what a death in between leaves.
        (false, true) => {
            let pem = files.read(&key_path, LONGEST_FILE).await.map_err(disk("read", &key_path))?;
            signing_key(&pem).ok_or_else(|| ServingError::HalfAPair { missing: certificate_path.clone() })?
        }
        (false, false) => {
            let key = KeyPair::generate()?;
            files.create_folder(folder, 0o755).await.map_err(disk("create", folder))?;
            let pem = key.serialize_pem();
            files.write_atomic(&key_path, pem.as_bytes(), 0o600).await.map_err(disk("write", &key_path))?;
            key
        }
    };
    let chain = chain(&key, clock.now().as_second(), host, addresses)?;
    let written = files.write_atomic(&certificate_path, chain.as_bytes(), 0o644).await;
    written.map_err(disk("write", &certificate_path))?;
    info!(TLSCertFile = %certificate_path.display(), TLSPrivateKeyFile = %key_path.display(), "Using self-signed cert");
    Ok((certificate_path, key_path))
}

/// The certificate and, after it, that of its authority, whose key is forgotten at once.
fn chain(key: &KeyPair, now: i64, host: &str, addresses: &[IpAddr]) -> Result<String, rcgen::Error> {
    let mut authority = params(format!("{host}-ca@{now}"), now);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let authority_pem = authority.self_signed(&authority_key)?.pem();

    let mut leaf = params(format!("{host}@{now}"), now);
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.subject_alt_names.push(match host.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(host.try_into()?),
    });
    leaf.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    let leaf_pem = leaf.signed_by(key, &Issuer::new(authority, authority_key))?.pem();
    Ok(format!("{leaf_pem}{authority_pem}").replace('\r', ""))
}

fn params(name: String, now: i64) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    let since_1970 = Duration::from_secs(u64::try_from(now).unwrap_or_default());
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970.saturating_sub(BEFORE);
    params.not_after = params.not_before + YEAR;
    params
}

//! The certificates of one cluster: its own authority, a second one for the front proxy, and the key that signs
//! service account tokens.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Where an [`Identity`] lies on disk.
#[derive(Debug, Clone)]
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An authority that signs for one purpose.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Result<Authority> {
        let mut params = base_params(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { certificate, issuer: Issuer::new(params, key) })
    }

    /// Its own certificate, for those who are to trust it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// For a client: Kubernetes takes the common name for the user and the organisation for the group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        self.sign(base_params(user, group), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// For a server that is reached under these names and addresses.
    pub fn server(&self, name: &str, dns: &[&str], addresses: &[IpAddr]) -> Result<Identity> {
        let mut params = base_params(name, None);
        for dns in dns {
            params.subject_alt_names.push(SanType::DnsName((*dns).try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

fn base_params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    // No test is about their end, and a machine's clock may be off.
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}

/// All keys of a cluster, with those files that its programs read.
pub struct Pki {
    dir: PathBuf,
    pub cluster: Authority,
    pub front_proxy: Authority,
}

impl Pki {
    /// Makes the authorities and the service account key in `dir`.
    pub fn create(dir: &Path) -> Result<Pki> {
        fs::create_dir_all(dir)?;
        let pki = Pki {
            dir: dir.to_owned(),
            cluster: Authority::new("crablet-testbed-ca")?,
            front_proxy: Authority::new("crablet-testbed-front-proxy-ca")?,
        };
        write(&pki.ca_file(), pki.cluster.certificate())?;
        // The controller manager signs certificate requests with it.
        write(&pki.ca_key_file(), &pki.cluster.issuer.key().serialize_pem())?;
        write(&pki.front_proxy_ca_file(), pki.front_proxy.certificate())?;
        let accounts = KeyPair::generate()?;
        write(&pki.account_key_file(), &accounts.serialize_pem())?;
        write(&pki.account_public_key_file(), &accounts.public_key_pem())?;
        Ok(pki)
    }

    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub fn ca_key_file(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    pub fn front_proxy_ca_file(&self) -> PathBuf {
        self.dir.join("front-proxy-ca.crt")
    }

    pub fn account_key_file(&self) -> PathBuf {
        self.dir.join("service-accounts.key")
    }

    pub fn account_public_key_file(&self) -> PathBuf {
        self.dir.join("service-accounts.pub")
    }

    /// Writes an identity as `<name>.crt` and `<name>.key`.
    pub fn put(&self, name: &str, identity: &Identity) -> Result<IdentityFiles> {
        let files = IdentityFiles {
            certificate: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        };
        write(&files.certificate, &identity.certificate)?;
        write(&files.key, &identity.key)?;
        Ok(files)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    // The scratch folder itself is closed to other users.
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

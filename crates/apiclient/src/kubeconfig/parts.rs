//! What a kubeconfig is made of, for who writes another one or brings the certificate by other means. Used by the
//! program's `process/join.rs`.

use std::path::Path;

use super::{Kubeconfig, Material};

impl Kubeconfig {
    pub fn server(&self) -> &str {
        &self.cluster.server
    }

    /// Who signs for the server: a file, or PEM that stands in the kubeconfig itself.
    pub fn authority(&self) -> Option<Result<&Path, &[u8]>> {
        self.cluster.authority.as_ref().map(|authority| match authority {
            Material::File(path) => Ok(path.as_path()),
            Material::Inline(pem) => Err(pem.as_slice()),
        })
    }

    /// The name that the server's certificate is checked for, if it is not the one in its address.
    pub fn tls_server_name(&self) -> Option<&str> {
        self.cluster.tls_server_name.as_deref()
    }

    /// The server's certificate is not checked.
    pub fn is_insecure(&self) -> bool {
        self.cluster.insecure
    }

    /// Certificate and key of the user, where both stand in the kubeconfig itself.
    pub fn inline_pair(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        match self.user.certificate.as_ref().map(|pair| (&pair.certificate, &pair.key))? {
            (Material::Inline(certificate), Material::Inline(key)) => {
                Some((certificate.clone(), key.clone()))
            }
            _ => None,
        }
    }

    /// The files of the user's certificate and key, where both are files.
    pub fn pair_files(&self) -> Option<(&Path, &Path)> {
        let pair = self.user.certificate.as_ref()?;
        Some((pair.certificate.file()?, pair.key.file()?))
    }

    /// Without the user's certificate: for who gives it to the client by other means.
    pub fn without_certificate(mut self) -> Self {
        self.user.certificate = None;
        self
    }
}

//! Kubeconfig, certificates and keys.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::facts::{Certificate, Credentials, Identity, Kubeconfig, Owned, Read, Secret, Unread};
use super::super::wanted::Wanted;
use super::certificate::{base64, validity};
use super::{bytes, failed, text};

pub fn read(wanted: &Wanted) -> Credentials {
    let mut found = Credentials {
        bootstrap: wanted.bootstrap_kubeconfig.as_ref().is_some_and(|path| path.exists()),
        ..Credentials::default()
    };
    if let Some(path) = &wanted.kubeconfig {
        found.kubeconfig = Some(kubeconfig(path, &mut found));
        found.secrets.push(secret("kubeconfig mode", path));
    }
    for (role, path) in
        [("client CA", &wanted.client_ca), ("serving certificate", &wanted.serving_certificate)]
    {
        found.certificates.extend(path.as_ref().map(|path| from_file(role, path)));
    }
    found.secrets.extend(wanted.serving_key.as_ref().map(|path| secret("serving key", path)));
    found
}

/// What there is to say when none of it could be had in time.
pub fn unread(wanted: &Wanted, why: &Unread) -> Credentials {
    Credentials { kubeconfig: wanted.kubeconfig.as_ref().map(|_| Err(why.clone())), ..Credentials::default() }
}

pub fn owned_if_there(path: &Path) -> Read<Option<Owned>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(owned(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

fn owned(found: &fs::Metadata) -> Owned {
    Owned { uid: found.uid(), gid: found.gid(), mode: found.mode(), folder: found.is_dir() }
}

fn secret(role: &'static str, path: &Path) -> Secret {
    let owned = fs::metadata(path).map(|found| owned(&found)).map_err(failed);
    Secret { role, path: path.to_owned(), owned }
}

fn from_file(role: &'static str, path: &Path) -> Certificate {
    let validity = bytes(path).and_then(|pem| validity(&pem).map_err(failed));
    Certificate { role, source: path.display().to_string(), validity }
}

fn kubeconfig(path: &Path, found: &mut Credentials) -> Read<Kubeconfig> {
    let value: Value = serde_saphyr::from_str(&text(path)?).map_err(|error| {
        failed(format!("not YAML: {}", error.to_string().lines().next().unwrap_or_default()))
    })?;
    let context = entry(&value, "contexts", "context", &value["current-context"]);
    let cluster = entry(&value, "clusters", "cluster", &context["cluster"]);
    let user = entry(&value, "users", "user", &context["user"]);
    let home = path.parent().unwrap_or(Path::new("/"));
    found.certificates.extend(held(
        &cluster["certificate-authority"],
        &cluster["certificate-authority-data"],
        home,
        "cluster's CA",
    ));
    found.certificates.extend(held(
        &user["client-certificate"],
        &user["client-certificate-data"],
        home,
        "client certificate",
    ));
    found.secrets.extend(file(&user["client-key"], home).map(|path| secret("client key", &path)));
    Ok(Kubeconfig {
        server: cluster["server"].as_str().unwrap_or_default().to_owned(),
        insecure: cluster["insecure-skip-tls-verify"].as_bool().unwrap_or(false),
        identity: identity(user),
    })
}

/// The named entry of a list such as `clusters: [{name: a, cluster: {...}}]`; nothing where there is none.
fn entry<'a>(value: &'a Value, list: &str, kind: &str, name: &Value) -> &'a Value {
    let entries = value[list].as_array().into_iter().flatten();
    let found = entries.into_iter().find(|entry| name.is_string() && entry["name"] == *name);
    found.map_or(&Value::Null, |entry| &entry[kind])
}

fn identity(user: &Value) -> Identity {
    let has = |names: &[&str]| names.iter().any(|name| !user[*name].is_null());
    if has(&["client-certificate", "client-certificate-data"]) {
        Identity::Certificate
    } else if has(&["token", "tokenFile"]) {
        Identity::Token
    } else if has(&["exec", "auth-provider"]) {
        Identity::Program
    } else if has(&["username"]) {
        Identity::Password
    } else {
        Identity::None
    }
}

/// Paths in a kubeconfig are relative to it.
fn file(path: &Value, home: &Path) -> Option<PathBuf> {
    path.as_str().filter(|path| !path.is_empty()).map(|path| home.join(path))
}

/// A certificate in the kubeconfig itself wins over one in a file beside it.
fn held(path: &Value, data: &Value, home: &Path, role: &'static str) -> Option<Certificate> {
    if let Some(data) = data.as_str().filter(|data| !data.is_empty()) {
        let pem = base64(data).ok_or_else(|| failed("not base64"));
        let validity = pem.and_then(|pem| validity(&pem).map_err(failed));
        return Some(Certificate { role, source: "in the kubeconfig".to_owned(), validity });
    }
    file(path, home).map(|path| from_file(role, &path))
}

#[cfg(test)]
mod tests {
    use super::super::certificate::tests::{NOT_AFTER, PEM, encoded};
    use super::*;

    fn read_text(text: &str) -> (Read<Kubeconfig>, Credentials) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.crt"), PEM).expect("a file");
        let path = folder.path().join("kubelet.conf");
        fs::write(&path, text).expect("a file");
        let mut found = Credentials::default();
        (kubeconfig(&path, &mut found), found)
    }

    #[test]
    fn the_current_context_is_followed() {
        let text = format!(
            "current-context: b\ncontexts:\n- {{name: a, context: {{cluster: x, user: y}}}}\n\
             - {{name: b, context: {{cluster: c, user: u}}}}\nclusters:\n\
             - {{name: c, cluster: {{server: 'https://api:6443', certificate-authority: ca.crt}}}}\nusers:\n\
             - {{name: u, user: {{client-certificate-data: {}}}}}\n",
            encoded()
        );
        let (kubeconfig, found) = read_text(&text);
        let expected = Kubeconfig {
            server: "https://api:6443".into(),
            insecure: false,
            identity: Identity::Certificate,
        };
        assert_eq!(kubeconfig, Ok(expected));
        let roles: Vec<_> = found.certificates.iter().map(|one| one.role).collect();
        assert_eq!(roles, ["cluster's CA", "client certificate"]);
        for certificate in found.certificates {
            let valid = certificate.validity.expect("a certificate");
            assert_eq!(valid[0].not_after, NOT_AFTER.parse().expect("a time"));
        }
    }

    #[test]
    fn odd_kubeconfigs_are_told_and_never_panic() {
        for text in ["", "[]", "7", "contexts: 7", "current-context: gone", "clusters: [7, {name: a}]"] {
            let (kubeconfig, found) = read_text(text);
            assert_eq!(kubeconfig.unwrap_or_default(), Kubeconfig::default(), "{text}");
            assert!(found.certificates.is_empty(), "{text}");
        }
        assert!(read_text("a: b: c: [").0.is_err());
    }
}

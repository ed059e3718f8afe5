//! Manifests, kubeconfig, certificates and keys: are they there, still valid, and nobody else's?

use std::path::Path;

use jiff::Timestamp;

use super::super::facts::{
    Certificate, Clock, Credentials, Identity, Kubeconfig, Owned, Read, Secret, Unread,
};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;

const GROUP: Group = Group("files");

/// Sooner than this, somebody should renew it.
const SOON_SECONDS: i64 = 14 * 24 * 3600;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const OPEN_TO_OTHERS: u32 = 0o077;

pub fn judge(wanted: &Wanted, credentials: &Credentials, clock: &Clock) -> Vec<Finding> {
    let mut found = Vec::new();
    if let (Some(path), Some(kubeconfig)) = (&wanted.kubeconfig, &credentials.kubeconfig) {
        found.push(judge_kubeconfig(path, kubeconfig, wanted, credentials.bootstrap));
    }
    found
        .extend(credentials.certificates.iter().map(|certificate| judge_certificate(certificate, clock.now)));
    found.extend(credentials.secrets.iter().filter_map(judge_secret));
    found
}

/// Whoever can write there runs what they like, as root.
pub fn static_pods(wanted: &Wanted, owned: &Read<Option<Owned>>) -> Option<Finding> {
    let path = wanted.static_pod_path.as_ref()?.display();
    let title = "static pods";
    Some(match owned {
        Err(why) => GROUP.unread(title, why),
        Ok(None) => GROUP.warning(
            title,
            format!("{path} does not exist; the agent waits for it"),
            format!("`mkdir -p {path}`"),
        ),
        Ok(Some(owned))
            if owned.mode & WRITABLE_BY_OTHERS != 0 && !(owned.gid == 0 && owned.mode & 0o002 == 0) =>
        {
            GROUP.error(
                title,
                format!("others than root can write to {path} (mode {:04o})", owned.mode & 0o7777),
                format!("`chmod go-w {path}`: who writes there can run anything as root"),
            )
        }
        Ok(Some(owned)) if owned.uid != 0 => GROUP.warning(
            title,
            format!("{path} belongs to user {}", owned.uid),
            format!("`chown root:root {path}`: who owns it can run anything as root"),
        ),
        Ok(Some(owned)) => {
            GROUP.ok(title, format!("{} {path}", if owned.folder { "folder" } else { "file" }))
        }
    })
}

fn judge_kubeconfig(path: &Path, kubeconfig: &Read<Kubeconfig>, wanted: &Wanted, bootstrap: bool) -> Finding {
    let path = path.display();
    let kubeconfig = match kubeconfig {
        Ok(kubeconfig) => kubeconfig,
        Err(_) if bootstrap => {
            let with = wanted.bootstrap_kubeconfig.as_deref().unwrap_or(Path::new("")).display();
            return GROUP.ok("kubeconfig", format!("{path} will be made with {with}"));
        }
        Err(why) => {
            let fix = "join the cluster (`kubeadm join`), which writes it; or leave it out to run standalone";
            return GROUP.error("kubeconfig", format!("{path}: {why}"), fix);
        }
    };
    if kubeconfig.server.is_empty() {
        return GROUP.error(
            "kubeconfig",
            format!("{path} names no server in its current context"),
            "set `current-context` to one that has a cluster with a `server`",
        );
    }
    if kubeconfig.identity == Identity::None {
        return GROUP.warning(
            "kubeconfig",
            format!("{path} says nothing about who the node is"),
            "give its user a client certificate or a token",
        );
    }
    if kubeconfig.insecure {
        return GROUP.warning(
            "kubeconfig",
            format!("{path} does not verify {}", kubeconfig.server),
            "replace `insecure-skip-tls-verify` by the cluster's `certificate-authority`",
        );
    }
    let by = match kubeconfig.identity {
        Identity::Certificate => "a certificate",
        Identity::Token => "a token",
        Identity::Program => "a program",
        Identity::Password => "a password",
        Identity::None => "nothing",
    };
    GROUP.ok("kubeconfig", format!("{path}: {} by {by}", kubeconfig.server))
}

/// A bundle is as good as its best certificate; a chain names its own first.
fn judge_certificate(certificate: &Certificate, now: Timestamp) -> Finding {
    let (role, source) = (certificate.role, &certificate.source);
    let validity = match &certificate.validity {
        Ok(validity) => validity,
        Err(why) => return unusable(role, source, why),
    };
    let bundle = role.ends_with("CA");
    let one = if bundle { validity.iter().max_by_key(|one| one.not_after) } else { validity.first() };
    let Some(one) = one else {
        return GROUP.error(role, format!("{source} holds no certificate"), "put a PEM certificate there");
    };
    let until = one.not_after.strftime("%Y-%m-%d");
    let fix = if bundle {
        "renew the CA, and give the new one to every node"
    } else {
        "renew it (`kubeadm certs renew`, or a new `kubeadm join`)"
    };
    if one.not_after <= now {
        GROUP.error(role, format!("{source} has expired on {until}"), fix)
    } else if one.not_before > now {
        let since = one.not_before.strftime("%Y-%m-%d %H:%M:%SZ");
        GROUP.error(role, format!("{source} is not valid before {since}"), "set the clock, or wait")
    } else if one.not_after.duration_since(now).as_secs() < SOON_SECONDS {
        GROUP.warning(role, format!("{source} expires on {until}"), fix)
    } else {
        GROUP.ok(role, format!("{source}: valid until {until}"))
    }
}

fn unusable(role: &str, source: &str, why: &Unread) -> Finding {
    GROUP.error(role, format!("{source}: {why}"), "put a readable PEM file there, or leave the setting out")
}

/// A file that cannot be had at all is told by whoever needs what is in it, except for keys.
fn judge_secret(secret: &Secret) -> Option<Finding> {
    let path = secret.path.display();
    match &secret.owned {
        Ok(owned) if owned.mode & OPEN_TO_OTHERS != 0 => Some(GROUP.warning(
            secret.role,
            format!("{path} is open to others than its owner (mode {:04o})", owned.mode & 0o7777),
            format!("`chmod 600 {path}`"),
        )),
        Ok(_) => Some(GROUP.ok(secret.role, format!("{path}: for its owner only"))),
        Err(_) if secret.role == "kubeconfig mode" => None,
        Err(why) => Some(unusable(secret.role, &path.to_string(), why)),
    }
}

//! What a node in a cluster needs.

use std::path::PathBuf;

use serde_json::Value;

use super::{duration, path, texts};
use crate::settings::{Authentication, Authorization, ChangeDetection, Taint, TlsVersion};
use crate::tree::{Origin, Tree};

/// The path that somebody gave. The default is the name of a file that is made, so it may be missing.
pub fn said_path(tree: &Tree, key: &str) -> Option<PathBuf> {
    path(tree, key).filter(|_| tree.origin(key) != Origin::Default)
}

pub fn tls_version(tree: &Tree, warnings: &mut Vec<String>) -> TlsVersion {
    const KEY: &str = "tlsMinVersion";
    match tree.text(KEY) {
        "VersionTLS13" => TlsVersion::Tls13,
        old @ ("VersionTLS10" | "VersionTLS11") => {
            warnings.push(format!("{KEY} is {old}: VersionTLS12 is the oldest that is served"));
            TlsVersion::Tls12
        }
        _ => TlsVersion::Tls12,
    }
}

pub fn authentication(tree: &Tree) -> Authentication {
    Authentication {
        client_ca_file: path(tree, "authentication.x509.clientCAFile"),
        anonymous: tree.is("authentication.anonymous.enabled"),
        webhook: tree.is("authentication.webhook.enabled"),
        webhook_cache_ttl: duration(tree, "authentication.webhook.cacheTTL"),
    }
}

pub fn authorization(tree: &Tree) -> Authorization {
    Authorization {
        webhook: tree.text("authorization.mode") == "Webhook",
        allow_ttl: duration(tree, "authorization.webhook.cacheAuthorizedTTL"),
        deny_ttl: duration(tree, "authorization.webhook.cacheUnauthorizedTTL"),
    }
}

pub fn taints(tree: &Tree) -> Vec<Taint> {
    let part = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let taint = |item: &Value| Taint {
        key: part(item, "key"),
        value: part(item, "value"),
        effect: part(item, "effect"),
    };
    tree.items("registerWithTaints").iter().map(taint).collect()
}

pub fn change_detection(tree: &Tree) -> ChangeDetection {
    match tree.text("configMapAndSecretChangeDetectionStrategy") {
        "Get" => ChangeDetection::Get,
        "Cache" => ChangeDetection::Cache,
        _ => ChangeDetection::Watch,
    }
}

/// `none` stands alone and means nothing.
pub fn enforcements(tree: &Tree) -> Vec<String> {
    let mut levels = texts(tree, "enforceNodeAllocatable");
    levels.retain(|level| level != "none");
    levels
}

//! Ports, TLS, and who may ask.

use super::Check;
use crate::value;

/// TLS 1.3's own suites are in the list because upstream accepts their names.
const CIPHERS: [&str; 13] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Accepted with a warning, as upstream does.
const INSECURE: [&str; 11] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// The old names of two suites, and one more that is insecure.
const ALIASES: [&str; 3] = [
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

pub(super) fn check(check: &mut Check<'_>) {
    ciphers(check);
    let version = check.tree.text("tlsMinVersion");
    if !["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"].contains(&version) {
        let message = format!("unknown tls version {version:?}");
        check.refuse("tlsMinVersion", message, "give `VersionTLS12` or `VersionTLS13`");
    }
    if check.tree.is("serverTLSBootstrap") && !check.gates.enabled("RotateKubeletServerCertificate") {
        let message = "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate";
        check.invalid("serverTLSBootstrap", message, "leave it out, or switch the gate on");
    }
    let mode = check.tree.text("authorization.mode");
    if !["AlwaysAllow", "Webhook"].contains(&mode) {
        let message = format!("unknown authorization mode {mode}");
        check.refuse("authorization.mode", message, "give `AlwaysAllow` or `Webhook`");
    }
    if check.tree.is("enableSystemLogQuery") && !check.tree.is("enableSystemLogHandler") {
        let message = "enableSystemLogHandler is required for enableSystemLogQuery";
        check.invalid("enableSystemLogQuery", message, "set `enableSystemLogHandler: true` as well");
    }
    addresses(check);
    url(check);
}

fn ciphers(check: &mut Check<'_>) {
    const KEY: &str = "tlsCipherSuites";
    let tree = check.tree;
    for name in tree.texts(KEY) {
        if INSECURE.contains(&name) || name == ALIASES[2] {
            check.warnings.push(format!("Use of insecure cipher detected: {name}"));
        } else if !CIPHERS.contains(&name) && !ALIASES.contains(&name) {
            let hint = match crate::error::nearest(name, CIPHERS.into_iter()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => "give names such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`".to_owned(),
            };
            check.refuse(KEY, format!("Cipher suite {name} not supported or doesn't exist"), hint);
        }
    }
}

fn addresses(check: &mut Check<'_>) {
    for key in ["address", "healthzBindAddress"] {
        let text = check.tree.text(key);
        if value::ip(text).is_none() {
            let message = format!("{}: {text:?} is not a valid IP address", check.title(key));
            check.refuse(key, message, "give an IP address, such as `0.0.0.0`");
        }
    }
    // Upstream logs it and goes on without it; so do we.
    let tree = check.tree;
    for text in tree.texts("clusterDNS").into_iter().filter(|text| value::ip(text).is_none()) {
        check.warnings.push(format!("Invalid clusterDNS IP {text:?}"));
    }
}

fn url(check: &mut Check<'_>) {
    const KEY: &str = "staticPodURL";
    let url = check.tree.text(KEY);
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let usable = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
    if !url.is_empty() && (!usable || url.contains(|c: char| c.is_whitespace() || c.is_control())) {
        // The address may hold a password: it is not repeated.
        let message = format!("{} is not an http or https address", check.title(KEY));
        check.refuse(KEY, message, "write it like `https://example.com/pods.yaml`");
    }
    const HEADERS: &str = "staticPodURLHeader";
    let title = check.title(HEADERS);
    for (name, values) in check.tree.get(HEADERS).and_then(serde_json::Value::as_object).into_iter().flatten()
    {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let control = |value: &str| value.contains(|c: char| c.is_control() && c != '\t');
        if name.is_empty() || !name.chars().all(token) {
            let message = format!("{title} has the name {name:?}");
            check.refuse(HEADERS, message, "header names are letters, digits and dashes");
        } else if values.as_array().into_iter().flatten().filter_map(|value| value.as_str()).any(control) {
            let message = format!("{title} {name:?} has a control character in its value");
            check.refuse(HEADERS, message, "header values are one line of text");
        }
    }
}

//! `CredentialProviderConfig`: which programs know credentials, and for which images. Upstream's rules and words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

const GROUP: &str = "kubelet.config.k8s.io";
const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

/// A program, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub program: PathBuf,
    /// Hosts may have wildcards.
    pub match_images: Vec<String>,
    pub default_cache_duration: Duration,
    /// Of requests and responses.
    pub api_version: String,
    pub args: Vec<String>,
    /// Added to the agent's own environment.
    pub env: Vec<(String, String)>,
    /// What of the pod's service account the program is told.
    pub tokens: Option<Tokens>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub audience: String,
    /// Pods without a service account are not asked for.
    pub required: bool,
    pub required_annotations: Vec<String>,
    pub optional_annotations: Vec<String>,
    /// An answer holds for one token only, and not for all of the service account.
    pub per_token: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "was looked at before")]
    api_version: String,
    #[expect(dead_code, reason = "was looked at before")]
    kind: String,
    #[serde(default)]
    providers: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<String>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    token_attributes: Option<TokenAttributes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenAttributes {
    #[serde(default)]
    service_account_token_audience: String,
    #[serde(default)]
    cache_type: String,
    require_service_account: Option<bool>,
    #[serde(default)]
    required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    optional_service_account_annotation_keys: Vec<String>,
}

/// Takes the files of a configuration in, one after the other. `tokens`: the gate
/// `KubeletServiceAccountTokenForCredentialProviders`.
pub fn parse(files: &[(PathBuf, String)], bin_dir: &Path, tokens: bool) -> Result<Vec<Provider>, String> {
    let mut entries = Vec::new();
    let mut names = BTreeSet::new();
    for (path, text) in files {
        let file =
            decode(text).map_err(|why| format!("error decoding config {:?}: {why}", path.display()))?;
        for entry in file.providers.unwrap_or_default() {
            if !names.insert(entry.name.clone()) {
                return Err(format!(
                    "duplicate provider name {:?} found in configuration file(s)",
                    entry.name
                ));
            }
            entries.push(entry);
        }
    }
    let mut wrong = Vec::new();
    if entries.is_empty() {
        wrong.push("providers: Required value: at least 1 item in plugins is required".to_owned());
    }
    entries.iter().for_each(|entry| check(entry, tokens, &mut wrong));
    match &wrong[..] {
        [] => Ok(entries.into_iter().map(|entry| provider(entry, bin_dir)).collect()),
        [one] => Err(format!("failed to validate credential provider config: {one}")),
        many => Err(format!("failed to validate credential provider config: [{}]", many.join(", "))),
    }
}

fn decode(text: &str) -> Result<File, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let said = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (said("kind"), said("apiVersion"));
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if kind != "CredentialProviderConfig" {
        return Err(format!("failed to decode {kind:?} (wrong Kind)"));
    }
    match api_version.split_once('/') {
        Some((GROUP, "v1" | "v1beta1" | "v1alpha1")) => {}
        Some((GROUP, _)) | None => {
            return Err(format!(
                "no kind \"CredentialProviderConfig\" is registered for version {api_version:?}"
            ));
        }
        Some((group, _)) => {
            return Err(format!("failed to decode CredentialProviderConfig, unexpected Group: {group}"));
        }
    }
    serde_json::from_value(value).map_err(|error| format!("strict decoding error: {error}"))
}

fn check(entry: &Entry, tokens: bool, wrong: &mut Vec<String>) {
    let name = &entry.name;
    let mut invalid_name = |why: &str| wrong.push(format!("providers.name: Invalid value: {name:?}: {why}"));
    if name.contains('/') {
        invalid_name("provider name cannot contain '/'");
    }
    if name.contains(' ') {
        invalid_name("provider name cannot contain spaces");
    }
    match name.as_str() {
        "" => wrong.push("providers.name: Required value".to_owned()),
        "." => invalid_name("provider name cannot be '.'"),
        ".." => invalid_name("provider name cannot be '..'"),
        _ => {}
    }
    if entry.api_version.is_empty() {
        wrong.push("providers.apiVersion: Required value".to_owned());
    } else if !VERSIONS.contains(&entry.api_version.as_str()) {
        wrong.push(not_supported("providers.apiVersion", &entry.api_version, &VERSIONS));
    }
    if entry.match_images.is_empty() {
        wrong.push(
            "providers.matchImages: Required value: at least 1 item in matchImages is required".to_owned(),
        );
    }
    for place in &entry.match_images {
        if place.contains(|c: char| c.is_whitespace() || c.is_control()) || place.contains("://") {
            wrong.push(format!(
                "providers.matchImages: Invalid value: {place:?}: match image is invalid: write a host with an optional port and path"
            ));
        }
    }
    match entry.default_cache_duration.as_deref() {
        None => wrong.push("providers.defaultCacheDuration: Required value".to_owned()),
        Some(text) if text.starts_with('-') => wrong.push(format!(
            "providers.defaultCacheDuration: Invalid value: {text:?}: must be greater than or equal to 0"
        )),
        Some(text) => {
            if let Err(error) = crablet_model::duration::parse(text) {
                wrong.push(format!("providers.defaultCacheDuration: Invalid value: {text:?}: {error}"));
            }
        }
    }
    if let Some(attributes) = &entry.token_attributes {
        check_tokens(attributes, &entry.api_version, tokens, wrong);
    }
}

fn check_tokens(of: &TokenAttributes, api_version: &str, tokens: bool, wrong: &mut Vec<String>) {
    let mut say = |field: &str, what: &str| wrong.push(format!("providers.tokenAttributes{field}: {what}"));
    if !tokens {
        say(
            "",
            "Forbidden: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled",
        );
    }
    if of.service_account_token_audience.is_empty() {
        say(".serviceAccountTokenAudience", "Required value");
    }
    if of.require_service_account.is_none() {
        say(".requireServiceAccount", "Required value");
    }
    if api_version != VERSIONS[0] {
        say("", &format!("Forbidden: tokenAttributes is only supported for {} API version", VERSIONS[0]));
    }
    let (required, optional) =
        (&of.required_service_account_annotation_keys, &of.optional_service_account_annotation_keys);
    if of.require_service_account == Some(false) && !required.is_empty() {
        say(
            ".requiredServiceAccountAnnotationKeys",
            "Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        );
    }
    let both: Vec<_> = required.iter().filter(|key| optional.contains(key)).collect();
    if !both.is_empty() {
        say("", &format!("Invalid value: {both:?}: annotation keys cannot be both required and optional"));
    }
    if of.cache_type.is_empty() {
        say(
            ".cacheType",
            "Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token",
        );
    } else if !CACHE_TYPES.contains(&of.cache_type.as_str()) {
        wrong.push(not_supported("providers.tokenAttributes.cacheType", &of.cache_type, &CACHE_TYPES));
    }
}

fn not_supported(field: &str, value: &str, supported: &[&str]) -> String {
    let supported: Vec<_> = supported.iter().map(|word| format!("{word:?}")).collect();
    format!("{field}: Unsupported value: {value:?}: supported values: {}", supported.join(", "))
}

/// Of an entry that was checked.
fn provider(entry: Entry, bin_dir: &Path) -> Provider {
    let duration =
        entry.default_cache_duration.as_deref().and_then(|t| crablet_model::duration::parse(t).ok());
    Provider {
        program: bin_dir.join(&entry.name),
        name: entry.name,
        match_images: entry.match_images,
        default_cache_duration: duration.unwrap_or_default(),
        api_version: entry.api_version,
        args: entry.args.unwrap_or_default(),
        env: entry.env.unwrap_or_default().into_iter().map(|v| (v.name, v.value)).collect(),
        tokens: entry.token_attributes.map(|of| Tokens {
            audience: of.service_account_token_audience,
            required: of.require_service_account.unwrap_or(true),
            required_annotations: of.required_service_account_annotation_keys,
            optional_annotations: of.optional_service_account_annotation_keys,
            per_token: of.cache_type == "Token",
        }),
    }
}

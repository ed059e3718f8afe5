//! Static pod manifests: bytes in, a defaulted and validated pod out.
//!
//! ```text
//! bytes ─ parse ─> JSON value ─ decode ─> Pod ─ defaults ─> uid ─> identity ─> validate ─> references ─> supported ─> Decoded
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `parse` | YAML or JSON into a value; the first document counts |
//! | `decode` | the value into a typed pod; names the field of each wrong type and each unknown field |
//! | `nulls` | empty values for nulls that upstream reads as such |
//! | `defaults` | what the API server would have filled in |
//! | `uid` | the UID, if the manifest has none: upstream's hash of the pod |
//! | `identity` | name suffix, namespace, node: what makes the manifest this node's pod |
//! | `validate` | what the API server would have refused |
//! | `references` | a static pod may not name other API objects, unless a gate allows it |
//! | `supported` | what this version of Crablet cannot run yet |
//!
//! Every refusal is one line that names the field and what to do about it.

mod decode;
mod defaults;
mod error;
mod identity;
mod nulls;
mod parse;
mod references;
mod supported;
mod uid;
mod validate;

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::api::Pod;
pub use error::{ManifestError, Problem, Problems};

/// Files and bodies above this size are refused.
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;

/// Where a manifest came from. It is part of the UID, so that equal manifests in two places are two pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    File { path: &'a str },
    Url { url: &'a str },
    Submitted { name: &'a str },
}

/// What feature gates change about manifests. The default is theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// Without `PreventStaticPodAPIReferences`: pods may name secrets, claims and the like.
    pub may_refer: bool,
    /// `SELinuxMount`: pods may ask for labels that come with the mount.
    pub selinux_mount: bool,
    /// Without `StrictIPCIDRValidation`: addresses that programs read in more than one way are taken.
    pub any_address: bool,
}

/// A pod that can run, and what its author should be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub pod: Pod,
    /// One line each, beginning with a field path where there is one.
    pub warnings: Vec<String>,
}

/// Decodes a manifest that holds one pod.
pub fn decode_pod(
    bytes: &[u8],
    origin: &Origin<'_>,
    node_name: &str,
    gates: Gates,
) -> Result<Decoded, ManifestError> {
    let parsed = parse::parse(bytes)?;
    decode::check_kind(&parsed.value, &["Pod"])?;
    Context { origin, node_name, gates }.decode(parsed.value, "", parsed.warnings)
}

/// Decodes what a manifest URL answers: a pod, or a list of pods. One invalid pod rejects the whole list.
pub fn decode_pods(
    bytes: &[u8],
    origin: &Origin<'_>,
    node_name: &str,
    gates: Gates,
) -> Result<Vec<Decoded>, ManifestError> {
    let context = Context { origin, node_name, gates };
    let mut parsed = parse::parse(bytes)?;
    if decode::check_kind(&parsed.value, &["Pod", "PodList"])? == "Pod" {
        return Ok(vec![context.decode(parsed.value, "", parsed.warnings)?]);
    }
    let items = match parsed.value.get_mut("items").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(ManifestError::undecodable("items", "must be a list of pods")),
    };
    let mut pods = Vec::with_capacity(items.len());
    let mut warnings = parsed.warnings;
    for (index, item) in items.into_iter().enumerate() {
        let prefix = format!("items[{index}]");
        pods.push(context.decode(item, &prefix, std::mem::take(&mut warnings))?);
    }
    Ok(pods)
}

/// What a pod of the API server asks for and this version cannot do, one line.
pub fn unsupported(pod: &Pod) -> Option<String> {
    let problems = supported::check(pod, supported::Giver::ApiServer);
    (!problems.is_empty()).then(|| problems.to_string())
}

/// What counts besides a manifest's content.
struct Context<'a> {
    origin: &'a Origin<'a>,
    node_name: &'a str,
    gates: Gates,
}

impl Context<'_> {
    /// `prefix` is where the pod stands in the manifest.
    fn decode(
        &self,
        value: Value,
        prefix: &str,
        mut warnings: Vec<String>,
    ) -> Result<Decoded, ManifestError> {
        let (origin, node_name, gates) = (self.origin, self.node_name, self.gates);
        let (mut pod, unknown) =
            decode::pod(value).map_err(|p| ManifestError::Undecodable(p.below(prefix)))?;
        warnings.extend(unknown.into_iter().map(|warning| error::join(prefix, &warning)));
        defaults::apply(&mut pod);
        let uid = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
        let uid = uid.unwrap_or_else(|| uid::of(&pod, origin, node_name));
        defaults::apply_to_amounts(&mut pod);
        identity::apply(&mut pod, uid, origin, node_name, &mut warnings);
        validate::check(&pod, node_name, gates)
            .into_result()
            .map_err(|p| ManifestError::Invalid(p.below(prefix)))?;
        references::check(&pod, gates.may_refer)
            .into_result()
            .map_err(|p| ManifestError::Reference(p.below(prefix)))?;
        supported::check(&pod, supported::Giver::Manifest)
            .into_result()
            .map_err(|p| ManifestError::Unsupported(p.below(prefix)))?;
        Ok(Decoded { pod, warnings })
    }
}

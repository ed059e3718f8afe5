//! The certificates of cluster trust bundles in one file.

use std::collections::{BTreeMap, BTreeSet};

use crablet_apiserver::{Call, Lane};
use crablet_model::api;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::Request;
use crate::failure::Failure;
use crate::payload::{Payload, PayloadFile};

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
/// Bundles are asked for again this often: roots of trust change rarely, and few pods have them.
const AGE: SignedDuration = SignedDuration::from_secs(60);

pub async fn project(
    request: &Request<'_>,
    source: &api::ClusterTrustBundleProjection,
    mode: u32,
) -> Result<(Payload, Option<Timestamp>), Failure> {
    let optional = source.optional.unwrap_or(false);
    let bundles = match (&source.name, &source.signer_name) {
        (Some(name), _) => named(request, name, optional).await?,
        (None, Some(signer)) => signed(request, signer, source.label_selector.as_ref(), optional).await?,
        (None, None) => {
            let text = "ClusterTrustBundle projection requires either name or signerName to be set";
            return Err(text.to_owned().into());
        }
    };
    let owners = request.owners;
    let mode = if owners.user.is_some() || owners.group.is_some() { 0o600 } else { mode };
    let mut payload = Payload::default();
    let content = anchors(&bundles).into_bytes();
    payload.add(&source.path, PayloadFile { content, mode, owner: owners.user })?;
    Ok((payload, request.ctx.clock.now().checked_add(AGE).ok()))
}

/// The PEM of each bundle.
async fn named(request: &Request<'_>, name: &str, optional: bool) -> Result<Vec<String>, Failure> {
    match get(request, format!("{BUNDLES}/{name}")).await? {
        Some(bundle) => Ok(vec![pem_of(&bundle)]),
        None if optional => Ok(Vec::new()),
        None => {
            let text = format!(
                "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found"
            );
            Err(Failure::from(text).waiting())
        }
    }
}

async fn signed(
    request: &Request<'_>,
    signer: &str,
    selector: Option<&LabelSelector>,
    optional: bool,
) -> Result<Vec<String>, Failure> {
    let list = get(request, BUNDLES.to_owned()).await?.unwrap_or_default();
    let bundles = list["items"].as_array().into_iter().flatten();
    let chosen: Vec<String> = bundles
        .filter(|bundle| bundle["spec"]["signerName"] == signer && selected(selector, bundle))
        .map(pem_of)
        .collect();
    if chosen.is_empty() && !optional {
        let text = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
        return Err(Failure::from(text.to_owned()).waiting());
    }
    Ok(chosen)
}

async fn get(request: &Request<'_>, path: String) -> Result<Option<Value>, Failure> {
    let Some(api) = &request.ctx.api else {
        let text = "ClusterTrustBundle projection is not supported in static kubelet mode";
        return Err(text.to_owned().into());
    };
    let told = |error: String| Failure::from(format!("while getting ClusterTrustBundle: {error}"));
    match api.call(Call::get(Lane::Main, path)).await {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| told(error.to_string())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(told(error.to_string())),
    }
}

fn pem_of(bundle: &Value) -> String {
    bundle["spec"]["trustBundle"].as_str().unwrap_or_default().to_owned()
}

/// No selector chooses nothing, an empty one everything.
fn selected(selector: Option<&LabelSelector>, bundle: &Value) -> bool {
    let Some(selector) = selector else { return false };
    let labels: BTreeMap<&str, &str> = bundle["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    let label = |key: &str| labels.get(key).copied();
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let fits = selector.match_expressions.iter().flatten().all(|wanted| {
        let values = wanted.values.as_deref().unwrap_or_default();
        let is_one = label(&wanted.key).is_some_and(|found| values.iter().any(|value| value == found));
        match wanted.operator.as_str() {
            "In" => is_one,
            "NotIn" => !is_one,
            "Exists" => label(&wanted.key).is_some(),
            "DoesNotExist" => label(&wanted.key).is_none(),
            _ => false,
        }
    });
    equal && fits
}

/// Each certificate once, as a block of its own. The order means nothing: who relies upon the first is mistaken.
fn anchors(bundles: &[String]) -> String {
    let mut certificates = BTreeSet::new();
    for bundle in bundles {
        let mut rest = bundle.as_str();
        while let Some((_, after)) = rest.split_once("-----BEGIN ") {
            let Some((body, tail)) = after.split_once("-----END ") else { break };
            rest = tail;
            let Some((_, body)) = body.split_once("-----") else { continue };
            let text: String = body.lines().filter(|line| !line.contains(':')).collect();
            certificates.insert(text.split_whitespace().collect::<String>());
        }
    }
    let mut out = String::new();
    for certificate in certificates {
        out += "-----BEGIN CERTIFICATE-----\n";
        for line in certificate.as_bytes().chunks(64) {
            out += &String::from_utf8_lossy(line);
            out += "\n";
        }
        out += "-----END CERTIFICATE-----\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn certificates_are_shown_once_and_without_what_is_around_them() {
        let block = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let long = "A".repeat(70);
        let bundles = [format!("a remark\n{}{}", block("QUJD"), block(&long)), block("QU\nJD")];
        let expected = format!("{}{}", block(&format!("{}\n{}", &long[..64], &long[64..])), block("QUJD"));
        assert_eq!(anchors(&bundles), expected);
    }

    #[test]
    fn no_selector_chooses_nothing_and_an_empty_one_everything() {
        let bundle = json!({ "metadata": { "labels": { "live": "yes" } } });
        let selector = |json: Value| serde_json::from_value::<LabelSelector>(json).unwrap();
        assert!(!selected(None, &bundle));
        assert!(selected(Some(&selector(json!({}))), &bundle));
        assert!(selected(Some(&selector(json!({ "matchLabels": { "live": "yes" } }))), &bundle));
        let not_live = json!({ "matchExpressions": [{ "key": "live", "operator": "DoesNotExist" }] });
        assert!(!selected(Some(&selector(not_live)), &bundle));
    }
}

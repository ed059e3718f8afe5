//! Is the file behind `--kubeconfig` one? The client that would use it is not there yet; a wrong file should not wait for
//! it. No message shows what the file holds: there are credentials in it.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use crablet_config::Settings;
use serde_json::Value;

use crate::cli;

/// Fine without one. With a bootstrap file too, one of the two has to be good: the other is made or removed while a node
/// joins its cluster.
pub fn check(settings: &Settings) -> anyhow::Result<()> {
    let Some(path) = &settings.kubeconfig else { return Ok(()) };
    match (check_file(path), &settings.bootstrap_kubeconfig) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(bootstrap)) => check_file(bootstrap).context("unable to load bootstrap kubeconfig"),
        (Err(error), None) => Err(error.context("invalid kubeconfig")),
    }
}

fn check_file(path: &Path) -> anyhow::Result<()> {
    let bytes = cli::read_config(path).with_context(|| path.display().to_string())?;
    check_bytes(&bytes).with_context(|| path.display().to_string())
}

fn check_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let text = std::str::from_utf8(bytes).context("it is not UTF-8")?;
    let options = serde_saphyr::options! { with_snippet: false };
    // The parser's own words may quote the file.
    let config = serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|error| match error
        .location()
    {
        Some(at) => anyhow!("line {}: it is neither YAML nor JSON", at.line()),
        None => anyhow!("it is neither YAML nor JSON"),
    })?;
    if !config.is_object() {
        bail!("it is no kubeconfig");
    }
    let name =
        text_at(&config, "current-context").ok_or_else(|| anyhow!("current-context: it is not set"))?;
    let context = named(&config, "contexts", name)
        .ok_or_else(|| anyhow!("current-context: there is no context {name:?}"))?;
    let cluster = text_at(&context["context"], "cluster")
        .ok_or_else(|| anyhow!("contexts: {name:?} names no cluster"))?;
    let found = named(&config, "clusters", cluster)
        .ok_or_else(|| anyhow!("contexts: there is no cluster {cluster:?}"))?;
    if text_at(&found["cluster"], "server").is_none() {
        bail!("clusters: no server found for cluster {cluster:?}");
    }
    match text_at(&context["context"], "user") {
        Some(user) if named(&config, "users", user).is_none() => {
            bail!("contexts: there is no user {user:?}")
        }
        _ => Ok(()),
    }
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str().filter(|text| !text.is_empty())
}

fn named<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::check_bytes;

    const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: s3cret}}]
";

    fn refusal(text: &str) -> String {
        format!("{:#}", check_bytes(text.as_bytes()).expect_err("refused"))
    }

    #[test]
    fn a_kubeconfig_is_known_by_what_its_context_names() {
        check_bytes(GOOD.as_bytes()).expect("good");
        assert_eq!(refusal(&GOOD.replace("current-context: c", "")), "current-context: it is not set");
        assert_eq!(
            refusal(&GOOD.replace("current-context: c", "current-context: d")),
            "current-context: there is no context \"d\""
        );
        assert_eq!(refusal(&GOOD.replace("name: k", "name: l")), "contexts: there is no cluster \"k\"");
        assert_eq!(refusal(&GOOD.replace("name: u", "name: v")), "contexts: there is no user \"u\"");
        assert_eq!(refusal(&GOOD.replace("server:", "no:")), "clusters: no server found for cluster \"k\"");
        assert_eq!(refusal("just words"), "it is no kubeconfig");
        assert_eq!(refusal(""), "it is no kubeconfig");
    }

    #[test]
    fn what_is_in_the_file_is_not_shown() {
        let broken = GOOD.replace("{token: s3cret}", "{token: 's3cret");
        assert!(!refusal(&broken).contains("s3cret"), "{}", refusal(&broken));
    }
}

//! A container's environment, and the `$(NAME)` references to it.

use crablet_model::{PodRef, api};

use super::ConfigError;
use super::container::ContainerInputs;
use super::fields;

/// The container's environment in the order of its first mention. A later definition of the same name wins.
pub(super) fn environment(inputs: &ContainerInputs<'_>) -> Result<Environment, ConfigError> {
    let id = PodRef::of(inputs.pod);
    let container = inputs.container;
    if let Some(source) = container.env_from.iter().flatten().next() {
        return Err(match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => no_client("configMap", &id, &map.name),
            (_, Some(secret)) => no_client("secret", &id, &secret.name),
            _ => ConfigError(format!("container {} has an envFrom without a source", container.name)),
        });
    }
    let mut env = Environment::default();
    for var in container.env.iter().flatten() {
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", Some(source)) => resolve(inputs, &id, source)?,
            (value, _) => env.expand(value),
        };
        env.set(&var.name, value);
    }
    Ok(env)
}

fn resolve(
    inputs: &ContainerInputs<'_>,
    id: &PodRef,
    source: &api::EnvVarSource,
) -> Result<String, ConfigError> {
    if let Some(field) = &source.field_ref {
        fields::pod_field(inputs, field)
    } else if let Some(resource) = &source.resource_field_ref {
        fields::resource_field(inputs, resource)
    } else if let Some(map) = &source.config_map_key_ref {
        Err(no_client("configMap", id, &map.name))
    } else if let Some(secret) = &source.secret_key_ref {
        Err(no_client("secret", id, &secret.name))
    } else if let Some(file) = &source.file_key_ref {
        // No volumes exist yet, so this is what upstream says of every one.
        Err(ConfigError(format!("cannot find the volume {:?} referenced by FileKeyRef", file.volume_name)))
    } else {
        Ok(String::new())
    }
}

/// As upstream without an API server, also where the reference is optional.
fn no_client(kind: &str, id: &PodRef, name: &str) -> ConfigError {
    ConfigError(format!("couldn't get {kind} {}/{name}, no kubeClient defined", id.namespace))
}

/// Names and values, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment(Vec<(String, String)>);

impl Environment {
    pub fn into_vars(self) -> Vec<(String, String)> {
        self.0
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Replaces `$(NAME)` by its value and `$$` by `$`. What is not known or not a reference stays as it is.
    pub fn expand(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let (piece, after) = self.reference(after);
            out.push_str(&piece);
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// What stands for a `$` and what follows it, and the text after that.
    fn reference<'t>(&self, after: &'t str) -> (String, &'t str) {
        if let Some(after) = after.strip_prefix('$') {
            return ("$".to_owned(), after);
        }
        let Some((name, rest)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) else {
            return ("$".to_owned(), after);
        };
        let value = self.get(name).map_or_else(|| format!("$({name})"), str::to_owned);
        (value, rest)
    }

    pub fn expand_all(&self, texts: Option<&Vec<String>>) -> Vec<String> {
        texts.into_iter().flatten().map(|text| self.expand(text)).collect()
    }
}

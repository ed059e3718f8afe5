//! A container's environment, and the `$(NAME)` references to it.

use std::collections::BTreeMap;

use crablet_model::runtime::EnvValue;
use crablet_model::{PodRef, api};

use super::container::ContainerInputs;
use super::env_file::{self, EnvFile, FileReference};
use super::{ConfigError, ContainerError, fields};

/// What the environment takes from the cluster, fetched before a container is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvObjects {
    pub config_maps: BTreeMap<String, Result<BTreeMap<String, String>, Missing>>,
    pub secrets: BTreeMap<String, Result<BTreeMap<String, EnvValue>, Missing>>,
    /// Variables that tell of services.
    pub services: BTreeMap<String, String>,
    /// Files in volumes.
    pub files: BTreeMap<FileReference, EnvFile>,
}

/// Why an object's data is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none: an optional reference goes without.
    NotThere(String),
    /// Nobody knows.
    Unknown(String),
}

impl Missing {
    fn or_skip(&self, optional: Option<bool>) -> Result<(), ConfigError> {
        match self {
            Self::NotThere(_) if optional.unwrap_or(false) => Ok(()),
            Self::NotThere(text) | Self::Unknown(text) => Err(ConfigError(text.clone())),
        }
    }
}

/// The config maps, secrets and files in volumes that a container's environment refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvReferences {
    pub config_maps: Vec<String>,
    pub secrets: Vec<String>,
    pub files: Vec<FileReference>,
}

pub fn env_references(container: &api::Container) -> EnvReferences {
    let mut found = EnvReferences::default();
    for source in container.env_from.iter().flatten() {
        found.config_maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
        found.secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
        found.config_maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
        found.secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
        found.files.extend(source.file_key_ref.iter().map(FileReference::of));
    }
    for names in [&mut found.config_maps, &mut found.secrets] {
        names.sort();
        names.dedup();
    }
    found.files.sort();
    found.files.dedup();
    found
}

/// A service as far as variables tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub cluster_ip: String,
    /// Name, protocol and port.
    pub ports: Vec<(String, String, i32)>,
}

/// The variables that tell of services, as Docker's links once named them.
pub fn service_env(services: &[Service]) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for service in services {
        let Some((_, _, first)) = service.ports.first() else { continue };
        let (prefix, ip) = (variable_name(&service.name), &service.cluster_ip);
        env.insert(format!("{prefix}_SERVICE_HOST"), ip.clone());
        env.insert(format!("{prefix}_SERVICE_PORT"), first.to_string());
        for (index, (name, protocol, port)) in service.ports.iter().enumerate() {
            if !name.is_empty() {
                env.insert(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.to_string());
            }
            let protocol = if protocol.is_empty() { "TCP" } else { protocol };
            let host = if ip.contains(':') { format!("[{ip}]") } else { ip.clone() };
            let url = format!("{}://{host}:{port}", protocol.to_lowercase());
            if index == 0 {
                env.insert(format!("{prefix}_PORT"), url.clone());
            }
            let each = format!("{prefix}_PORT_{port}_{}", protocol.to_uppercase());
            env.insert(format!("{each}_PROTO"), protocol.to_lowercase());
            env.insert(format!("{each}_PORT"), port.to_string());
            env.insert(format!("{each}_ADDR"), ip.clone());
            env.insert(each, url);
        }
    }
    env
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// The container's environment in the order of its first mention. A later definition of the same name wins.
pub(super) fn environment<'a>(inputs: &ContainerInputs<'a>) -> Result<Environment<'a>, ConfigError> {
    let id = PodRef::of(inputs.pod);
    let mut env = Environment { vars: Vec::new(), services: &inputs.objects.services };
    for source in inputs.container.env_from.iter().flatten() {
        whole_object(inputs, &id, source, &mut env)?;
    }
    for var in inputs.container.env.iter().flatten() {
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", Some(source)) => match resolve(inputs, &id, source)? {
                Some(value) => value,
                None => continue, // optional, and not there
            },
            (value, _) => env.expand(value).into(),
        };
        env.set(&var.name, value);
    }
    Ok(env)
}

fn whole_object(
    inputs: &ContainerInputs<'_>,
    id: &PodRef,
    source: &api::EnvFromSource,
    env: &mut Environment<'_>,
) -> Result<(), ConfigError> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    if let Some(map) = &source.config_map_ref {
        match config_map(inputs, id, &map.name) {
            Ok(data) => {
                for (key, value) in data {
                    env.set(&format!("{prefix}{key}"), value.as_str().into());
                }
            }
            Err(missing) => missing.or_skip(map.optional)?,
        }
    } else if let Some(secret) = &source.secret_ref {
        match self::secret(inputs, id, &secret.name) {
            Ok(data) => {
                for (key, value) in data {
                    env.set(&format!("{prefix}{key}"), value.clone());
                }
            }
            Err(missing) => missing.or_skip(secret.optional)?,
        }
    } else {
        let container = &inputs.container.name;
        return Err(ConfigError(format!("container {container} has an envFrom without a source")));
    }
    Ok(())
}

fn config_map<'a>(
    inputs: &ContainerInputs<'a>,
    id: &PodRef,
    name: &str,
) -> Result<&'a BTreeMap<String, String>, Missing> {
    match inputs.objects.config_maps.get(name) {
        Some(found) => found.as_ref().map_err(Clone::clone),
        None => Err(Missing::Unknown(no_client("configMap", id, name))),
    }
}

fn secret<'a>(
    inputs: &ContainerInputs<'a>,
    id: &PodRef,
    name: &str,
) -> Result<&'a BTreeMap<String, EnvValue>, Missing> {
    match inputs.objects.secrets.get(name) {
        Some(found) => found.as_ref().map_err(Clone::clone),
        None => Err(Missing::Unknown(no_client("secret", id, name))),
    }
}

/// `None` for an optional reference to what is not there.
fn resolve(
    inputs: &ContainerInputs<'_>,
    id: &PodRef,
    source: &api::EnvVarSource,
) -> Result<Option<EnvValue>, ConfigError> {
    if let Some(field) = &source.field_ref {
        fields::pod_field(inputs, field).map(|text| Some(text.into()))
    } else if let Some(resource) = &source.resource_field_ref {
        fields::resource_field(inputs, resource).map(|text| Some(text.into()))
    } else if let Some(map) = &source.config_map_key_ref {
        let data = match config_map(inputs, id, &map.name) {
            Ok(data) => data,
            Err(missing) => return missing.or_skip(map.optional).map(|()| None),
        };
        let value = data.get(&map.key).map(|text| text.as_str().into());
        key_or_skip(value, "ConfigMap", id, &map.name, &map.key, map.optional)
    } else if let Some(wanted) = &source.secret_key_ref {
        let data = match secret(inputs, id, &wanted.name) {
            Ok(data) => data,
            Err(missing) => return missing.or_skip(wanted.optional).map(|()| None),
        };
        key_or_skip(data.get(&wanted.key).cloned(), "Secret", id, &wanted.name, &wanted.key, wanted.optional)
    } else if let Some(wanted) = &source.file_key_ref {
        env_file::value_of(inputs, wanted)
    } else {
        Ok(Some(EnvValue::default()))
    }
}

fn key_or_skip(
    value: Option<EnvValue>,
    kind: &str,
    id: &PodRef,
    name: &str,
    key: &str,
    optional: Option<bool>,
) -> Result<Option<EnvValue>, ConfigError> {
    match value {
        None if !optional.unwrap_or(false) => {
            Err(ConfigError(format!("couldn't find key {key} in {kind} {}/{name}", id.namespace)))
        }
        value => Ok(value),
    }
}

/// As upstream without an API server, also where the reference is optional.
fn no_client(kind: &str, id: &PodRef, name: &str) -> String {
    format!("couldn't get {kind} {}/{name}, no kubeClient defined", id.namespace)
}

/// Names and values, each name once; the variables of services come last and never replace others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Environment<'a> {
    vars: Vec<(String, EnvValue)>,
    services: &'a BTreeMap<String, String>,
}

impl Environment<'_> {
    pub fn into_vars(self) -> Vec<(String, EnvValue)> {
        let mut vars = self.vars;
        let rest = self.services.iter().filter(|(name, _)| !vars.iter().any(|(known, _)| known == *name));
        let rest: Vec<_> = rest.map(|(name, value)| (name.clone(), EnvValue::from(value.as_str()))).collect();
        vars.extend(rest);
        vars
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let own = self.vars.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_bytes());
        own.or_else(|| self.services.get(name).map(String::as_bytes))
    }

    pub fn set(&mut self, name: &str, value: EnvValue) {
        match self.vars.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.vars.push((name.to_owned(), value)),
        }
    }

    /// Replaces `$(NAME)` by its value and `$$` by `$`. What is not known or not a reference stays as it is.
    fn expand(&self, text: &str) -> Vec<u8> {
        self.expand_noting(text, &mut Vec::new())
    }

    /// The same, but every reference has to have a value, and an empty one is none.
    pub fn expand_strictly(&self, text: &str) -> Result<String, ConfigError> {
        let mut names = Vec::new();
        let expanded = self.expand_noting(text, &mut names);
        names.retain(|name| self.get(name).is_none_or(<[u8]>::is_empty));
        names.sort();
        names.dedup();
        if !names.is_empty() {
            return Err(ConfigError(format!("missing value for {}", names.join(", "))));
        }
        String::from_utf8(expanded).map_err(|_| ConfigError(format!("the value of {text:?} is no text")))
    }

    fn expand_noting(&self, text: &str, names: &mut Vec<String>) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.extend_from_slice(before.as_bytes());
            rest = self.reference(after, names, &mut out);
        }
        out.extend_from_slice(rest.as_bytes());
        out
    }

    /// Adds what stands for a `$` and what follows it; the text after that is left.
    fn reference<'t>(&self, after: &'t str, names: &mut Vec<String>, out: &mut Vec<u8>) -> &'t str {
        if let Some(after) = after.strip_prefix('$') {
            out.push(b'$');
            return after;
        }
        let Some((name, rest)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) else {
            out.push(b'$');
            return after;
        };
        names.push(name.to_owned());
        match self.get(name) {
            Some(value) => out.extend_from_slice(value),
            None => out.extend_from_slice(format!("$({name})").as_bytes()),
        }
        rest
    }

    /// Commands are text, whatever the variables are.
    pub fn expand_all(&self, texts: Option<&Vec<String>>) -> Result<Vec<String>, ContainerError> {
        let expanded = texts.into_iter().flatten().map(|text| String::from_utf8(self.expand(text)));
        expanded.collect::<Result<Vec<_>, _>>().map_err(|_| ContainerError::NotText)
    }
}

//! Taking fields out of a document. Errors name the field and never its content.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// An entry of a list of the kubeconfig: `clusters: "k"`, and what it holds.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub list: &'static str,
    pub name: &'a str,
    pub value: &'a Value,
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

impl<'a> Fields<'a> {
    /// The entry of `list` that is called `name`; `key` is where its content is.
    pub fn named(config: &'a Value, list: &'static str, name: &'a str, key: &str) -> Option<Self> {
        let entry = config[list].as_array()?.iter().find(|entry| entry["name"] == name)?;
        Some(Self { list, name, value: &entry[key] })
    }

    pub fn wrong(&self, why: &str) -> String {
        format!("{}: {:?}: {why}", self.list, self.name)
    }

    /// Empty is as good as absent, as with Go.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match &self.value[key] {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err(self.wrong(&format!("{key} is not a string"))),
        }
    }

    pub fn flag(&self, key: &str) -> Result<bool, String> {
        match &self.value[key] {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(self.wrong(&format!("{key} is neither true nor false"))),
        }
    }

    /// Base64, possibly in lines.
    pub fn data(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let text: String = text.split_ascii_whitespace().collect();
        BASE64.decode(text).map(Some).map_err(|_| self.wrong(&format!("{key} is not base64")))
    }

    pub fn list(&self, key: &str) -> Result<&'a [Value], String> {
        match &self.value[key] {
            Value::Null => Ok(&[]),
            Value::Array(list) => Ok(list),
            _ => Err(self.wrong(&format!("{key} is not a list"))),
        }
    }

    pub fn has(&self, key: &str) -> bool {
        match &self.value[key] {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        }
    }
}

//! Keeps secrets of API objects out of the record.

use serde_json::{Value, json};

use crate::secrets::Salt;

/// Fields that hold a secret in whatever object: `TokenRequest`, `TokenReview`, kubeconfigs, credentials of plugins.
const SECRET_FIELDS: &[&str] = &[
    "token",
    "password",
    "idToken",
    "id-token",
    "accessToken",
    "access-token",
    "refreshToken",
    "refresh-token",
    "bearerToken",
    "clientKeyData",
    "client-key-data",
];
/// `kubectl apply` keeps a whole object here; for a Secret, the secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Replaces every secret in the body of a request about `resource`.
pub fn redact(body: &mut Value, resource: &str, salt: &Salt) {
    Redaction { salt }.walk(body, resource == "secrets");
}

struct Redaction<'a> {
    salt: &'a Salt,
}

impl Redaction<'_> {
    fn walk(&self, value: &mut Value, in_secret: bool) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(|value| self.walk(value, in_secret)),
            Value::Object(object) => {
                let in_secret = in_secret || object.get("kind").is_some_and(|kind| kind == "Secret");
                // An operation of a JSON patch: the path says where, the value is the secret.
                let is_operation = in_secret && object.contains_key("op");
                for (name, value) in object.iter_mut() {
                    let hidden = match name.as_str() {
                        "data" | "stringData" | LAST_APPLIED => in_secret,
                        "value" => is_operation,
                        name => SECRET_FIELDS.contains(&name) && value.is_string(),
                    };
                    if hidden { self.hide(value) } else { self.walk(value, in_secret) }
                }
            }
            _ => {}
        }
    }

    /// Names stay, values go.
    fn hide(&self, value: &mut Value) {
        match value {
            Value::Null => {}
            Value::Object(object) => object.values_mut().for_each(|value| self.hide(value)),
            Value::Array(values) => values.iter_mut().for_each(|value| self.hide(value)),
            Value::String(text) => *value = json!(self.salt.hash(text.as_bytes())),
            _ => *value = json!(self.salt.hash(value.to_string().as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_everything_else_stays() {
        let salt = Salt::new("test");
        let last = json!({ LAST_APPLIED: "{\"data\":\"s3cret\"}", "a": "b" });
        for (resource, mut body) in [
            ("secrets", json!({ "data": { "kept": "s3cret" }, "stringData": { "kept": "s3cret" } })),
            ("secrets", json!({ "metadata": { "name": "kept", "annotations": last } })),
            ("secrets", json!([{ "op": "add", "path": "/data/kept", "value": "s3cret" }])),
            ("secrets", json!([{ "op": "kept", "path": "/data", "value": { "a": "s3cret" } }])),
            ("pods", json!({ "items": [{ "kind": "Secret", "data": { "kept": "s3cret" } }] })),
            ("", json!({ "kind": "Secret", "type": "kept", "data": { "a": ["s3cret", "s3cret"] } })),
            ("serviceaccounts", json!({ "kind": "kept", "status": { "token": "s3cret" } })),
            ("tokenreviews", json!({ "spec": { "token": "s3cret", "audiences": ["kept"] } })),
        ] {
            redact(&mut body, resource, &salt);
            let text = body.to_string();
            assert!(!text.contains("s3cret") && text.contains("kept"), "{text}");
        }
        let mut config = json!({ "kind": "ConfigMap", "data": { "a": "kept" }, "token": { "a": 1 } });
        let before = config.clone();
        redact(&mut config, "configmaps", &salt);
        assert_eq!(config, before);
    }
}

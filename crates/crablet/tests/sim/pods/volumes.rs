//! Volumes of pods that an API server has.

use fastrand::Rng;
use serde_json::{Value, json};

/// How many config maps and how many secrets there are.
pub const OBJECTS: u8 = 3;
/// The secret with which private images are pulled.
pub const PULL_SECRET: &str = "pull";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    EmptyDir {
        in_memory: bool,
    },
    ConfigMap(u8),
    Secret(u8),
    /// A token, a config map and the pod's labels in one.
    Projected(u8),
    Labels,
}

impl Volume {
    /// None twice: they are named after what they are.
    pub fn some(rng: &mut Rng) -> Vec<Self> {
        let object = rng.u8(0..OBJECTS);
        let all = [
            Self::EmptyDir { in_memory: rng.bool() },
            Self::ConfigMap(object),
            Self::Secret(object),
            Self::Projected(object),
            Self::Labels,
        ];
        all.into_iter().filter(|_| rng.u8(0..10) < 4).collect()
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::EmptyDir { .. } => "scratch",
            Self::ConfigMap(_) => "config",
            Self::Secret(_) => "secret",
            Self::Projected(_) => "projected",
            Self::Labels => "labels",
        }
    }

    pub fn json(&self) -> Value {
        let labels =
            json!([{"path": "labels", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}}]);
        let mut volume = match self {
            Self::EmptyDir { in_memory: true } => json!({"emptyDir": {"medium": "Memory"}}),
            Self::EmptyDir { in_memory: false } => json!({"emptyDir": {}}),
            Self::ConfigMap(number) => {
                json!({"configMap": {"name": config_map(*number), "defaultMode": 420}})
            }
            Self::Secret(number) => json!({"secret": {"secretName": secret(*number), "defaultMode": 420}}),
            Self::Projected(number) => json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": config_map(*number), "items": [{"key": "key", "path": "key"}]}},
                {"downwardAPI": {"items": labels}},
            ]}}),
            Self::Labels => json!({"downwardAPI": {"items": labels, "defaultMode": 420}}),
        };
        volume["name"] = self.name().into();
        volume
    }

    pub fn mount(&self) -> Value {
        json!({"name": self.name(), "mountPath": format!("/mnt/{}", self.name())})
    }

    /// Files below the pod's folder with what a container should read in them, when an object has this content and the pod
    /// this version.
    pub fn files(&self, content: impl Fn(&str, &str) -> String, version: u32) -> Vec<(String, String)> {
        let at = |plugin: &str, file: &str| format!("volumes/kubernetes.io~{plugin}/{}/{file}", self.name());
        let labels = format!("version=\"{version}\"");
        match self {
            Self::EmptyDir { .. } => Vec::new(),
            Self::ConfigMap(number) => {
                vec![(at("configmap", "key"), content("configmaps", &config_map(*number)))]
            }
            Self::Secret(number) => vec![(at("secret", "key"), content("secrets", &secret(*number)))],
            Self::Projected(number) => vec![
                (at("projected", "key"), content("configmaps", &config_map(*number))),
                (at("projected", "labels"), labels),
            ],
            Self::Labels => vec![(at("downward-api", "labels"), labels)],
        }
    }
}

pub fn config_map(number: u8) -> String {
    format!("config{number}")
}

pub fn secret(number: u8) -> String {
    format!("secret{number}")
}

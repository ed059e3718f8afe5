//! Which pod is meant.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api;

/// A pod's UID. Cheap to clone: it is the key of every map that has to do with pods.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(Arc<str>);

impl PodUid {
    pub fn new(uid: impl AsRef<str>) -> Self {
        Self(Arc::from(uid.as_ref()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A pod as people and logs name it. Prints as `name_namespace(uid)`, the form that upstream's messages use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    pub uid: PodUid,
}

impl PodRef {
    pub fn new(name: &str, namespace: &str, uid: &str) -> Self {
        Self { name: Arc::from(name), namespace: Arc::from(namespace), uid: PodUid::new(uid) }
    }

    pub fn of(pod: &api::Pod) -> Self {
        let meta = &pod.metadata;
        Self::new(
            meta.name.as_deref().unwrap_or_default(),
            meta.namespace.as_deref().unwrap_or_default(),
            meta.uid.as_deref().unwrap_or_default(),
        )
    }

    /// `name_namespace`: two static pods with the same full name never run at the same time.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }

    /// `namespace/name`, as log lines name a pod.
    pub fn object_ref(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The folder of the pod's logs below the pod log root.
    pub fn log_dir_name(&self) -> String {
        format!("{}_{}_{}", self.namespace, self.name, self.uid)
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

//! What holds where nothing was said.

use serde_json::{Value, json};

use crate::gates::Gates;
use crate::schema;
use crate::tree::{Origin, Tree};
use crate::value;

/// The thresholds that a config file starts with. Upstream has none without a file.
pub const EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

const REPORT: &str = "nodeStatusReportFrequency";
const UPDATE: &str = "nodeStatusUpdateFrequency";
const SERIALIZE: &str = "serializeImagePulls";
const PARALLEL: &str = "maxParallelImagePulls";
const PIDS: &str = "podPidsLimit";
const RESTART: &str = "crashLoopBackOff.maxContainerRestartPeriod";
const VERIFY: &str = "imagePullCredentialsVerificationPolicy";

/// Fills in what was not said. `gates` are those that hold.
pub fn apply(tree: &mut Tree, gates: &Gates) {
    // First those that depend on whether another one was said.
    if tree.get(REPORT).is_none() {
        let report = tree.get(UPDATE).cloned().unwrap_or_else(|| json!("5m0s"));
        tree.set(REPORT, report, Origin::Default);
    }
    if tree.get(SERIALIZE).is_none() {
        tree.set(SERIALIZE, json!(tree.int(PARALLEL) < 2), Origin::Default);
    }
    if tree.int(PIDS) < 0 {
        tree.set(PIDS, json!(-1), tree.origin(PIDS));
    }
    if tree.get(RESTART).is_none() && gates.enabled("KubeletCrashLoopBackOffMax") {
        tree.set(RESTART, json!("5m0s"), Origin::Default);
    }
    if tree.get(VERIFY).is_none() && gates.enabled("KubeletEnsureSecretPulledImages") {
        tree.set(VERIFY, json!("NeverVerifyPreloadedImages"), Origin::Default);
    }
    for (path, setting) in schema::fields() {
        if tree.get(path).is_none()
            && let Some(default) = value::from_default(setting)
        {
            tree.set(path, default, Origin::Default);
        }
    }
}

/// The default thresholds, and those of them that a file wants to keep beside its own.
pub fn apply_eviction(tree: &mut Tree) {
    const HARD: &str = "evictionHard";
    let defaults = EVICTION_HARD.map(|(signal, threshold)| (signal.to_owned(), json!(threshold)));
    match tree.get(HARD).cloned() {
        None => tree.set(HARD, Value::Object(defaults.into_iter().collect()), Origin::Default),
        Some(Value::Object(mut said)) if tree.is("mergeDefaultEvictionSettings") => {
            for (signal, threshold) in defaults {
                said.entry(signal).or_insert(threshold);
            }
            tree.set(HARD, Value::Object(said), tree.origin(HARD));
        }
        Some(_) => (),
    }
}

/// Flags that belong to no field.
pub fn apply_flags(tree: &mut Tree) {
    for setting in schema::settings().filter(|setting| setting.field.is_none()) {
        if let Some(default) = value::from_default(setting) {
            tree.set(setting.key(), default, Origin::Default);
        }
    }
}

/// The last step. What Crablet does differently when nothing was said, and upstream's file names for certificates.
pub fn settle(tree: &mut Tree) {
    if tree.origin(SERIALIZE) == Origin::Default && tree.get(PARALLEL).is_none() {
        tree.set(SERIALIZE, json!(false), Origin::Default);
        tree.set(PARALLEL, json!(crate::ImagePulls::DEFAULT_PARALLEL), Origin::Default);
    }
    let (cert, key) = ("tlsCertFile", "tlsPrivateKeyFile");
    if !tree.is("serverTLSBootstrap") && tree.text(cert).is_empty() && tree.text(key).is_empty() {
        let folder = tree.text("--cert-dir").trim_end_matches('/').to_owned();
        tree.set(cert, json!(format!("{folder}/kubelet.crt")), Origin::Default);
        tree.set(key, json!(format!("{folder}/kubelet.key")), Origin::Default);
    }
}

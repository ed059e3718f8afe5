use super::*;
use serde_json::{Value, json};

mod preemptions;
mod resizes;
mod rules;

/// A node of 2 CPUs, 4 GiB and room for three pods.
fn node() -> AdmissionNode {
    let amounts = [
        ("cpu", "2"),
        ("memory", "4Gi"),
        ("ephemeral-storage", "10Gi"),
        ("pods", "3"),
        ("hugepages-2Mi", "8Mi"),
        ("example.com/gpu", "1"),
    ];
    let labels = [("kubernetes.io/os", "linux"), ("disk", "ssd"), ("cores", "8")];
    AdmissionNode {
        name: "node-1".to_owned(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        allocatable: amounts.map(|(name, text)| (name.to_owned(), Quantity::parse(text).unwrap())).into(),
        sysctls: Sysctls::new(Some((6, 1)), &["net.core.somaxconn".to_owned(), "kernel.msg*".to_owned()]),
        ..AdmissionNode::default()
    }
}

/// A pod of the API server with this specification; containers are filled in where there are none.
fn pod(mut spec: Value) -> api::Pod {
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})).unwrap()
}

fn asking(requests: Value) -> api::Pod {
    pod(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

fn made_static(mut pod: api::Pod) -> api::Pod {
    let noted = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
    pod.metadata.annotations.get_or_insert_default().extend([noted]);
    pod
}

fn others(pods: &[(&str, api::Pod)]) -> BTreeMap<PodUid, Claim> {
    pods.iter().map(|(uid, pod)| (PodUid::new(*uid), Claim::of(pod))).collect()
}

/// `ok`, `ok instead of a b`, or the reason and the message.
fn said(decision: Decision) -> String {
    match decision {
        Decision::Admitted => "ok".to_owned(),
        Decision::AdmittedInsteadOf(victims) => {
            let names: Vec<_> = victims.iter().map(PodUid::as_str).collect();
            format!("ok instead of {}", names.join(" "))
        }
        Decision::Rejected(rejection) => format!("{}: {}", rejection.reason, rejection.message),
    }
}

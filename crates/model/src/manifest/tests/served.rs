//! Pods as an API server gives them.

use super::*;

fn served(text: &str) -> Pod {
    serde_saphyr::from_str(text).expect("a pod")
}

/// A pod of a Deployment whose author wrote a name and an image, with all that a v1.36 cluster made of it.
#[test]
fn an_ordinary_pod_can_run() {
    let pod = served(include_str!("served.yaml"));
    assert_eq!(unsupported(&pod), None);
}

#[test]
fn what_cannot_run_yet_is_said_in_one_line() {
    let mut pod = served(include_str!("served.yaml"));
    let spec = pod.spec.as_mut().expect("a spec");
    spec.host_users = Some(false);
    spec.containers[0].volume_mounts.as_mut().expect("mounts")[0].recursive_read_only =
        Some("Enabled".to_owned());
    assert_eq!(
        unsupported(&pod).as_deref(),
        Some(
            "spec.containers[0].volumeMounts[0].recursiveReadOnly: \"Enabled\" is not supported yet; use `Disabled`; spec.hostUsers: `false` is not supported yet; remove it"
        )
    );
}

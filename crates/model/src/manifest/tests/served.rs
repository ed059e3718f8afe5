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
    let claim = crate::api::ResourceClaim { name: "c".to_owned(), ..Default::default() };
    spec.containers[0].resources.get_or_insert_default().claims = Some(vec![claim]);
    let volume =
        crate::api::Volume { name: "g".to_owned(), rbd: Some(Default::default()), ..Default::default() };
    spec.volumes.get_or_insert_default().push(volume);
    assert_eq!(
        unsupported(&pod).as_deref(),
        Some(
            "spec.containers[0].resources.claims: not supported yet; remove it; \
             spec.volumes[1].rbd: not supported yet; remove it"
        )
    );
}

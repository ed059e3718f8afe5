//! Who makes room.

use super::*;

fn critical(requests: Value) -> api::Pod {
    let mut pod = asking(requests);
    pod.spec.as_mut().unwrap().priority = Some(2_000_000_000);
    pod
}

fn with_priority(mut pod: api::Pod, priority: i32) -> api::Pod {
    pod.spec.as_mut().unwrap().priority = Some(priority);
    pod
}

fn guaranteed(cpu: &str) -> api::Pod {
    let amounts = json!({"cpu": cpu, "memory": "256Mi"});
    pod(json!({"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}))
}

#[test]
fn a_critical_pod_takes_the_place_of_others() {
    let burstable = |cpu: &str| asking(json!({"cpu": cpu}));
    let cases = vec![
        (critical(json!({"cpu": "1"})), vec![("a", burstable("1"))], "ok"),
        (critical(json!({"cpu": "1"})), vec![("a", burstable("1500m"))], "ok instead of a"),
        // The one that fits best goes, and no more than needed.
        (
            critical(json!({"cpu": "1"})),
            vec![("a", burstable("1500m")), ("b", burstable("500m"))],
            "ok instead of a",
        ),
        (
            critical(json!({"cpu": "500m"})),
            vec![("a", burstable("1500m")), ("b", burstable("500m"))],
            "ok instead of b",
        ),
        // Guaranteed pods last.
        (
            critical(json!({"cpu": "1"})),
            vec![("a", guaranteed("1")), ("b", burstable("1"))],
            "ok instead of b",
        ),
        (
            critical(json!({"cpu": "2"})),
            vec![("a", guaranteed("1")), ("b", burstable("1"))],
            "ok instead of b a",
        ),
        // Room for one more pod: whoever asks for least.
        (
            critical(json!({})),
            vec![("a", pod(json!({}))), ("b", burstable("100m")), ("c", guaranteed("100m"))],
            "ok instead of a",
        ),
        // Nobody that matters as much goes.
        (
            critical(json!({"cpu": "1"})),
            vec![("a", critical(json!({"cpu": "1500m"})))],
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]",
        ),
        (
            critical(json!({"cpu": "1"})),
            vec![("a", made_static(burstable("1500m")))],
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]",
        ),
        (
            with_priority(burstable("1"), 2_000_001_000),
            vec![("a", critical(json!({"cpu": "1500m"})))],
            "ok instead of a",
        ),
        // A static pod is critical whatever its priority.
        (made_static(burstable("1")), vec![("a", burstable("1500m"))], "ok instead of a"),
        // A pod that is not critical takes nobody's place, however high its priority.
        (
            with_priority(burstable("1"), 1000),
            vec![("a", with_priority(burstable("1500m"), 0))],
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
        ),
        // More than the node has is not to be had from anybody.
        (
            critical(json!({"cpu": "3"})),
            vec![("a", burstable("1500m"))],
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]",
        ),
    ];
    for (index, (pod, running, expected)) in cases.into_iter().enumerate() {
        assert_eq!(said(judge(&pod, &others(&running), &node())), expected, "case {index}");
    }
}

#[test]
fn nobody_goes_for_a_critical_pod_that_cannot_run_here_anyway() {
    let mut pod = critical(json!({"cpu": "1"}));
    pod.spec.as_mut().unwrap().node_selector = Some([("disk".to_owned(), "hdd".to_owned())].into());
    let running = others(&[("a", asking(json!({"cpu": "1500m"})))]);
    let expected =
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(said(judge(&pod, &running, &node())), expected);
}

//! Other resources for pods that run.

use crablet_model::allocation::Allocation;
use jiff::Timestamp;

use super::super::resize::{Turn, as_it_counts, judge_resize};
use super::*;

fn granted(cpu: &str) -> Allocation {
    Allocation::of(asking(json!({"cpu": cpu})).spec.as_ref().expect("a spec"))
}

fn short(message: String) -> Answer {
    Answer::Deferred { reason: "OutOfcpu".to_owned(), message }
}

#[test]
fn a_resize_is_judged_beside_the_others() {
    let others = others(&[("a", asking(json!({"cpu": "1500m"})))]);
    for (cpu, expected) in [
        ("500m", Answer::Granted),
        (
            "501m",
            short(
                "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
                    .to_owned(),
            ),
        ),
        // More than the node will ever have waits all the same, as upstream has it.
        (
            "100",
            short(
                "Node didn't have enough resource: cpu, requested: 100000, used: 1500, capacity: 2000"
                    .to_owned(),
            ),
        ),
    ] {
        let answer = judge_resize(&asking(json!({"cpu": cpu})), &granted("100m"), &others, &node());
        assert_eq!(answer, expected, "{cpu}");
    }
}

#[test]
fn what_the_node_was_told_not_to_do_is_infeasible() {
    let whole = |cpu: &str| pod(json!({"resources": {"requests": {"cpu": cpu}}}));
    let granted = Allocation::of(whole("100m").spec.as_ref().expect("a spec"));
    let strict = AdmissionNode { resizes: ResizeRules { no_whole_pods: true }, ..node() };
    let none = BTreeMap::new();
    let answer = judge_resize(&whole("200m"), &granted, &none, &strict);
    assert_eq!(answer, Answer::Infeasible("InPlacePodLevelResourcesVerticalScaling is disabled".to_owned()));
    assert_eq!(judge_resize(&whole("200m"), &granted, &none, &node()), Answer::Granted);
    assert_eq!(judge_resize(&whole("100m"), &granted, &none, &strict), Answer::Granted);
}

#[test]
fn each_has_its_turn() {
    let ranked = |cpu: &str, priority: i32| {
        let mut pod = asking(json!({"cpu": cpu}));
        pod.spec.as_mut().expect("a spec").priority = Some(priority);
        pod
    };
    let guaranteed = pod(json!({"containers": [
        {"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}},
    ]}));
    let at = |seconds| Timestamp::from_second(seconds).ok();
    let in_order = [
        (ranked("50m", 0), at(9)),
        (ranked("1", 10), at(9)),
        (guaranteed, at(9)),
        (ranked("1", 0), at(1)),
        (ranked("1", 0), at(2)),
        (ranked("1", 0), None),
    ];
    let turns: Vec<_> = in_order.iter().map(|(pod, since)| Turn::of(pod, &granted("100m"), *since)).collect();
    assert!(turns.is_sorted_by(|a, b| a < b), "{turns:#?}");
}

#[test]
fn what_is_to_be_given_back_counts_until_it_is() {
    let mut pod = asking(json!({"cpu": "100m"}));
    assert_eq!(as_it_counts(&pod), None);
    let status = |cpu: &str| {
        json!({"containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": cpu}},
        }]})
    };
    pod.status = Some(serde_json::from_value(status("500m")).expect("a status"));
    assert_eq!(Claim::of(&pod).requested.milli_cpu, 500);
    pod.status = Some(serde_json::from_value(status("100m")).expect("a status"));
    assert_eq!((Claim::of(&pod).requested.milli_cpu, as_it_counts(&pod)), (100, None));
}

use std::collections::BTreeMap;

use crablet_model::api::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use proptest::prelude::*;

use super::*;

/// A pod that differs from its like only in what is named.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sketch {
    name: u8,
    uid: u8,
    image: u8,
    label: u8,
    annotation: u8,
    local: u8,
    is_deleted: bool,
    phase: u8,
}

impl Sketch {
    fn pod(&self) -> Pod {
        let map = |key: &str, value: u8| (key.to_owned(), value.to_string());
        Pod {
            metadata: ObjectMeta {
                name: Some(format!("p{}", self.name)),
                namespace: Some("default".to_owned()),
                uid: Some(format!("u{}", self.uid)),
                labels: Some(BTreeMap::from([map("app", self.label)])),
                annotations: Some(BTreeMap::from([
                    map("note", self.annotation),
                    map(annotation::CONFIG_SEEN, self.local),
                    map(annotation::CONFIG_SOURCE, self.local),
                ])),
                deletion_timestamp: self.is_deleted.then_some(Time(Timestamp::UNIX_EPOCH)),
                ..Default::default()
            },
            spec: Some(PodSpec {
                containers: vec![Container { image: Some(self.image.to_string()), ..Default::default() }],
                ..Default::default()
            }),
            status: Some(PodStatus { phase: Some(self.phase.to_string()), ..Default::default() }),
        }
    }
}

fn stated(sketches: &[Sketch]) -> Vec<Stated> {
    sketches.iter().map(|sketch| Stated::of(&sketch.pod())).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn told(merge: &Merge) -> Vec<String> {
    let line = |update: &PodUpdate| {
        let names: Vec<_> = update.pods.iter().map(|pod| &*pod.id.name).collect();
        format!("{:?} {}", update.op, names.join(" ")).trim_end().to_owned()
    };
    merge.updates.iter().map(line).collect()
}

/// What is told of a second list after a first one.
fn check(first: &[Sketch], second: &[Sketch], expected: &[&str]) {
    let mut mux = Mux::default();
    mux.set(Source::File, &mut stated(first), at(1));
    let merge = mux.set(Source::File, &mut stated(second), at(2));
    assert_eq!(told(&merge), expected, "{first:?} -> {second:?}");
}

#[test]
fn each_difference_has_its_op() {
    let base = Sketch::default();
    let differ = |change: fn(&mut Sketch)| {
        let mut sketch = base.clone();
        change(&mut sketch);
        [sketch]
    };
    let first = &[base.clone()][..];
    check(first, first, &[]);
    check(first, &differ(|s| s.local = 1), &[]);
    check(first, &differ(|s| s.phase = 1), &["Reconcile p0"]);
    check(first, &differ(|s| s.image = 1), &["Update p0"]);
    check(first, &differ(|s| s.label = 1), &["Update p0"]);
    check(first, &differ(|s| s.annotation = 1), &["Update p0"]);
    check(first, &differ(|s| s.is_deleted = true), &["Delete p0"]);
    check(first, &differ(|s| s.uid = 1), &["Remove p0", "Add p0"]);
    check(first, &differ(|s| s.name = 1), &["Remove p0", "Add p1"]);
    check(first, &[], &["Remove p0"]);
    check(&[], first, &["Add p0"]);
    check(&[], &[], &[]);
}

#[test]
fn ops_come_in_the_order_that_frees_names_first() {
    let pod = |id: u8| Sketch { name: id, uid: id, ..Sketch::default() };
    check(
        &[pod(0), pod(1), pod(2), pod(3)],
        &[
            Sketch { phase: 9, ..pod(3) },
            Sketch { is_deleted: true, ..pod(2) },
            Sketch { image: 9, ..pod(1) },
            pod(4),
        ],
        &["Remove p0", "Add p4", "Update p1", "Delete p2", "Reconcile p3"],
    );
}

#[test]
fn a_first_empty_list_is_told_once_per_source() {
    let mut mux = Mux::default();
    assert_eq!(told(&mux.set(Source::File, &mut [], at(1))), ["Add"]);
    assert_eq!(told(&mux.set(Source::File, &mut [], at(2))), [""; 0]);
    assert_eq!(told(&mux.set(Source::Url, &mut [], at(3))), ["Add"]);
}

#[test]
fn a_second_pod_of_the_same_name_or_uid_is_refused_with_an_event() {
    let pod = |name, uid| Sketch { name, uid, ..Sketch::default() };
    let mut mux = Mux::default();
    let merge = mux.set(Source::Submitted, &mut stated(&[pod(0, 0), pod(0, 1), pod(2, 0)]), at(1));
    assert_eq!(told(&merge), ["Add p0"]);
    let messages: Vec<_> =
        merge.events.iter().map(|event| (&*event.reason, event.message.as_str())).collect();
    assert_eq!(
        messages,
        [
            (
                "FailedValidation",
                "Error validating pod p0_default(u1) from http due to duplicate pod name \"p0\", ignoring"
            ),
            (
                "FailedValidation",
                "Error validating pod p2_default(u0) from http due to duplicate pod UID \"u0\", ignoring"
            ),
        ]
    );
}

#[test]
fn source_and_first_sight_are_noted_and_outlive_updates() {
    let mut mux = Mux::default();
    mux.set(Source::File, &mut stated(&[Sketch::default()]), at(1));
    let merge =
        mux.set(Source::File, &mut stated(&[Sketch { image: 1, local: 5, ..Sketch::default() }]), at(2));
    let pod: Pod = serde_json::from_slice(&merge.updates[0].pods[0].json).unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::CONFIG_SOURCE], "file");
    assert_eq!(annotations[annotation::CONFIG_SEEN], "1970-01-01T00:00:01.000000000Z");
}

#[test]
fn a_source_gets_back_the_memory_that_is_stored() {
    let mut mux = Mux::default();
    let mut pods = stated(&[Sketch::default()]);
    let merge = mux.set(Source::File, &mut pods, at(1));
    assert!(Arc::ptr_eq(&pods[0].json, &merge.updates[0].pods[0].json));
}

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let small = 0..3_u8;
    let sketch = (0..5_u8, 0..5_u8, small.clone(), small.clone(), small.clone(), any::<bool>(), small);
    let sketch = sketch.prop_map(|(name, uid, image, label, annotation, is_deleted, phase)| Sketch {
        name,
        uid,
        image,
        label,
        annotation,
        local: 0,
        is_deleted,
        phase,
    });
    prop::collection::vec(sketch, 0..6)
}

/// The list without what is refused.
fn accepted(list: &[Sketch]) -> Vec<Sketch> {
    let (mut taken, mut names) = (Vec::<Sketch>::new(), HashSet::new());
    for sketch in list {
        if names.insert(sketch.name) && taken.iter().all(|other| other.uid != sketch.uid) {
            taken.push(sketch.clone());
        }
    }
    taken
}

fn without_local(mut pod: Pod) -> Pod {
    pod.metadata.annotations.get_or_insert_default().retain(|key, _| !is_local(key));
    pod
}

proptest! {
    #[test]
    fn the_ops_add_up_to_the_last_list(lists in prop::collection::vec(sketches(), 1..8)) {
        let mut mux = Mux::default();
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        for (second, list) in lists.iter().enumerate() {
            let merge = mux.set(Source::File, &mut stated(list), at(second as i64));
            prop_assert_eq!(merge.events.len(), list.len() - accepted(list).len());
            for update in merge.updates {
                prop_assert!(!update.pods.is_empty() || (second == 0 && update.op == Op::Add));
                for pod in update.pods {
                    let uid = pod.id.uid.as_str().to_owned();
                    let before = match update.op {
                        Op::Remove => pods.remove(&uid),
                        _ => pods.insert(uid, serde_json::from_slice(&pod.json).unwrap()),
                    };
                    prop_assert_eq!(before.is_none(), update.op == Op::Add);
                }
            }
            let expected: BTreeMap<_, _> = accepted(list)
                .iter()
                .map(|sketch| (format!("u{}", sketch.uid), without_local(sketch.pod())))
                .collect();
            let found: BTreeMap<_, _> =
                pods.iter().map(|(uid, pod)| (uid.clone(), without_local(pod.clone()))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

/// What is told of a pod after a first one, where a source tells its changes one by one.
fn check_put(first: &Sketch, second: &Sketch, expected: &[&str]) {
    let mut mux = Mux::default();
    mux.set(Source::Api, &mut stated(std::slice::from_ref(first)), at(1));
    let merge = mux.put(Source::Api, &Stated::of(&second.pod()), at(2));
    assert_eq!(told(&merge), expected, "{first:?} -> {second:?}");
    let again = mux.put(Source::Api, &Stated::of(&second.pod()), at(3));
    assert_eq!(told(&again), [""; 0], "{second:?} twice");
}

#[test]
fn a_pod_that_is_told_alone_has_the_same_ops() {
    let base = Sketch::default();
    check_put(&base, &base, &[]);
    check_put(&base, &Sketch { local: 1, ..base.clone() }, &[]);
    check_put(&base, &Sketch { phase: 1, ..base.clone() }, &["Reconcile p0"]);
    check_put(&base, &Sketch { image: 1, ..base.clone() }, &["Update p0"]);
    check_put(&base, &Sketch { is_deleted: true, ..base.clone() }, &["Delete p0"]);
    check_put(&base, &Sketch { name: 1, uid: 1, ..base.clone() }, &["Add p1"]);
    // Nobody said that the first one is gone.
    check_put(&base, &Sketch { uid: 1, ..base.clone() }, &["Remove p0", "Add p0"]);
}

#[test]
fn a_pod_is_taken_by_its_uid_and_once() {
    let mut mux = Mux::default();
    mux.set(Source::Api, &mut stated(&[Sketch::default()]), at(1));
    mux.set(Source::File, &mut stated(&[Sketch { name: 1, ..Sketch::default() }]), at(1));
    let (uid, other) = (PodUid::new("u0"), PodUid::new("u1"));
    assert_eq!(told(&mux.take(Source::Api, &other)), [""; 0]);
    // A late word of the first does not hurt a second of the same name.
    mux.put(Source::Api, &Stated::of(&Sketch { uid: 1, ..Sketch::default() }.pod()), at(2));
    assert_eq!(told(&mux.take(Source::Api, &uid)), [""; 0]);
    assert_eq!(told(&mux.take(Source::Api, &other)), ["Remove p0"]);
    assert_eq!(told(&mux.take(Source::Api, &other)), [""; 0]);
    assert_eq!(told(&mux.take(Source::File, &uid)), ["Remove p1"], "sources do not share pods");
}

#[test]
fn first_sight_outlives_changes_that_are_told_alone() {
    let mut mux = Mux::default();
    mux.put(Source::Api, &Stated::of(&Sketch::default().pod()), at(1));
    let merge = mux.put(Source::Api, &Stated::of(&Sketch { image: 1, ..Sketch::default() }.pod()), at(2));
    let pod: Pod = serde_json::from_slice(&merge.updates[0].pods[0].json).unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::CONFIG_SOURCE], "api");
    assert_eq!(annotations[annotation::CONFIG_SEEN], "1970-01-01T00:00:01.000000000Z");
}

proptest! {
    /// However the API server's pods were told, one by one or as a list, the ops add up to them. A pod's UID is its for
    /// ever, as in the API.
    #[test]
    fn single_changes_and_lists_add_up(steps in prop::collection::vec((sketches(), 0..3_u8), 1..12)) {
        let mut mux = Mux::default();
        mux.set(Source::Api, &mut [], at(0));
        let (mut told, mut expected) = (BTreeMap::<String, Pod>::new(), BTreeMap::<String, Pod>::new());
        for (second, (list, how)) in steps.iter().enumerate() {
            // Two pods of one name never have the same UID, and two UIDs may share a name.
            let list: Vec<Sketch> = list.iter().map(|s| Sketch { uid: s.name * 5 + s.uid, ..s.clone() }).collect();
            let uid = |sketch: &Sketch| format!("u{}", sketch.uid);
            let merge = match (how, list.first()) {
                (0, Some(sketch)) => {
                    expected.retain(|_, pod| pod.metadata.name != sketch.pod().metadata.name);
                    expected.insert(uid(sketch), without_local(sketch.pod()));
                    mux.put(Source::Api, &Stated::of(&sketch.pod()), at(second as i64))
                }
                (1, Some(sketch)) => {
                    expected.remove(&uid(sketch));
                    mux.take(Source::Api, &PodUid::new(uid(sketch)))
                }
                _ => {
                    let taken = accepted(&list);
                    expected = taken.iter().map(|s| (uid(s), without_local(s.pod()))).collect();
                    mux.set(Source::Api, &mut stated(&list), at(second as i64))
                }
            };
            for update in merge.updates {
                for pod in update.pods {
                    let uid = pod.id.uid.as_str().to_owned();
                    let before = match update.op {
                        Op::Remove => told.remove(&uid),
                        _ => told.insert(uid, serde_json::from_slice(&pod.json).unwrap()),
                    };
                    prop_assert_eq!(before.is_none(), update.op == Op::Add);
                }
            }
            let found: BTreeMap<_, _> =
                told.iter().map(|(uid, pod)| (uid.clone(), without_local(pod.clone()))).collect();
            prop_assert_eq!(&found, &expected);
        }
    }
}

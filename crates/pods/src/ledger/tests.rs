//! The files as upstream writes them, and what survives.

use crablet_host::fake::FakeFiles;
use crablet_model::api::PodSpec;
use serde_json::json;

use super::*;

fn allocation(cpu: &str) -> Allocation {
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    Allocation::of(&serde_json::from_value::<PodSpec>(spec).expect("a spec"))
}

/// One pod in upstream's form.
const UPSTREAM: &str = r#"{"data":"{\"entries\":{\"u1\":{\"ContainerResources\":{\"c\":{\"requests\":{\"cpu\":\"1\"}}},\"PodLevelResources\":null}}}","checksum":CHECKSUM}"#;

fn upstream() -> String {
    let data = r#"{"entries":{"u1":{"ContainerResources":{"c":{"requests":{"cpu":"1"}}},"PodLevelResources":null}}}"#;
    UPSTREAM.replace("CHECKSUM", &checksum(data).to_string())
}

#[tokio::test]
async fn what_was_saved_is_there_in_the_next_life() {
    let files: Arc<dyn Files> = Arc::new(FakeFiles::new(fastrand::Rng::with_seed(1)));
    let root = Path::new("/root");
    files.create_folder(root, 0o750).await.expect("a folder");
    let first = Ledgers::new(root, files.clone());
    first.load().await;
    let (a, b) = (PodUid::new("a"), PodUid::new("b"));
    first.allocated.set(&a, allocation("1"));
    first.allocated.set(&b, allocation("2"));
    first.save().await;
    first.allocated.set(&a, allocation("3"));
    first.forget(&b);

    let second = Ledgers::new(root, files.clone());
    second.load().await;
    assert_eq!(second.allocated.get(&a).as_deref(), Some(&allocation("1")), "the change was not saved");
    assert!(second.allocated.get(&b).is_some() && second.actuated.get(&a).is_none());
    second.keep(&BTreeSet::from([a.clone()]));
    second.allocated.set(&a, allocation("4"));
    second.save().await;

    let third = Ledgers::new(root, files);
    third.load().await;
    assert_eq!(third.allocated.get(&a).as_deref(), Some(&allocation("4")));
    assert_eq!(third.allocated.get(&b), None, "it left with the next change");
}

#[tokio::test]
async fn upstreams_file_is_read() {
    let files: Arc<dyn Files> = Arc::new(FakeFiles::new(fastrand::Rng::with_seed(1)));
    let root = Path::new("/root");
    files.create_folder(root, 0o750).await.expect("a folder");
    let path = root.join(ALLOCATED);
    files.write_atomic(&path, upstream().as_bytes(), 0o600).await.expect("a file");
    let ledgers = Ledgers::new(root, files.clone());
    ledgers.load().await;
    assert_eq!(ledgers.allocated.get(&PodUid::new("u1")).as_deref(), Some(&allocation("1")));
    // And written alike.
    ledgers.allocated.set(&PodUid::new("u1"), allocation("2"));
    ledgers.allocated.set(&PodUid::new("u1"), allocation("1"));
    ledgers.save().await;
    assert_eq!(files.read(&path, 1 << 20).await.expect("a file"), upstream().as_bytes());
}

#[test]
fn a_file_that_makes_no_sense_is_for_an_operator_to_remove() {
    let path = Path::new("/root/allocated_pods_state");
    assert_eq!(check(path, upstream().as_bytes()), Ok(()));
    for bad in ["", "{}", r#"{"data":"{}","checksum":1}"#] {
        let error = check(path, bad.as_bytes()).expect_err("it makes no sense");
        assert!(error.starts_with("could not restore state from checkpoint: "), "{error}");
        assert!(error.ends_with(
            "please drain this node and delete pod resource information checkpoint file \
             \"/root/allocated_pods_state\" before restarting Kubelet"
        ));
    }
}

#[test]
fn the_checksum_is_upstreams() {
    let data = r#"{"entries":{"pod1":{"ContainerResources":{"container1":{"requests":{"cpu":"1Ki","memory":"1Ki"}}}}}}"#;
    assert_eq!(checksum(data), 1_178_570_812, "as upstream's own tests have it");
}

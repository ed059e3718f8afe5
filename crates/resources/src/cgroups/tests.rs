use std::time::Duration;

use crablet_model::cgroup::Cgroup;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::fake::FakeCgroups;
use crate::settings::NodeLimits;

fn settings() -> CgroupSettings {
    CgroupSettings {
        per_qos: true,
        root: "/".to_string(),
        driver: CgroupDriver::Cgroupfs,
        pod_pids_limit: -1,
        cpu_quota: true,
        cpu_period: Duration::from_millis(100),
        allocatable: Some(NodeLimits {
            memory: 1 << 30,
            milli_cpu: 2000,
            pids: Some(1000),
            cpus: Some("0-1".into()),
        }),
        page_sizes: vec!["2MB".to_string()],
    }
}

fn pod(uid: &str, resources: Value) -> api::Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }))
    .expect("a pod")
}

fn burstable(uid: &str, cpu: &str) -> api::Pod {
    pod(uid, json!({"requests": {"cpu": cpu}}))
}

fn shares(host: &FakeCgroups, path: &str) -> Option<i64> {
    host.made().get(path).and_then(|limits| limits.cpu_shares)
}

fn paths(host: &FakeCgroups) -> Vec<String> {
    host.made().into_keys().collect()
}

#[tokio::test]
async fn a_pod_comes_and_goes() {
    let host = Arc::new(FakeCgroups::default());
    let cgroups = Cgroups::new(settings(), host.clone());
    cgroups.start().await.expect("start");
    assert_eq!(paths(&host), ["/kubepods", "/kubepods/besteffort", "/kubepods/burstable"]);
    let kubepods = &host.made()["/kubepods"];
    assert_eq!(
        (kubepods.memory, kubepods.cpu_shares, kubepods.pids),
        (Some(1 << 30), Some(2048), Some(1000))
    );
    assert_eq!(kubepods.huge_pages["2MB"], 1 << 62);
    assert_eq!(
        (shares(&host, "/kubepods/burstable"), shares(&host, "/kubepods/besteffort")),
        (Some(2), Some(2))
    );

    let (first, second) = (burstable("u1", "500m"), burstable("u2", "1"));
    cgroups.ensure_pod(&first).await.expect("first");
    cgroups.ensure_pod(&second).await.expect("second");
    assert_eq!(cgroups.pod_parent(&first), "/kubepods/burstable/podu1");
    assert_eq!(shares(&host, "/kubepods/burstable/podu1"), Some(512));
    assert_eq!(shares(&host, "/kubepods/burstable"), Some(1536), "what both ask for");
    assert_eq!(cgroups.pods().await, [PodUid::new("u1"), PodUid::new("u2")]);

    let calls = host.calls();
    cgroups.ensure_pod(&first).await.expect("again");
    assert_eq!(host.calls(), calls, "the machine is not asked again");

    cgroups.remove_pod(&PodUid::new("u2")).await.expect("removal");
    assert_eq!(shares(&host, "/kubepods/burstable"), Some(512));
    assert_eq!(cgroups.pods().await, [PodUid::new("u1")]);
}

#[tokio::test]
async fn cgroups_of_an_earlier_life_are_found_and_kept_as_they_are() {
    let host = Arc::new(FakeCgroups::default());
    let earlier = Cgroups::new(settings(), host.clone());
    earlier.start().await.expect("start");
    earlier.ensure_pod(&burstable("u1", "500m")).await.expect("a pod");
    earlier.ensure_pod(&pod("gone", json!({}))).await.expect("a pod");

    let cgroups = Cgroups::new(settings(), host.clone());
    cgroups.start().await.expect("start");
    assert_eq!(
        shares(&host, "/kubepods/burstable"),
        Some(512),
        "nobody loses CPU because the agent restarts"
    );
    assert_eq!(cgroups.pods().await, [PodUid::new("gone"), PodUid::new("u1")]);
    // Settings are not applied again: they would undo what was changed meanwhile.
    cgroups.ensure_pod(&burstable("u1", "900m")).await.expect("a pod");
    assert_eq!(shares(&host, "/kubepods/burstable/podu1"), Some(512));
    // An orphan's class is unknown.
    cgroups.remove_pod(&PodUid::new("gone")).await.expect("removal");
    assert!(!paths(&host).iter().any(|path| path.contains("podgone")));
}

#[tokio::test]
async fn slices_below_a_configured_root() {
    let host = Arc::new(FakeCgroups::default());
    let driver = CgroupDriver::Systemd;
    host.create(&Cgroup::new("/foo", driver), &CgroupLimits::default()).await.expect("the root");
    let cgroups = Cgroups::new(CgroupSettings { root: "/foo".into(), driver, ..settings() }, host.clone());
    cgroups.start().await.expect("start");
    let web = pod(
        "a-b",
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
    );
    cgroups.ensure_pod(&web).await.expect("a pod");
    assert_eq!(cgroups.pod_parent(&web), "/foo.slice/foo-kubepods.slice/foo-kubepods-poda_b.slice");
    assert!(paths(&host).contains(&cgroups.pod_parent(&web)));
    assert_eq!(cgroups.pods().await, [PodUid::new("a-b")]);
}

#[tokio::test]
async fn without_classes_nothing_is_made() {
    let host = Arc::new(FakeCgroups::default());
    let cgroups = Cgroups::new(CgroupSettings { per_qos: false, ..settings() }, host.clone());
    let web = burstable("u1", "1");
    cgroups.start().await.expect("start");
    cgroups.ensure_pod(&web).await.expect("a pod");
    cgroups.remove_pod(&PodUid::new("u1")).await.expect("removal");
    Cgroups::enforce(Arc::downgrade(&cgroups), |event| panic!("told of {event:?}")).await;
    assert_eq!(
        (cgroups.pod_parent(&web), cgroups.pods().await, host.calls()),
        (String::new(), Vec::new(), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_all_pods_is_tried_each_minute_until_it_holds() {
    let host = Arc::new(FakeCgroups::default());
    Cgroups::new(settings(), host.clone()).start().await.expect("an earlier life");
    let less = NodeLimits { memory: 1 << 20, milli_cpu: 1000, pids: None, cpus: None };
    let cgroups = Cgroups::new(CgroupSettings { allocatable: Some(less), ..settings() }, host.clone());
    cgroups.start().await.expect("start");
    host.fail_with(Some("device or resource busy"));
    let (tell, mut told) = mpsc::unbounded_channel();
    tokio::spawn(Cgroups::enforce(Arc::downgrade(&cgroups), move |event| {
        tell.send(event).expect("somebody listens");
    }));
    let busy = NodeEvent::warning(
        "FailedNodeAllocatableEnforcement",
        r#"Failed to update Node Allocatable Limits ["kubepods"]: device or resource busy"#,
    );
    assert_eq!(told.recv().await, Some(busy.clone()));
    let first = Instant::now();
    assert_eq!(told.recv().await, Some(busy));
    assert_eq!(first.elapsed().as_secs(), 60);
    assert_eq!(host.made()["/kubepods"].memory, Some(1 << 30));

    host.fail_with(None);
    let done = NodeEvent::normal("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods");
    assert_eq!(told.recv().await, Some(done));
    assert_eq!(host.made()["/kubepods"].memory, Some(1 << 20));
    assert_eq!(told.recv().await, None, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn nobody_limits_pods_whose_cgroups_are_let_go() {
    let host = Arc::new(FakeCgroups::default());
    let cgroups = Cgroups::new(settings(), host.clone());
    cgroups.start().await.expect("start");
    host.fail_with(Some("device or resource busy"));
    let (tell, mut told) = mpsc::unbounded_channel();
    let enforced = tokio::spawn(Cgroups::enforce(Arc::downgrade(&cgroups), move |event| {
        tell.send(event).expect("somebody listens");
    }));
    told.recv().await.expect("a refusal");
    drop(cgroups);
    enforced.await.expect("an end");
    assert_eq!(told.recv().await, None);
}

#[tokio::test]
async fn refusals_are_upstreams() {
    let host = Arc::new(FakeCgroups::default());
    let missing = Cgroups::new(CgroupSettings { root: "/no/such".into(), ..settings() }, host.clone());
    assert_eq!(
        missing.start().await.expect_err("no root"),
        r#"invalid configuration: cgroup ["no" "such"] has some missing paths: /sys/fs/cgroup/no/such"#
    );
    let cgroups = Cgroups::new(settings(), host.clone());
    cgroups.start().await.expect("start");
    host.fail_with(Some("the disk is full"));
    assert_eq!(
        cgroups.ensure_pod(&burstable("u1", "1")).await.expect_err("a failure"),
        "failed to create container for [kubepods burstable podu1] : the disk is full"
    );
    assert_eq!(
        cgroups.remove_pod(&PodUid::new("u1")).await.expect_err("a failure"),
        "failed to delete cgroup paths for [kubepods podu1] : the disk is full"
    );
    host.fail_with(None);
    cgroups.ensure_pod(&burstable("u1", "1")).await.expect("the next try works");
    assert_eq!(shares(&host, "/kubepods/burstable"), Some(1024));

    let outside = cgroups.ensure_pod(&burstable("x/../../..", "1")).await.expect_err("a bad uid");
    assert!(outside.contains("`metadata.uid`"), "{outside}");
}

//! Whole pods whose begin or end does not go as it should.

use std::sync::Arc;
use std::time::Duration;

use crablet_cri::RegistryAuth;
use crablet_cri::fake::{Call, CallFault, FakeImage, FaultKind, Pull, What};
use crablet_model::PodUid;
use serde_json::{Value, json};

use crate::sources::Op;
use crate::testing::House;

const HOSTS: &str = "/var/lib/kubelet/pods/uid-1/etc-hosts";
/// What happens at once takes less, on a clock that moves only while everybody waits.
const AT_ONCE: Duration = Duration::from_secs(1);

fn pod(containers: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": containers},
    })
}

fn plain(name: &str) -> Value {
    json!({"name": name, "image": "app:1", "imagePullPolicy": "IfNotPresent"})
}

fn is_released(house: &House) -> bool {
    house.status("uid-1")["phase"] == "Failed"
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_volumes_ends_at_once() {
    let house = House::new().await;
    house.volumes.close();
    let pod = pod(&json!([plain("main")]));
    house.create(&pod).await;
    house.until("a look for the volumes", |house| house.volumes.asked() > 0).await;
    house.delete(&pod, 30).await;
    assert!(house.until("its end", is_released).await < AT_ONCE);
    house.remove(&pod).await;
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
    assert!(house.runtime.trace().iter().all(|entry| !format!("{entry:?}").contains("RunSandbox")));
}

#[tokio::test(start_paused = true)]
async fn a_container_starts_when_what_its_environment_lacks_comes() {
    let house = House::new().await;
    let mut lacking = plain("main");
    lacking["env"] = json!([
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}},
    ]);
    house.create(&pod(&json!([lacking]))).await;
    let waits = |house: &House| house.waits("uid-1", 0) == "CreateContainerConfigError";
    house.until("that it is told", waits).await;
    // An object without the key changes nothing, and what comes next is heard all the same.
    house.objects.put_config_map("late", json!({"b": "2"}));
    let tells = |house: &House| house.told().iter().any(|event| event.contains("couldn't find key a"));
    assert!(house.until("that the key is lacking", tells).await < AT_ONCE);
    house.objects.put_config_map("late", json!({"a": "1"}));
    assert!(house.until("its start", |house| house.running() == ["main"]).await < AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_command_with_a_value_that_is_no_text_is_refused_as_the_runtime_would() {
    let house = House::new().await;
    let secret = json!({"metadata": {"name": "blob", "namespace": "default"}, "data": {"key": "/w=="}});
    house.objects.put_secret("blob", secret);
    let mut binary = plain("main");
    binary["env"] = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "blob", "key": "key"}}}]);
    binary["command"] = json!(["run", "$(KEY)"]);
    let mut other = binary.clone();
    other["name"] = json!("other");
    other["command"] = json!(["run"]);
    house.create(&pod(&json!([binary, other]))).await;
    house.until("the start of the other", |house| house.running() == ["other"]).await;
    house.until("that it is told", |house| house.waits("uid-1", 0) == "CreateContainerError").await;
    let why = "Error: grpc: error while marshaling: string field contains invalid UTF-8";
    assert!(house.told().iter().any(|event| event.contains(why)));
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_when_the_secret_for_it_comes() {
    let house = House::new().await;
    let auth = RegistryAuth { username: "u".to_owned(), password: "p".to_owned() };
    let pull = Pull::Works { after: Duration::from_millis(10) };
    house.runtime.put_image("r.io/app:1", FakeImage { needs: Some(auth), ..FakeImage::pulled(pull) });
    let mut pod = pod(&json!([{"name": "main", "image": "r.io/app:1", "imagePullPolicy": "IfNotPresent"}]));
    pod["spec"]["imagePullSecrets"] = json!([{"name": "key"}]);
    house.create(&pod).await;
    house.until("its back-off", |house| house.waits("uid-1", 0) == "ImagePullBackOff").await;
    let config = json!({"auths": {"r.io": {"username": "u", "password": "p"}}}).to_string();
    let data = json!({".dockerconfigjson": k8s_openapi::ByteString(config.into_bytes())});
    let secret = json!({
        "metadata": {"name": "key", "namespace": "default", "uid": "key-1"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": data,
    });
    house.objects.put_secret("key", secret);
    assert!(house.until("its start", |house| house.running() == ["main"]).await < AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_nobody_mounts_is_pulled_and_missed_by_nobody() {
    let house = House::new().await;
    let pull = Pull::Works { after: Duration::from_millis(10) };
    house.runtime.put_image("art:1", FakeImage::pulled(pull));
    house.runtime.put_image("gone:1", FakeImage::pulled(Pull::Fails("no such host".to_owned())));
    let mut pod = pod(&json!([plain("main"), plain("other")]));
    pod["spec"]["volumes"] = json!([
        {"name": "art", "image": {"reference": "art:1", "pullPolicy": "IfNotPresent"}},
        {"name": "gone", "image": {"reference": "gone:1", "pullPolicy": "IfNotPresent"}},
    ]);
    house.create(&pod).await;
    house.until("its start", |house| house.running() == ["main", "other"]).await;
    // Told once, and of the pod.
    let told = house.told();
    for begin in [
        "Pulling  Pulling image \"art:1\"",
        "Pulled  Successfully pulled image \"art:1\"",
        "Pulling  Pulling image \"gone:1\"",
        "Failed  Failed to pull image \"gone:1\": no such host",
    ] {
        assert_eq!(told.iter().filter(|event| event.starts_with(begin)).count(), 1, "{begin}\n{told:#?}");
    }
    assert!(!told.iter().any(|event| event.contains("Error: ")), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_told_of_the_sandbox_that_it_is_for() {
    let house = House::new().await;
    let mut always = plain("main");
    always["imagePullPolicy"] = json!("Always");
    house.create(&pod(&json!([always]))).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    assert!(house.runtime.lose_sandbox(&PodUid::new("uid-1"), true));
    house.until("its next start", |house| restarts(house) == Some(1)).await;
    let of_pull = |what: &What| match what {
        What::Called { call: Call::PullImage, subject, .. } => Some(subject.attempt),
        _ => None,
    };
    let attempts: Vec<u32> = house.runtime.trace().iter().filter_map(|entry| of_pull(&entry.what)).collect();
    assert_eq!(attempts, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_brings_its_own_hosts_file_does_not_need_the_nodes() {
    let house = House::new().await;
    let mut own = plain("main");
    own["volumeMounts"] = json!([{"name": "v", "mountPath": "/etc/hosts"}]);
    let mut pod = pod(&json!([own]));
    pod["spec"]["hostNetwork"] = json!(true);
    house.create(&pod).await;
    // The next thing that it lacks.
    let tells = |house: &House| house.told().iter().any(|event| event.contains("cannot find volume \"v\""));
    house.until("that there is no such volume", tells).await;
    assert!(!house.told().iter().any(|event| event.contains("cannot read /etc/hosts")));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_somebody_loads_ends_the_wait_for_its_pull() {
    let house = House::new().await;
    let pull = Pull::Fails("no such host".to_owned());
    house.runtime.put_image("r.io/app:1", FakeImage::pulled(pull));
    let pod = pod(&json!([{"name": "main", "image": "r.io/app:1", "imagePullPolicy": "IfNotPresent"}]));
    house.create(&pod).await;
    let failures = |house: &House| house.told().iter().filter(|e| e.contains("Failed to pull image")).count();
    house.until("a wait of 40 s", |house| failures(house) == 3).await;
    house.runtime.put_image("r.io/app:1", FakeImage::present());
    let took = house.until("its start", |house| house.running() == ["main"]).await;
    assert!(took < Duration::from_secs(11), "{took:?}");
    assert!(house.told().iter().any(|event| event.contains("already present on machine")));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_stopped_holds_nobody_up() {
    let house = House::new().await;
    let refusal = FaultKind::ErrBefore("the shim does not answer".to_owned());
    house.runtime.add_fault(CallFault::on(Call::StopContainer, refusal).of_container("deaf"));
    let pod = pod(&json!([plain("deaf"), plain("main")]));
    house.create(&pod).await;
    house.until("its start", |house| house.running() == ["deaf", "main"]).await;
    house.delete(&pod, 5).await;
    assert!(house.until("the end of the other", |house| house.running() == ["deaf"]).await < AT_ONCE);
    let told = "FailedKillPod  error killing pod: failed to \"KillContainer\" for \"deaf\" with KillContainerError: ";
    let tells = |event: &String| event.starts_with(told) && event.contains("the shim does not answer");
    house.until("a word about it", |house| house.told().iter().any(tells)).await;
    // Its sandbox goes once its grace is over, and takes it along.
    house.until("its end", is_released).await;
    assert!(house.running().is_empty());
    house.remove(&pod).await;
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_removed_goes_with_its_sandbox() {
    let house = House::new().await;
    let refusal = FaultKind::ErrBefore("device or resource busy".to_owned());
    house.runtime.add_fault(CallFault::on(Call::RemoveContainer, refusal).of_container("busy"));
    let pod = pod(&json!([plain("busy"), plain("main")]));
    house.create(&pod).await;
    house.until("its start", |house| house.running() == ["busy", "main"]).await;
    house.remove(&pod).await;
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
    assert!(house.told().iter().any(|event| event.contains("device or resource busy")));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_comes_after_the_end_leaves_nothing() {
    for late in [9, 11, 12, 15, 40] {
        let house = House::new().await;
        let slow = FaultKind::Slow(Duration::from_secs(late));
        house.runtime.add_fault(CallFault::on(Call::RunSandbox, slow));
        let pod = pod(&json!([plain("main")]));
        house.create(&pod).await;
        house.until("the volumes", |house| house.volumes.asked() > 0).await;
        house.remove(&pod).await;
        house.until("that it is given up or there", |house| house.is_gone("uid-1")).await;
        // The runtime goes on with what it was asked for.
        tokio::time::sleep(Duration::from_secs(60)).await;
        house.until("nothing of it", |house| house.is_gone("uid-1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_fails_is_told_of_unless_its_pod_ends() {
    for ends in [false, true] {
        let house = House::new().await;
        let hangs = FaultKind::Hang { effect: false };
        house.runtime.add_fault(CallFault::on(Call::RunSandbox, hangs).times(1));
        let pod = pod(&json!([plain("main")]));
        house.create(&pod).await;
        let is_asked = |house: &House| {
            house.runtime.trace().iter().any(|entry| format!("{entry:?}").contains("RunSandbox"))
        };
        house.until("a call for the sandbox", is_asked).await;
        if ends {
            house.delete(&pod, 30).await;
        }
        tokio::time::sleep(AT_ONCE).await;
        // What hangs fails now.
        house.runtime.clear_faults();
        tokio::time::sleep(AT_ONCE).await;
        if ends {
            house.until("its end", is_released).await;
        } else {
            house.until("its start", |house| house.running() == ["main"]).await;
        }
        let is_told = house.told().iter().any(|event| event.starts_with("FailedCreatePodSandBox"));
        assert_eq!(is_told, !ends);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_says_that_it_waits_for_the_network() {
    const TEXT: &str = "NetworkNotReady  network is not ready: container runtime network not ready: \
                        cni plugin not initialized";
    let house = House::new().await;
    house.runtime.set_network_ready(false);
    // The runtime is asked how it is once a minute.
    tokio::time::sleep(Duration::from_secs(70)).await;
    house.create(&pod(&json!([plain("main")]))).await;
    let times = |house: &House| house.told().iter().filter(|event| event.as_str() == TEXT).count();
    assert!(house.until("a word about it", |house| times(house) > 0).await < AT_ONCE);
    assert!(house.until("another", |house| times(house) > 1).await < 2 * AT_ONCE);
    house.runtime.set_network_ready(true);
    house.until("its start", |house| house.running() == ["main"]).await;
    let told = house.told().iter().filter(|event| event.starts_with("NetworkNotReady")).count();
    assert_eq!(told, times(&house), "and nothing else of it");
}

/// As containerd does: what a mount is made of is made where it is missing, also for a pod that has gone meanwhile.
#[tokio::test(start_paused = true)]
async fn a_create_that_comes_back_after_the_end_leaves_nothing() {
    let house = House::new().await;
    let disk = house.disk.clone();
    house.runtime.set_make_source(Arc::new(move |path| {
        let is_missing = disk.mode(path).is_none();
        if is_missing {
            disk.put_folder(path);
        }
        is_missing
    }));
    let stalls = FaultKind::Stalls(Duration::from_secs(100));
    house.runtime.add_fault(CallFault::on(Call::CreateContainer, stalls));
    let pod = pod(&json!([plain("main")]));
    house.create(&pod).await;
    let has_hosts = |house: &House| house.disk.mode(HOSTS).is_some();
    house.until("its hosts file", has_hosts).await;
    house.remove(&pod).await;
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
    house.until("a folder in its place", has_hosts).await;
    house.until("nothing of it again", |house| house.is_gone("uid-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_folder_in_the_place_of_the_hosts_file_holds_nobody_up() {
    let house = House::new().await;
    house.volumes.close();
    house.create(&pod(&json!([plain("main")]))).await;
    house.until("a look for the volumes", |house| house.volumes.asked() > 0).await;
    house.disk.put_folder(HOSTS);
    house.volumes.open();
    house.until("its start", |house| house.running() == ["main"]).await;
    let hosts = house.disk.content(HOSTS).unwrap_or_default();
    assert!(String::from_utf8_lossy(&hosts).contains("localhost"));
}

/// How often the pod's only container was started again, once it runs.
fn restarts(house: &House) -> Option<i64> {
    let status = house.status("uid-1");
    let container = &status["containerStatuses"][0];
    container["state"]["running"].is_object().then(|| container["restartCount"].as_i64()).flatten()
}

/// Somebody stops the sandbox: its containers die first, and the sandbox while one of them is begun again.
#[tokio::test(start_paused = true)]
async fn a_start_in_a_sandbox_that_goes_is_not_held_against_the_container() {
    let house = House::new().await;
    let pod = pod(&json!([plain("main")]));
    house.create(&pod).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    let late = FaultKind::Slow(Duration::from_secs(5));
    house.runtime.add_fault(CallFault::on(Call::StartContainer, late).times(1));
    let uid = PodUid::new("uid-1");
    assert!(house.runtime.kill_container(&uid, "main", 137));
    house.until("another container", |house| house.runtime.containers().len() == 2).await;
    assert!(house.runtime.lose_sandbox(&uid, false));
    let took = house.until("it runs again", |house| house.running() == ["main"]).await;
    assert!(took < Duration::from_secs(8), "it was held back: {took:?}");
    house.until("one restart", |house| restarts(house) == Some(1)).await;
    let complaints: Vec<String> =
        house.told().into_iter().filter(|line| line.contains("Failed") || line.contains("BackOff")).collect();
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(house.told().iter().filter(|line| line.starts_with("SandboxChanged")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_comes_back_before_its_end_is_restarted() {
    let house = House::new().await;
    let pod = pod(&json!([plain("main")]));
    house.manifest(Op::Add, &pod).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    for count in 1..=2 {
        house.manifest(Op::Remove, &pod).await;
        house.manifest(Op::Add, &pod).await;
        house.until("its next start", |house| restarts(house) == Some(count)).await;
        assert_eq!(house.status("uid-1")["phase"], "Running");
    }
    house.manifest(Op::Remove, &pod).await;
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_comes_back_with_other_resources_begins_with_them() {
    let house = House::new().await;
    let before = pod(&json!([plain("main")]));
    house.manifest(Op::Add, &before).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    let amounts = json!({"cpu": "1", "memory": "1Gi"});
    let mut container = plain("main");
    container["resources"] = json!({"requests": amounts, "limits": amounts});
    house.manifest(Op::Remove, &before).await;
    house.manifest(Op::Add, &pod(&json!([container]))).await;
    house.until("its next start", |house| restarts(house) == Some(1)).await;
    assert_eq!(house.status("uid-1")["containerStatuses"][0]["allocatedResources"], amounts);
    let resizes: Vec<String> = house.told().into_iter().filter(|line| line.starts_with("Resize")).collect();
    assert_eq!(resizes, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_comes_back_and_goes_leaves_nothing() {
    let house = House::new().await;
    let pod = pod(&json!([plain("main")]));
    house.manifest(Op::Add, &pod).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    for op in [Op::Remove, Op::Add, Op::Remove] {
        house.manifest(op, &pod).await;
    }
    house.until("nothing of it", |house| house.is_gone("uid-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_whose_end_is_final_comes_back_without_a_past() {
    let house = House::new().await;
    let mut pod = pod(&json!([plain("main")]));
    pod["spec"]["restartPolicy"] = json!("Never");
    house.manifest(Op::Add, &pod).await;
    house.until("its start", |house| restarts(house) == Some(0)).await;
    let first = house.status("uid-1")["containerStatuses"][0]["containerID"].clone();
    house.manifest(Op::Remove, &pod).await;
    house.manifest(Op::Add, &pod).await;
    let is_another = |house: &House| house.status("uid-1")["containerStatuses"][0]["containerID"] != first;
    house.until("another container", |house| is_another(house) && restarts(house) == Some(0)).await;
}

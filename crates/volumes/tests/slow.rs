//! A pod says what it waits for and since when; a walk over files tells by itself how far it is.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Agent, claim_volume, pod};
use crablet_host::fake::{FileFault, FileFaultKind};
use crablet_model::PodRef;
use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::port::PathKind;
use serde_json::json;

const ROOT: &str = "/r";
const AN_HOUR: FileFaultKind = FileFaultKind::Slow(Duration::from_secs(3600));

fn start() -> (Agent, FakeVolumeHost) {
    let host = FakeVolumeHost::default();
    host.put("/data", PathKind::Folder);
    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    agent.put_claim("c", json!({ "local": { "path": "/data" } }));
    (agent, host)
}

#[tokio::test(start_paused = true)]
async fn a_set_up_that_hangs_is_told_once_with_its_time() {
    let (agent, host) = start();
    host.add_fault(FileFault::on("kind", "/data", AN_HOUR).times(2));
    let hung = pod(json!([{ "name": "far", "hostPath": { "path": "/data", "type": "Directory" } }]));
    for _ in 0..2 {
        // Whoever waits gives up and begins anew, as a worker does.
        let set_up = tokio::time::timeout(Duration::from_secs(60), agent.volumes.set_up(&hung)).await;
        assert!(set_up.is_err());
    }
    let told = agent.events.texts();
    let text = "FailedMount MountVolume.SetUp for volume \"far\" is taking longer than expected: \
                waiting for the host's path \"/data\" since 2";
    assert!(told.len() == 1 && told[0].starts_with(text), "{told:?}");
    agent.volumes.tear_down(&PodRef::of(&hung)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_teardown_that_fails_or_hangs_is_told_once() {
    let (agent, host) = start();
    let pod = pod(json!([claim_volume("c")]));
    agent.volumes.set_up(&pod).await.unwrap();
    let busy = FileFaultKind::Errno(rustix::io::Errno::BUSY.raw_os_error());
    host.add_fault(FileFault::on("unmount", "pv-c", busy).times(3));
    let id = PodRef::of(&pod);
    for _ in 0..3 {
        agent.volumes.tear_down(&id).await.unwrap_err();
    }
    let told = agent.events.texts();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("FailedUnMount UnmountVolume.TearDown failed for volume \"pv-c\" : unmount ")
    );
    host.add_fault(FileFault::on("unmount", "pv-c", AN_HOUR).times(1));
    agent.volumes.tear_down(&id).await.unwrap();
    let told = agent.events.texts();
    let text = "FailedUnMount UnmountVolume.TearDown for volume \"pv-c\" is taking longer than expected: waiting since 2";
    assert!(told.len() == 2 && told[1].starts_with(text), "{told:?}");
}

//! The agent dies at every step there is; the next life finds its way.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Agent, UID, pod};
use crablet_apiserver::ObjectKind;
use crablet_model::{PodRef, api};
use crablet_volumes::fake::FakeVolumeHost;
use serde_json::json;
use tokio::sync::Notify;

const ROOT: &str = "/r";

fn start(host: &FakeVolumeHost, content: &str) -> Agent {
    let agent = Agent::start(Path::new(ROOT), Arc::new(host.clone()));
    agent.objects.config_map("map", json!({ "a": content, content: "key" }));
    agent.objects.put(ObjectKind::Secret, "secret", Some(json!({ "data": { "key": "eA==" } })));
    agent
}

async fn live(agent: &Agent, pod: &api::Pod) -> Result<String, String> {
    agent.volumes.set_up(pod).await?;
    agent.volumes.sub_path(&PodRef::of(pod), "c", 0, "disk", "sub/dir").await
}

#[tokio::test(start_paused = true)]
async fn a_death_at_any_step_is_mended_by_the_next_life() {
    let pod = pod(json!([
        { "name": "disk", "emptyDir": {} },
        { "name": "mem", "emptyDir": { "medium": "Memory" } },
        { "name": "map", "configMap": { "name": "map", "defaultMode": 0o644 } },
        { "name": "hush", "secret": { "secretName": "secret", "defaultMode": 0o644 } },
    ]));
    let id = PodRef::of(&pod);
    let mut last_step = 0;
    loop {
        let host = FakeVolumeHost::default();
        let (calls, died) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        let gate = {
            let died = died.clone();
            move |_: &'static str| {
                let alive = calls.fetch_add(1, Ordering::Relaxed) < last_step;
                if !alive {
                    died.notify_one();
                }
                alive
            }
        };
        host.set_gate(Some(Arc::new(gate)));
        let agent = start(&host, "old");
        let whole_life = async {
            live(&agent, &pod).await.unwrap();
            agent.volumes.tear_down(&id).await.unwrap();
        };
        let survived = tokio::select! {
            biased;
            () = whole_life => true,
            () = died.notified() => false,
        };
        drop(agent);
        host.set_gate(None);

        let agent = start(&host, "new");
        live(&agent, &pod).await.unwrap_or_else(|error| panic!("step {last_step}: {error}"));
        let map = format!("{ROOT}/pods/{UID}/volumes/kubernetes.io~configmap/map");
        assert_eq!(host.content(format!("{map}/a")).unwrap(), b"new", "step {last_step}");
        assert_eq!(host.content(format!("{map}/new")).unwrap(), b"key", "step {last_step}");
        assert_eq!(host.content(format!("{map}/old")), None, "step {last_step}");
        assert_eq!(host.mounted_below(ROOT).len(), 3, "step {last_step}");
        agent.volumes.tear_down(&id).await.unwrap_or_else(|error| panic!("step {last_step}: {error}"));
        let left = host.paths_below(format!("{ROOT}/pods/{UID}"));
        assert_eq!(left, [format!("{ROOT}/pods/{UID}/"), format!("{ROOT}/pods/{UID}/plugins/")]);
        assert!(host.mounted_below(ROOT).is_empty(), "step {last_step}");
        if survived {
            break;
        }
        last_step += 1;
    }
    assert!(last_step > 80, "the agent had only {last_step} chances to die");
}

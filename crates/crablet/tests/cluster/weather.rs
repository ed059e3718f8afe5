//! Bad weather between the agent and its API server: agent, a wire that can be cut, a proxy with rules, API server.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_proxy::{Action, ApiOptions, ApiProxy, Failure, Identity, Matcher, Rule};
use crablet_testbed::cluster::{Cluster, FRONT_PROXY, Node, NodeOptions, pki};
use serde_json::Value;

use super::pods::with_folder;
use super::support::{PATIENCE, QUIET, Room, kubelet, main_container, shell_pod};
use super::wire::Wire;

/// Ends whenever somebody leaves a `stop` in its folder.
const STOPPABLE: &str = "until [ -e /room/stop ]; do sleep 0.1; done; rm /room/stop; exit 3";

/// A proxy in front of the API server, and a wire in front of the proxy.
struct Sky {
    wire: Wire,
    proxy: ApiProxy,
}

impl Sky {
    fn new(cluster: &Cluster) -> Result<Sky> {
        let address = cluster.network().gateway();
        let pki = cluster.pki();
        let ca = pki.cluster.certificate().as_bytes().to_vec();
        let serving = identity(pki.cluster.server("weather", &[], &[IpAddr::from(address)])?);
        let front_proxy = identity(pki.front_proxy.client(FRONT_PROXY, None)?);
        let (server, log) = (cluster.server(), cluster.dir().join("weather.jsonl"));
        let upstream = server.trim_start_matches("https://");
        let mut options = ApiOptions::new(serving, ca.clone(), upstream, ca, front_proxy, log);
        options.listen = (address, 0).into();
        let proxy = ApiProxy::start(&options)?;
        Ok(Sky { wire: Wire::start(address, proxy.address())?, proxy })
    }

    fn join(&self, cluster: &Cluster) -> Result<Node> {
        cluster.join(NodeOptions {
            api_server: Some(format!("https://{}", self.wire.address())),
            ..NodeOptions::new(kubelet())
        })
    }
}

fn identity(identity: pki::Identity) -> Identity {
    Identity { certificate: identity.certificate.into_bytes(), key: identity.key.into_bytes() }
}

/// One after the other: each needs the sky for itself.
pub fn all(cluster: &Cluster) -> Result<()> {
    let sky = Sky::new(cluster)?;
    let node = sky.join(cluster)?;
    let log = node.log_path().to_owned();
    let room = Room::new(cluster, &log, "weather")?;
    room.create_ready(&shell_pod("steady", QUIET))?;
    room.create_ready(&with_folder(&room, shell_pod("flaky", STOPPABLE)))?;
    let before = Steady::of(&room)?;
    room.during("an API server that is gone", |room| gone(room, &sky))?;
    room.during("a slow API server", |room| slow(room, &sky))?;
    room.during("an API server that refuses", |room| refusing(room, &sky))?;
    room.during("a silent connection", |room| silent(room, &sky))?;
    let node = killed(&room, &sky, node).context("step `kill -9` failed")?;
    room.during("a Node object that is deleted", |room| unregistered(room, &sky, node))?;
    before.ensure_untouched(&room, "bad weather")
}

/// What must not change for a pod that nobody asked to change.
#[derive(PartialEq)]
struct Steady {
    told: Vec<Value>,
    containers: Vec<String>,
}

impl Steady {
    fn of(room: &Room<'_>) -> Result<Steady> {
        let pod = room.get("pod/steady")?;
        let main = main_container(&pod);
        let container = ["containerID", "restartCount", "ready", "state"].map(|field| main[field].clone());
        let status = ["phase", "podIP", "startTime"].map(|field| pod["status"][field].clone());
        let told = [container.as_slice(), &status, &[pod["metadata"]["uid"].clone()]].concat();
        Ok(Steady { told, containers: room.containers("steady")? })
    }

    fn ensure_untouched(&self, room: &Room<'_>, by: &str) -> Result<()> {
        let now = Steady::of(room)?;
        ensure!(
            *self == now,
            "{by} changed a pod\nbefore: {:?} {:?}\nafter: {:?} {:?}",
            self.told,
            self.containers,
            now.told,
            now.containers
        );
        Ok(())
    }
}

fn gone(room: &Room<'_>, sky: &Sky) -> Result<()> {
    let first = room.containers("flaky")?;
    room.create_ready(&shell_pod("forgotten", QUIET))?;
    sky.wire.cut();
    // The cluster goes on meanwhile, and asks for things that the node cannot hear of.
    room.create(&shell_pod("unheard", QUIET))?;
    room.create(&shell_pod("unheard-too", QUIET))?;
    fs::write(room.folder().join("stop"), "")?;
    room.until("a new container while the API server is gone", || {
        Ok(room.containers("flaky")?.iter().any(|id| !first.contains(id)))
    })?;
    let told = &main_container(&room.get("pod/flaky")?)["restartCount"].clone();
    ensure!(*told == 0, "the API server cannot know of the restart yet: {told}");
    room.kubectl(&["delete", "pod", "unheard-too", "--wait=false"])?;
    room.delete(&["pod", "forgotten", "--force", "--grace-period=0"])?;
    ensure!(room.running("forgotten")?.len() == 1, "nobody could tell the node of the deletion");
    sky.wire.mend();
    room.until("the end of a pod that is gone", || Ok(room.containers("forgotten")?.is_empty()))?;
    room.wait("pod/flaky", "jsonpath={.status.containerStatuses[0].restartCount}=1")?;
    room.wait_ready("flaky")?;
    room.wait_ready("unheard")?;
    room.wait("pod/unheard-too", "delete")?;
    room.delete(&["pod", "unheard"])?;
    Ok(())
}

fn slow(room: &Room<'_>, sky: &Sky) -> Result<()> {
    let rule = Rule::new(Matcher::any().user("system:node:node"), Action::Delay(Duration::from_millis(1500)));
    let rule = sky.proxy.rules().add(rule);
    room.create_ready(&shell_pod("patient", QUIET))?;
    room.delete(&["pod", "patient"])?;
    ensure!(sky.proxy.rules().fired(rule) > 0, "nothing was slow");
    sky.proxy.rules().remove(rule);
    Ok(())
}

fn refusing(room: &Room<'_>, sky: &Sky) -> Result<()> {
    for (status, name) in [(429, "too-many"), (500, "broken"), (403, "forbidden")] {
        let path = format!("/api/v1/namespaces/{}/pods/{name}/status", room.namespace());
        let failure = Failure::http(status, "bad weather").retry_after(1);
        let failure = if status == 429 { failure } else { Failure { retry_after: None, ..failure } };
        let rule = Rule::new(Matcher::path(path).verb("patch"), Action::Fail(failure)).first(2);
        let rule = sky.proxy.rules().add(rule);
        room.create_ready(&shell_pod(name, QUIET))
            .with_context(|| format!("with {status} for its status"))?;
        ensure!(
            sky.proxy.rules().fired(rule) == 2,
            "{status}: it was refused {} times",
            sky.proxy.rules().fired(rule)
        );
        room.delete(&["pod", name])?;
    }
    Ok(())
}

/// The connection stands, but nothing comes through: only pings and deadlines tell.
fn silent(room: &Room<'_>, sky: &Sky) -> Result<()> {
    let ready = || -> Result<Value> {
        let node = room.get("node/node")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Ready").context("no condition `Ready`")
    };
    let renewed = |since: u64| {
        let what = "a renewal of the lease";
        sky.proxy.record().wait(what, PATIENCE, |line| {
            line.call > since
                && line.resource == "leases"
                && line.verb == "update"
                && line.status == Some(200)
        })
    };
    // So that the heartbeat's own connection is among those that fall silent.
    renewed(sky.proxy.record().last_call())?;
    let before = ready()?;
    sky.wire.silence();
    let last = sky.proxy.record().last_call();
    room.create(&shell_pod("whispered", QUIET))?;
    renewed(last)?;
    room.wait_ready("whispered")?;
    let after = ready()?;
    ensure!(
        before["lastTransitionTime"] == after["lastTransitionTime"],
        "the node was not ready for a while: {after}"
    );
    room.delete(&["pod", "whispered"])?;
    Ok(())
}

fn killed(room: &Room<'_>, sky: &Sky, node: Node) -> Result<Node> {
    room.create_ready(&shell_pod("forgotten", QUIET))?;
    let before = Steady::of(room)?;
    node.kubelet().kill9()?;
    drop(node);
    room.delete(&["pod", "forgotten", "--force", "--grace-period=0"])?;
    let node = sky.join(room.cluster)?;
    room.during("after kill -9", |room| {
        // It has taken stock once it does something new.
        room.create_ready(&shell_pod("afterwards", QUIET))?;
        before.ensure_untouched(room, "kill -9")?;
        room.until("the end of a pod that is gone", || Ok(room.containers("forgotten")?.is_empty()))?;
        room.delete(&["pod", "afterwards"])
    })?;
    Ok(node)
}

fn unregistered(room: &Room<'_>, sky: &Sky, node: Node) -> Result<()> {
    let uid = |room: &Room<'_>| -> Result<Value> { Ok(room.get("node/node")?["metadata"]["uid"].clone()) };
    let before = uid(room)?;
    room.kubectl(&["delete", "node", "node"])?;
    node.kubelet().stop()?;
    drop(node);
    let node = sky.join(room.cluster)?;
    ensure!(uid(room)? != before, "it is the same Node object");
    room.create_ready(&shell_pod("newcomer", QUIET))?;
    drop(node);
    Ok(())
}

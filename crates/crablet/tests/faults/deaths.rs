//! `kill -9` before each change that the agent makes to the file system: folders, files, links, mounts. The life after it
//! makes the pod run with all of its volumes, or takes all of them away, and nobody's data is harmed.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::{Cluster, Kubelet, Node, NodeOptions};
use crablet_testbed::csi::{Driver, DriverOptions};
use crablet_testbed::gate::{Call, Gate, Verdict};
use crablet_testbed::kube;
use crablet_testbed::wait::{self, Deadline};
use serde_json::{Value, json};

use super::objects::{claimed, mounted, nothing_left, pod_with, put_claim, put_local, root, uid_of};
use crate::cluster::support::{PATIENCE, QUIET, Room, kubelet};

const DRIVER: &str = "hostpath.csi.crablet.example";
/// How many deaths of each kind, unless all are asked for.
const A_FEW: usize = 4;

/// Looks at all its volumes and says in one of them that all is there.
const WITNESS: &str = r#"
set -e
test "$(cat /secret/word)" = sesame
test "$(cat /map/word)" = hello
test "$(cat /info/name)" = "$HOSTNAME"
test -s /var/run/secrets/kubernetes.io/serviceaccount/token
test "$(cat /data/precious)" = data
test "$(cat /part)" = hello
touch /own/file /memory/file /inner/file /driver/$HOSTNAME /inline/file
cp /data/precious /data/seen-by-$HOSTNAME
"#;

struct Killed<'a> {
    cluster: &'a Cluster,
    gate: Gate,
    options: NodeOptions,
    node: Option<Node>,
    /// The calls that the rule has seen in the step under way.
    seen: Arc<Mutex<Vec<Call>>>,
}

impl Killed<'_> {
    /// Kills the agent before its change number `at`; never with `None`.
    fn arm(&self, at: Option<usize>) {
        let seen = self.seen.clone();
        self.seen().clear();
        let root = root(self.cluster);
        let places = [root.join("pods"), root.join("plugins/kubernetes.io")];
        self.gate.rule(move |call| {
            if !places.iter().any(|place| call.path.starts_with(place)) {
                return Verdict::Go;
            }
            let mut seen = seen.lock().unwrap_or_else(|dead| dead.into_inner());
            seen.push(call.clone());
            if at == Some(seen.len()) { Verdict::Kill } else { Verdict::Go }
        });
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Call>> {
        self.seen.lock().unwrap_or_else(|dead| dead.into_inner())
    }

    fn changes(&self) -> usize {
        self.seen().len()
    }

    fn last_change(&self) -> String {
        self.seen().last().map(|call| format!("{} {}", call.name, call.path.display())).unwrap_or_default()
    }

    /// Waits for `done`; an agent that dies on the way is started again, with nothing in its way.
    fn until(&mut self, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
        let mut died = false;
        let deadline = Deadline::after(PATIENCE);
        loop {
            let node = self.node.as_ref().context("a node runs")?;
            let end = node.kubelet().end()?;
            if node.kubelet().ended()?.is_some() {
                ensure!(!died, "the agent left by itself");
                died = true;
                self.gate.open();
                self.node = None;
                self.node = Some(self.cluster.launch(self.options.clone())?);
                continue;
            }
            if done()? {
                return Ok(died);
            }
            ensure!(!deadline.passed(), "waited in vain");
            wait::readable(&[end.as_fd()], Deadline::after(std::time::Duration::from_millis(100)))?;
        }
    }
}

pub fn at_every_step(cluster: &Cluster) -> Result<()> {
    let gate = Gate::new(&cluster.dir().join("gate"))?;
    let binary = match kubelet() {
        Kubelet::Crablet(path) => path,
        Kubelet::Upstream => kube::ensure(&[kube::KUBELET])?.join(kube::KUBELET.name),
    };
    let options = NodeOptions::new(Kubelet::Crablet(gate.before(&binary)?));
    let node = cluster.join(options.clone())?;
    let log = node.log_path().to_owned();
    let mut killed = Killed { cluster, gate, options, node: Some(node), seen: Arc::default() };
    let driver = Driver::start(DriverOptions {
        registry: Some(root(cluster).join("plugins_registry")),
        capabilities: vec!["stage".to_owned()],
        ..DriverOptions::new(DRIVER, &cluster.dir().join("csi"))
    })?;
    let room = Room::new(cluster, &log, "deaths")?;
    room.during("kill -9 at every step", |room| all(room, &mut killed, &driver))
}

fn all(room: &Room<'_>, killed: &mut Killed<'_>, driver: &Driver) -> Result<()> {
    let folder = room.folder().join("data");
    fs::create_dir(&folder)?;
    fs::write(folder.join("precious"), "data\n")?;
    put_objects(room, &folder, driver)?;
    // The first pod lives and goes in peace, which says how many steps there are.
    let (set_up, teardown) = one(room, killed, "peaceful", None, None)?;
    eprintln!("{set_up} changes at the begin of a pod, {teardown} at its end");
    let points = |all: usize| -> BTreeSet<usize> {
        match std::env::var("CRABLET_TEST_DEATHS").as_deref() {
            Ok("all") => (1..=all).collect(),
            _ => (0..A_FEW).map(|part| 1 + part * (all - 1) / (A_FEW - 1)).collect(),
        }
    };
    let (mut starts, mut ends) = (points(set_up).into_iter(), points(teardown).into_iter());
    for number in 0.. {
        let (start, end) = (starts.next(), ends.next());
        if start.is_none() && end.is_none() {
            break;
        }
        let name = format!("pod-{number}");
        one(room, killed, &name, start, end).with_context(|| {
            format!(
                "killed before change {start:?} of {set_up} and {end:?} of {teardown}: {}",
                killed.last_change()
            )
        })?;
    }
    ensure!(fs::read_to_string(folder.join("precious"))? == "data\n", "the data is gone");
    let handle = driver.content(&handle(driver)?);
    ensure!(handle.join("peaceful").exists(), "the driver's data is gone");
    room.until("the driver's volume to be unstaged", || Ok(mounted("kubernetes.io/csi")?.is_empty()))
}

/// One pod from its begin to its end, and a death on either way. Says how many changes both ways took.
fn one(
    room: &Room<'_>,
    killed: &mut Killed<'_>,
    name: &str,
    start: Option<usize>,
    end: Option<usize>,
) -> Result<(usize, usize)> {
    let witness = room.folder().join("data").join(format!("seen-by-{name}"));
    killed.arm(start);
    room.create(&pod(name))?;
    let mut ready =
        room.follow(&["wait", &format!("pod/{name}"), "--for=condition=Ready", "--timeout=150s"])?;
    killed.until(|| Ok(witness.exists() && ready.has_said("condition met")))?;
    let set_up = killed.changes();
    // It may have died of one of the last changes, after all was told.
    killed.arm(None);
    killed.until(|| Ok(true))?;
    let uid = uid_of(room, name)?;

    killed.arm(end);
    room.kubectl(&["delete", "pod", name, "--wait=false"])?;
    let mut gone = room.follow(&["wait", &format!("pod/{name}"), "--for=delete", "--timeout=150s"])?;
    let folder = root(room.cluster).join("pods").join(&uid);
    killed.until(|| Ok(gone.has_said("condition met") && !folder.exists()))?;
    let teardown = killed.changes();
    nothing_left(room, &uid)?;
    ensure!(room.containers(name)?.is_empty(), "containers of the pod are left");
    Ok((set_up, teardown))
}

fn put_objects(room: &Room<'_>, folder: &Path, driver: &Driver) -> Result<()> {
    room.kubectl(&["create", "configmap", "map", "--from-literal=word=hello"])?;
    room.kubectl(&["create", "secret", "generic", "secret", "--from-literal=word=sesame"])?;
    room.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
        "spec": { "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"] },
    }))?;
    put_local(room, "data", folder)?;
    put_claim(room, "driver", json!({ "csi": { "driver": DRIVER, "volumeHandle": handle(driver)? } }))
}

/// The same name is the same volume.
fn handle(driver: &Driver) -> Result<String> {
    driver.create_volume("deaths", 10 << 20)
}

fn pod(name: &str) -> Value {
    let own_name = json!({ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } });
    let mut pod = pod_with(
        name,
        &format!("{WITNESS}\nset +e\n{QUIET}"),
        &[
            json!({ "name": "own", "emptyDir": {} }),
            json!({ "name": "memory", "emptyDir": { "medium": "Memory" } }),
            json!({ "name": "secret", "secret": { "secretName": "secret" } }),
            json!({ "name": "map", "configMap": { "name": "map" } }),
            json!({ "name": "info", "downwardAPI": { "items": [own_name] } }),
            json!({ "name": "inline", "csi": { "driver": DRIVER } }),
            claimed("data"),
            claimed("driver"),
        ],
    );
    // A container that fails says so once and for all.
    pod["spec"]["restartPolicy"] = json!("Never");
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    if let Some(mounts) = mounts.as_array_mut() {
        mounts.push(json!({ "name": "map", "mountPath": "/part", "subPath": "word" }));
        mounts.push(json!({ "name": "own", "mountPath": "/inner", "subPath": "inner/deep" }));
    }
    pod
}

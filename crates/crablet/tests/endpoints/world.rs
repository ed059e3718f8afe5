//! A control plane with two nodes, and those who ask them.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::pki::{Identity, Pki};
use crablet_testbed::cluster::{Cluster, ClusterOptions, Kubelet, Node, NodeOptions};
use crablet_testbed::process::output_of;
use crablet_testbed::wait::{self, Deadline};
use crablet_testbed::{Containerd, Flavor, StartOptions, images};
use serde_json::json;

use super::client::Door;

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(150);
/// The names are equally long, so that texts with them in it are.
pub const THEIRS: &str = "node-theirs";
pub const OURS: &str = "node-number";

/// The cluster's folders go with it. Fields are dropped in this order.
pub struct World {
    nodes: Vec<Side>,
    pub credentials: Vec<Credential>,
    cluster: Cluster,
    second: Containerd,
}

/// One node.
pub struct Side {
    pub name: &'static str,
    kubelet: Kubelet,
    address: std::net::Ipv4Addr,
    endpoint: String,
    pub node: Option<Node>,
}

/// Somebody who asks.
pub struct Credential {
    pub name: &'static str,
    pub token: Option<String>,
    /// By the name of the node that is asked.
    identity: Option<fn(&World, &str) -> Result<Identity>>,
}

impl World {
    /// `ours`: whether Crablet's node is there as well.
    pub fn start(ours: bool) -> Result<World> {
        let (cluster, second) = thread::scope(|scope| {
            let cluster = scope.spawn(|| Cluster::start(ClusterOptions::new(Flavor::Pinned)));
            let second = Containerd::start(StartOptions::new(Flavor::Pinned));
            (cluster.join().expect("no panic in there"), second)
        });
        let (cluster, second) = (cluster?, second?);
        let network = second.network();
        let address = format!("{}/24", network.gateway());
        output_of(Command::new("ip").args(["address", "replace", &address, "dev", &network.bridge()]))?;
        output_of(Command::new("ip").args(["link", "set", &network.bridge(), "up"]))?;
        let mut nodes = vec![Side {
            name: THEIRS,
            kubelet: Kubelet::Upstream,
            address: cluster.network().gateway(),
            endpoint: cluster.containerd().endpoint(),
            node: None,
        }];
        if ours {
            nodes.push(Side {
                name: OURS,
                kubelet: Kubelet::Crablet(env!("CARGO_BIN_EXE_crablet").into()),
                address: network.gateway(),
                endpoint: second.endpoint(),
                node: None,
            });
        }
        let mut world = World { nodes, credentials: Vec::new(), cluster, second };
        world.credentials = world.make_credentials()?;
        Ok(world)
    }

    pub fn folder(&self) -> &Path {
        self.cluster.dir()
    }

    pub fn sides(&self) -> &[Side] {
        &self.nodes
    }

    /// Starts the kubelets, anew if they run already, and waits until they answer.
    pub fn start_kubelets(&mut self, flags: &[&str]) -> Result<()> {
        let World { nodes, cluster, .. } = self;
        let cluster = &*cluster;
        let results = thread::scope(|scope| {
            let starting: Vec<_> =
                nodes.iter_mut().map(|side| scope.spawn(move || side.start(cluster, flags))).collect();
            starting.into_iter().map(|side| side.join().expect("no panic in there")).collect::<Vec<_>>()
        });
        results.into_iter().collect()
    }

    /// A pod `web` with a container `main` for each node, in a namespace that is called as the node.
    pub fn start_pods(&self) -> Result<()> {
        for side in &self.nodes {
            self.cluster.kubectl(&["create", "namespace", side.name])?;
        }
        for side in &self.nodes {
            let account = format!("--namespace={}", side.name);
            self.cluster.kubectl(&[
                &account,
                "wait",
                "--for=create",
                "serviceaccount/default",
                "--timeout=60s",
            ])?;
            let pod = json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": "web", "namespace": side.name },
                "spec": {
                    "nodeName": side.name,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "main",
                        "image": images::BUSYBOX,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", "echo one; echo two; exec sleep 100000"],
                    }],
                },
            });
            self.create(&pod.to_string())?;
        }
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        for side in &self.nodes {
            let namespace = format!("--namespace={}", side.name);
            self.cluster.kubectl(&[&namespace, "wait", "--for=condition=Ready", "pod/web", &timeout])?;
        }
        Ok(())
    }

    pub fn door(&self, side: &Side, credential: &Credential) -> Result<Door> {
        let identity = credential.identity.map(|make| make(self, side.name)).transpose()?;
        Door::tls(SocketAddr::from((side.address, 10250)), identity.as_ref())
    }

    pub fn stop(self) -> Result<()> {
        let World { nodes, cluster, second, .. } = self;
        drop(nodes);
        cluster.stop()?;
        second.stop()
    }

    fn create(&self, objects: &str) -> Result<()> {
        let mut command = self.cluster.kubectl_command();
        command.args(["create", "-f", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().context("the pipe was asked for")?.write_all(objects.as_bytes())?;
        ensure!(child.wait()?.success(), "`kubectl create` failed for {objects}");
        Ok(())
    }

    fn make_credentials(&self) -> Result<Vec<Credential>> {
        self.create(
            &json!({
                "apiVersion": "v1",
                "kind": "List",
                "items": [
                    { "apiVersion": "v1", "kind": "ServiceAccount",
                      "metadata": { "name": "stranger", "namespace": "default" } },
                    { "apiVersion": "v1", "kind": "ServiceAccount",
                      "metadata": { "name": "friend", "namespace": "default" } },
                    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                      "metadata": { "name": "friends" },
                      "rules": [{ "apiGroups": [""], "verbs": ["*"], "resources": [
                          "nodes/proxy", "nodes/metrics", "nodes/log", "nodes/stats", "nodes/pods", "nodes/healthz",
                          "nodes/configz", "nodes/checkpoint", "nodes/statusz",
                      ] }] },
                    { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                      "metadata": { "name": "friends" },
                      "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "friends" },
                      "subjects": [{ "kind": "ServiceAccount", "name": "friend", "namespace": "default" }] },
                ],
            })
            .to_string(),
        )?;
        let token = |account: &str| -> Result<Option<String>> {
            Ok(Some(self.cluster.kubectl(&["create", "token", account])?.trim().to_owned()))
        };
        let plain = |name, token| Credential { name, token, identity: None };
        Ok(vec![
            plain("nobody", None),
            plain("bad token", Some("not-a-token".to_owned())),
            Credential {
                name: "other authority",
                token: None,
                identity: Some(|world, _| {
                    let pki = Pki::create(&world.cluster.dir().join("other-pki"))?;
                    pki.cluster.client("kube-apiserver", Some("system:masters"))
                }),
            },
            Credential {
                name: "the node itself",
                token: None,
                identity: Some(|world, node| {
                    world.cluster.pki().cluster.client(&format!("system:node:{node}"), Some("system:nodes"))
                }),
            },
            plain("stranger", token("stranger")?),
            plain(FRIEND, token("friend")?),
        ])
    }
}

/// The one who may do everything.
pub const FRIEND: &str = "friend";

impl Side {
    fn start(&mut self, cluster: &Cluster, flags: &[&str]) -> Result<()> {
        self.node = None;
        let mut options = NodeOptions::new(self.kubelet.clone());
        options.name = self.name.to_owned();
        options.runtime_endpoint = Some(self.endpoint.clone());
        options.flags = vec![
            format!("--address={}", self.address),
            format!("--healthz-bind-address={}", self.address),
            format!("--node-ip={}", self.address),
            "--read-only-port=10255".to_owned(),
            // The two share a cgroup, and no test here is about it.
            "--cgroups-per-qos=false".to_owned(),
            "--enforce-node-allocatable=".to_owned(),
        ];
        options.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.node = Some(cluster.join(options)?);
        let answers = || {
            let mut connection = self.read_only().open().ok()?;
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").ok()?;
            (connection.receive("GET").ok()?.status == 200).then_some(())
        };
        ensure!(
            wait::until(Deadline::after(PATIENCE), || answers().is_some()),
            "{}: no answer on its ports",
            self.name
        );
        Ok(())
    }

    pub fn read_only(&self) -> Door {
        Door::plain(SocketAddr::from((self.address, 10255)))
    }

    pub fn healthz(&self) -> Door {
        Door::plain(SocketAddr::from((self.address, 10248)))
    }
}

//! `vm --join`: a machine becomes a node of a real cluster by `kubeadm join`, as people do it, and leaves by
//! `kubeadm reset`. The machine's part is `guest/join.sh`; this is the administrator's, at the control plane.

use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crablet_testbed::cluster::{Cluster, ClusterOptions};
use crablet_testbed::vm::Vm;
use crablet_testbed::{Flavor, guard, images, kubeadm, say};
use serde_json::{Value, json};

use super::node::{self, Kubelet};

const NODE: &str = "worker";
/// What tells the machine what to do next, on its Node.
const WISH: &str = "crablet.test/wish";
/// How long each event may take. Emulation is slow, and a deadline is no measurement.
const PATIENCE: Duration = Duration::from_secs(600);
/// A container whose first process does not mind SIGTERM would hold up the reboot for a minute and a half.
const STOP: &str = "[Manager]\nDefaultTimeoutStopSec=15s\n";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Gives the exit code of what runs in the machine.
pub fn run(kubelet: &Kubelet) -> Result<u8> {
    let kubeadm = kubeadm::ensure()?;
    let binary = kubelet.binary()?;
    say::step("starting a control plane");
    let cluster = Cluster::start(ClusterOptions::new(Flavor::Pinned))?;
    say::step("preparing it for machines that join, with kubeadm");
    let command = kubeadm::invite(&cluster)?;
    create_pods(&cluster)?;
    let script = format!("join='{command}'\n{}", include_str!("guest/join.sh"));
    let vm = Vm::new(node::script(kubelet, &script))
        .program("/usr/bin/kubelet", &binary)
        .program("/usr/bin/kubeadm", &kubeadm)
        .file("/usr/lib/systemd/system/kubelet.service", include_str!("guest/join/kubelet.service"))
        .file(
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
            include_str!("guest/join/10-kubeadm.conf"),
        )
        .file("/etc/systemd/system.conf.d/stop.conf", STOP)
        .wired_to(cluster.network())
        .may_reboot()
        .deadline(PATIENCE * 3);
    let administrator = Administrator {
        cluster: &cluster,
        started: Instant::now(),
        machine: std::thread::Builder::new().name("machine".into()).spawn(move || super::boot(vm))?,
    };
    let code = administrator.watch_it_join()?;
    say::step("removing everything");
    cluster.stop()?;
    Ok(code)
}

/// One with limits, one that says something; both wait for a node.
fn create_pods(cluster: &Cluster) -> Result<()> {
    let pod = |name: &str, container: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": { "terminationGracePeriodSeconds": 2, "containers": [container] },
        })
    };
    let talk =
        "trap 'exit 0' TERM; echo hello from $(cat /etc/hostname); while true; do sleep 3600 & wait $!; done";
    let pods = [
        pod(
            "web",
            json!({
                "name": "httpd",
                "image": images::WEB,
                "imagePullPolicy": "Never",
                "resources": { "limits": { "memory": "64Mi" }, "requests": { "cpu": "100m" } },
            }),
        ),
        pod(
            "talker",
            json!({
                "name": "sh",
                "image": images::BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", talk],
            }),
        ),
    ];
    let path = cluster.dir().join("pods.json");
    fs::write(&path, json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string())?;
    cluster.kubectl(&["create", "-f", &path.to_string_lossy()])?;
    Ok(())
}

struct Administrator<'a> {
    cluster: &'a Cluster,
    started: Instant,
    machine: JoinHandle<Result<u8>>,
}

impl Administrator<'_> {
    /// Gives the exit code of the machine's own script.
    fn watch_it_join(self) -> Result<u8> {
        let found = self.look();
        if found.is_err() {
            // After Ctrl-C everything fails, and none of it is worth showing.
            guard::let_it_finish();
            // Where there is no node, the machine finds out by itself.
            let _ = self.wish("give-up");
        }
        let ended = self.machine.join().map_err(|_| anyhow::anyhow!("the machine's thread panicked"))?;
        found.and(ended)
    }

    fn look(&self) -> Result<()> {
        let node = format!("node/{NODE}");
        self.wait_for(&["--for=create", &node])?;
        self.wait_for(&["--for=condition=Ready", &node])?;
        self.approved_by_the_controller()?;
        self.approve_serving()?;
        self.wait_for(&["--for=condition=Ready", "pod/web", "pod/talker"])?;
        println!("{}", self.cluster.kubectl(&["get", "nodes,pods", "-o", "wide"])?.trim_end());
        self.read_logs()?;
        self.through_a_reboot()?;
        self.read_logs()?;
        self.a_pod_comes_and_goes()?;
        // The other pods are still there when the machine leaves.
        self.wish("leave")
    }

    fn wish(&self, what: &str) -> Result<()> {
        self.cluster.kubectl(&["annotate", "--overwrite", "node", NODE, &format!("{WISH}={what}")])?;
        self.say(&format!("wants the machine to {what}"));
        Ok(())
    }

    /// Through the API server, which trusts only a serving certificate of the cluster: the kubelet may not have it yet.
    fn read_logs(&self) -> Result<()> {
        let said = self.until("the logs of pod talker", || {
            Ok(self.cluster.kubectl(&["logs", "talker"]).ok().filter(|said| !said.is_empty()))
        })?;
        ensure!(said == "hello from talker\n", "pod talker's log is {said:?}");
        Ok(())
    }

    /// The machine comes back as the same node, and each container is started once more.
    fn through_a_reboot(&self) -> Result<()> {
        let boot = |info: &Value| info["status"]["nodeInfo"]["bootID"].clone();
        let before = boot(&self.get(&["node", NODE])?);
        self.wish("reboot")?;
        self.until("another boot of the same node", || {
            Ok((boot(&self.get(&["node", NODE])?) != before).then_some(()))
        })?;
        for pod in ["web", "talker"] {
            self.until(&format!("pod {pod} restarted"), || {
                let status = &self.get(&["pod", pod])?["status"]["containerStatuses"][0];
                Ok((status["restartCount"] == 1 && status["ready"] == true).then_some(()))
            })?;
        }
        let events = self.get(&["events", "--field-selector", "reason=Rebooted"])?;
        ensure!(events["items"].as_array().is_some_and(|all| all.len() == 1), "events `Rebooted`: {events}");
        Ok(())
    }

    fn a_pod_comes_and_goes(&self) -> Result<()> {
        let image = format!("--image={}", images::BUSYBOX);
        self.cluster.kubectl(&[
            "run",
            "brief",
            &image,
            "--image-pull-policy=Never",
            "--",
            "sleep",
            "3600",
        ])?;
        self.wait_for(&["--for=condition=Ready", "pod/brief"])?;
        self.cluster.kubectl(&["delete", "pod", "brief", "--grace-period=1", "--wait=false"])?;
        self.wait_for(&["--for=delete", "pod/brief"])
    }

    fn get(&self, what: &[&str]) -> Result<Value> {
        let args: Vec<&str> = [&["get", "-o", "json"], what].concat();
        Ok(serde_json::from_str(&self.cluster.kubectl(&args)?)?)
    }

    /// The client certificate: asked for with the token, approved by the controller that does it in every cluster.
    fn approved_by_the_controller(&self) -> Result<()> {
        let request = self.request(CLIENT_SIGNER)?.context("nobody asked for a client certificate")?;
        let user = request["spec"]["username"].as_str().unwrap_or_default();
        ensure!(user.starts_with("system:bootstrap:"), "`{user}` asked for the client certificate");
        let reason = &request["status"]["conditions"][0]["reason"];
        ensure!(reason == "AutoApproved", "the client certificate was approved with reason {reason}");
        self.say("its client certificate was approved by the controller");
        Ok(())
    }

    /// A serving certificate is approved by a person, or by something that knows which addresses are whose.
    fn approve_serving(&self) -> Result<()> {
        let request = self.until("a request for a serving certificate", || self.request(SERVING_SIGNER))?;
        let name = request["metadata"]["name"].as_str().context("a request has a name")?;
        let user = &request["spec"]["username"];
        ensure!(*user == format!("system:node:{NODE}"), "{user} asked for the serving certificate");
        self.cluster.kubectl(&["certificate", "approve", name])?;
        self.say("its serving certificate was approved");
        Ok(())
    }

    fn request(&self, signer: &str) -> Result<Option<Value>> {
        let mut all = self.get(&["csr"])?;
        let items = all["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(items.into_iter().find(|request| request["spec"]["signerName"] == signer))
    }

    /// `kubectl wait`, for as long as the machine runs.
    fn wait_for(&self, what: &[&str]) -> Result<()> {
        let args: Vec<&str> = [&["wait", "--timeout=10s"], what].concat();
        self.until(&what.join(" "), || Ok(self.cluster.kubectl(&args).ok()))?;
        Ok(())
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look()? {
                self.say(what);
                return Ok(found);
            }
            if self.machine.is_finished() {
                bail!("the machine ended before this came: {what}");
            }
            if Instant::now() > end {
                bail!("after {} s still not: {what}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// With the seconds since power-on, as the machine says them.
    fn say(&self, what: &str) {
        println!("[{} s] administrator: {what}", self.started.elapsed().as_secs());
    }
}

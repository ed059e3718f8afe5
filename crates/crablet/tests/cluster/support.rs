//! Steps of a test, each in a room (a namespace) of its own, and words to speak about pods.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use crablet_testbed::cluster::{Cluster, Kubelet};
use crablet_testbed::images;
use crablet_testbed::process::shown;
use crablet_testbed::wait::{self, Deadline};
use serde_json::{Value, json};

use super::follow::Follow;

/// Longer than anything takes on a busy machine; a step that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Runs until it is told to stop, and then stops at once.
pub const QUIET: &str = "trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done";

/// The kubelet under test: ours, or with `CRABLET_TEST_KUBELET=upstream` the one whose behaviour these tests claim to
/// know. The step about what Crablet does not support yet is then not run.
pub fn kubelet() -> Kubelet {
    match std::env::var("CRABLET_TEST_KUBELET").as_deref() {
        Ok("upstream") => Kubelet::Upstream,
        _ => Kubelet::Crablet(env!("CARGO_BIN_EXE_crablet").into()),
    }
}

/// A named part of a test.
pub struct Step {
    pub name: &'static str,
    pub run: fn(&Room<'_>) -> Result<()>,
}

/// The step is called as its function is.
macro_rules! step {
    ($module:ident :: $function:ident) => {
        $crate::cluster::support::Step { name: stringify!($function), run: $module::$function }
    };
}
pub(crate) use step;

/// All at once; the error tells of every step that failed.
pub fn side_by_side(cluster: &Cluster, log: &Path, steps: &[Step]) -> Result<()> {
    let failures: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = steps.iter().map(|step| scope.spawn(|| perform(cluster, log, step))).collect();
        let results =
            running.into_iter().map(|step| step.join().unwrap_or_else(|_| Err(anyhow!("it panicked"))));
        results.filter_map(Result::err).map(|error| told(&error)).collect()
    });
    ensure!(
        failures.is_empty(),
        "{} of {} steps failed:\n\n{}",
        failures.len(),
        steps.len(),
        failures.join("\n\n")
    );
    Ok(())
}

pub fn one_by_one(cluster: &Cluster, log: &Path, steps: &[Step]) -> Result<()> {
    steps.iter().try_for_each(|step| perform(cluster, log, step))
}

/// An error with all its causes and without the stack, which says nothing here.
pub fn told(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn perform(cluster: &Cluster, log: &Path, step: &Step) -> Result<()> {
    let room = Room::new(cluster, log, step.name)?;
    room.during(step.name, step.run)
}

/// A namespace, and a folder on the host that its pods may use.
pub struct Room<'a> {
    pub cluster: &'a Cluster,
    log: &'a Path,
    namespace: String,
}

impl<'a> Room<'a> {
    /// `log` is the kubelet's, for when something fails.
    pub fn new(cluster: &'a Cluster, log: &'a Path, name: &str) -> Result<Room<'a>> {
        let room = Room { cluster, log, namespace: name.replace('_', "-") };
        cluster.kubectl(&["create", "namespace", &room.namespace])?;
        fs::create_dir_all(room.folder())?;
        // No pod is admitted before.
        room.wait("serviceaccount/default", "create")?;
        Ok(room)
    }

    /// A failure of this step tells what there was to see.
    pub fn during(&self, step: &str, run: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        run(self).map_err(|error| error.context(self.state()).context(format!("step `{step}` failed")))?;
        eprintln!("step `{step}` took {:.1?}", begin.elapsed());
        Ok(())
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn folder(&self) -> PathBuf {
        self.cluster.dir().join("rooms").join(&self.namespace)
    }

    /// `kubectl` in this namespace, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.kubectl_command();
        command.args(["--namespace", &self.namespace]).args(args);
        command
    }

    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        crablet_testbed::process::output_of(&mut self.command(args))
    }

    pub fn follow(&self, args: &[&str]) -> Result<Follow> {
        Follow::start(self.command(args))
    }

    pub fn create(&self, object: &Value) -> Result<()> {
        let mut command = self.command(&["create", "-f", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("the pipe was asked for")?.write_all(object.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{}` failed: {}\nfor {object:#}", shown(&command), said.trim());
        }
        Ok(())
    }

    /// `kubectl wait`: `create`, `delete`, `condition=Ready`, `jsonpath={.status.phase}=Failed`.
    pub fn wait(&self, object: &str, wanted: &str) -> Result<()> {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&["wait", object, &format!("--for={wanted}"), &timeout])?;
        Ok(())
    }

    /// `kubectl delete`, which waits until the object is gone.
    pub fn delete(&self, what: &[&str]) -> Result<()> {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&[&["delete", &timeout], what].concat())?;
        Ok(())
    }

    pub fn wait_ready(&self, pod: &str) -> Result<()> {
        self.wait(&format!("pod/{pod}"), "condition=Ready")
    }

    pub fn create_ready(&self, pod: &Value) -> Result<()> {
        self.create(pod)?;
        self.wait_ready(pod["metadata"]["name"].as_str().unwrap_or_default())
    }

    pub fn get(&self, object: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", object, "-o", "json"])?)?)
    }

    /// Waits for an event and gives its message. Events are sent when there is time for them.
    pub fn event(&self, object: &str, reason: &str) -> Result<String> {
        self.event_saying(object, reason, "")
    }

    /// The same for one whose message has this in it: a busy machine may have told of something else first.
    pub fn event_saying(&self, object: &str, reason: &str, part: &str) -> Result<String> {
        self.event_with(object, reason, "{.message}", part)
    }

    /// The same for one about this part of the object.
    pub fn event_at(&self, object: &str, reason: &str, field_path: &str) -> Result<String> {
        self.event_with(object, reason, "{.involvedObject.fieldPath}", field_path)
    }

    fn event_with(&self, object: &str, reason: &str, shown: &str, part: &str) -> Result<String> {
        let (kind, name) = object.split_once('/').context("as `pod/web`")?;
        // Events about nodes are kept there.
        let namespace = if kind == "node" { "default" } else { &self.namespace };
        let about = format!("--field-selector=involvedObject.name={name},reason={reason}");
        let shown = format!("jsonpath={shown}{{\"\\n\"}}");
        let mut events =
            self.follow(&["--namespace", namespace, "get", "events", &about, "--watch", "-o", &shown])?;
        let found = events.until(|line| line.contains(part));
        found.with_context(|| format!("no event `{reason}` of {object} with `{part}`"))
    }

    /// Containers (not sandboxes) of a pod that the runtime knows, running or not, by their labels.
    pub fn containers(&self, pod: &str) -> Result<Vec<String>> {
        let filter = format!(
            "labels.\"io.cri-containerd.kind\"==container,labels.\"io.kubernetes.pod.namespace\"=={},\
             labels.\"io.kubernetes.pod.name\"=={pod}",
            self.namespace
        );
        let listed = self.cluster.containerd().ctr(&["containers", "ls", "-q", &filter])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Those of them that run.
    pub fn running(&self, pod: &str) -> Result<Vec<String>> {
        let tasks = self.cluster.containerd().ctr(&["tasks", "ls"])?;
        let runs = |id: &String| tasks.lines().any(|line| line.starts_with(id) && line.ends_with("RUNNING"));
        Ok(self.containers(pod)?.into_iter().filter(runs).collect())
    }

    /// For what only the runtime or the disk can tell, and neither announces.
    pub fn until(&self, what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut last = Ok(false);
        wait::until(Deadline::after(PATIENCE), || {
            last = condition();
            !matches!(last, Ok(false))
        });
        ensure!(last?, "waited in vain: {what}");
        Ok(())
    }

    /// Waits until the pod's log has it: who is ready has not said anything yet.
    pub fn says(&self, pod: &str, text: &str) -> Result<()> {
        self.until(&format!("`{pod}` says `{text}`"), || Ok(self.kubectl(&["logs", pod])?.contains(text)))
    }

    /// What a person would look at when something is wrong here.
    pub fn state(&self) -> String {
        let said = |args: &[&str]| self.kubectl(args).unwrap_or_else(|error| format!("{error:#}"));
        let log = String::from_utf8_lossy(&fs::read(self.log).unwrap_or_default()).into_owned();
        // What is about this room, and complaints of any kind.
        let here = format!("\"{}/", self.namespace);
        let lines: Vec<&str> =
            log.lines().filter(|line| line.contains(&here) || line.starts_with(['W', 'E'])).collect();
        format!(
            "pods:\n{}\nevents:\n{}\nthe kubelet's log about it:\n{}\n",
            said(&["get", "pods", "-o", "wide"]),
            last_lines(&said(&["get", "events", "--sort-by=.metadata.creationTimestamp"])),
            last_lines(&lines.join("\n"))
        )
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// A pod of one busybox container, `main`, that runs a shell script.
pub fn shell_pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [shell("main", script)], "terminationGracePeriodSeconds": 5 },
    })
}

/// A container that runs a shell script.
pub fn shell(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": images::BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
    })
}

/// What a workload makes its pods from.
pub fn template(app: &str, script: &str) -> Value {
    let mut template = shell_pod(app, script);
    template["metadata"] = json!({ "labels": { "app": app } });
    json!({ "metadata": template["metadata"], "spec": template["spec"] })
}

/// The first container's status.
pub fn main_container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Each part is in the text, or the error shows it.
pub fn ensure_has(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    Ok(())
}

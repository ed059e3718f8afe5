//! One kubelet with all the stories.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use crablet_proxy::{CriOptions, CriProxy, Values};
use crablet_testbed::cluster::{Cluster, Kubelet, Node, NodeOptions};
use crablet_testbed::process::wait_child;
use crablet_testbed::wait::Deadline;
use crablet_testbed::{images, kube};
use serde_json::{Value, json};

use super::account::{Account, Told};
use super::news::{Item, News};
use super::runtime;
use super::tale::{Absence, Step, Tale, Until};
use crate::differential::watch::feed;

pub const NAMESPACE: &str = "stories";
/// Longer than anything takes on a busy machine; who waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(200);
/// Reasons of events that a pod's end brings.
const AT_THE_END: [&str; 2] = ["Killing", "FailedPreStopHook"];
/// So many stories are told at a time: more, and the machine is what is tested.
const AT_ONCE: usize = 36;
const WORDS: &str = include_str!("words.sh");

/// Tells all stories with one kubelet: those in which it stays, then those in which it goes.
pub fn tell(cluster: &Cluster, kubelet: &Kubelet, tales: &[Tale]) -> Result<Told> {
    let stage = Stage::set(cluster, kubelet)?;
    let mut node = cluster.join(stage.options.clone())?;
    let mut account = Account::default();
    for absence in [Absence::None, Absence::Asked, Absence::Killed] {
        let group: Vec<&Tale> = tales.iter().filter(|tale| tale.absence == absence).collect();
        if !group.is_empty() {
            node = stage.perform(node, absence, &group, &mut account)?;
        }
    }
    for tale in tales {
        let diary = fs::read_to_string(stage.room(tale).join("diary")).unwrap_or_default();
        account.diaries.insert(tale.name.clone(), diary);
    }
    let lines = stage.proxy.record().lines();
    account.calls = runtime::calls(lines.iter().map(|line| &**line));
    account.farewells = stage.farewells()?;
    drop(node);
    Ok(tales.iter().map(|tale| (tale.name.clone(), account.of(tale))).collect())
}

/// What stories happen on.
struct Stage<'a> {
    cluster: &'a Cluster,
    proxy: CriProxy,
    options: NodeOptions,
    crictl: PathBuf,
    /// When everything began, for those who read along.
    begin: Instant,
}

impl<'a> Stage<'a> {
    fn set(cluster: &'a Cluster, kubelet: &Kubelet) -> Result<Stage<'a>> {
        let name = kubelet.name();
        let (listen, log) =
            (cluster.dir().join(format!("{name}.sock")), cluster.dir().join(format!("{name}-cri.jsonl")));
        let options = CriOptions::new(&listen, cluster.containerd().scratch().socket(), log);
        let proxy = CriProxy::start_with(&CriOptions { values: Values::Shown, ..options })?;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        feed(cluster, &["apply", "-f", "-"], &namespace.to_string())?;
        let account = ["wait", "--for=create", "serviceaccount/default", "--timeout=60s"];
        cluster.kubectl(&[&account[..], &["--namespace", NAMESPACE]].concat())?;
        for kind in ["events", "configmaps", "secrets"] {
            cluster.kubectl(&["delete", "--raw", &format!("/api/v1/namespaces/{NAMESPACE}/{kind}")])?;
        }
        // For stories in which an image changes.
        cluster.containerd().ctr(&["images", "tag", "--force", images::BUSYBOX, "crablet.test/busybox:2"])?;
        let options = NodeOptions {
            runtime_endpoint: Some(proxy.endpoint()),
            flags: vec!["--max-pods=200".into()],
            ..NodeOptions::new(kubelet.clone())
        };
        Ok(Stage { cluster, proxy, options, crictl: kube::ensure_crictl()?, begin: Instant::now() })
    }

    /// Tells some stories at once and clears the stage. The node that is there then may be another one.
    fn perform(&self, node: Node, absence: Absence, tales: &[&Tale], account: &mut Account) -> Result<Node> {
        let news = News::follow(self.cluster, NAMESPACE)?;
        let mut node = node;
        let manifests = node.home().join("manifests");
        tales.iter().try_for_each(|tale| self.furnish(tale))?;
        self.part(0, tales, &news, 0, account);
        if absence != Absence::None {
            match absence {
                Absence::Killed => node.kubelet().kill9()?,
                _ => node.kubelet().stop()?,
            }
            self.part(1, tales, &news, news.count(), account);
            drop(node);
            let so_far = news.count();
            node = self.cluster.launch(self.options.clone())?;
            self.part(2, tales, &news, so_far, account);
        }
        self.say(&format!("{} stories told", tales.len()));
        node.kubelet().check()?;
        for entry in fs::read_dir(&manifests)? {
            fs::remove_file(entry?.path())?;
        }
        // Before the end, which is nobody's story.
        account.items.extend(news.take());
        self.let_go()?;
        self.cluster.kubectl(&[
            "delete",
            "pods",
            "--all",
            "--namespace",
            NAMESPACE,
            "--grace-period=1",
            "--timeout=300s",
        ])?;
        self.say("and everything gone");
        Ok(node)
    }

    fn say(&self, what: &str) {
        eprintln!("{}: {what} after {:.0?}", self.options.kubelet.name(), self.begin.elapsed());
    }

    /// One part of each story, some at a time; those that went wrong before are over.
    fn part(&self, number: usize, tales: &[&Tale], news: &News, from: usize, account: &mut Account) {
        let over: BTreeSet<String> = account.failures.keys().cloned().collect();
        let left = Mutex::new(tales.iter().filter(|tale| !over.contains(&tale.name)));
        let failures = Mutex::new(&mut account.failures);
        let next = || left.lock().unwrap().next();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(tale) = next() {
                        if let Err(error) = self.steps(tale, &tale.parts[number], news, from) {
                            let words: Vec<String> = error.chain().map(ToString::to_string).collect();
                            eprintln!("{}: {}: {}", self.options.kubelet.name(), tale.name, words.join(": "));
                            failures.lock().unwrap().insert(tale.name.clone(), words.join(": "));
                        }
                    }
                });
            }
        });
    }

    fn steps(&self, tale: &Tale, steps: &[Step], news: &News, from: usize) -> Result<()> {
        let mut from = from;
        for step in steps {
            let before = news.count();
            match step {
                Step::Create(short) => self.create(tale, short)?,
                Step::Shell(lines) => self.shell(tale, lines).with_context(|| lines.clone())?,
                Step::Wait { pod, until } => {
                    from = wait(news, from, &tale.name_of(pod), until)?;
                    continue;
                }
            }
            from = before;
        }
        Ok(())
    }

    fn room(&self, tale: &Tale) -> PathBuf {
        self.cluster.dir().join("stories").join(&tale.name)
    }

    fn furnish(&self, tale: &Tale) -> Result<()> {
        let room = self.room(tale);
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room)?;
        for (short, pod) in &tale.pods {
            let name = if short.is_empty() { "pod" } else { short };
            let text = pod.to_string().replace("ROOM", &room.display().to_string());
            fs::write(room.join(format!("{name}.json")), text)?;
        }
        Ok(())
    }

    fn create(&self, tale: &Tale, short: &str) -> Result<()> {
        let name = if short.is_empty() { "pod" } else { short };
        let file = self.room(tale).join(format!("{name}.json"));
        self.cluster.kubectl(&["create", "-f", &file.display().to_string()])?;
        Ok(())
    }

    fn shell(&self, tale: &Tale, lines: &str) -> Result<()> {
        let path = std::env::var("PATH").unwrap_or_default();
        let tools = self.crictl.parent().context("a folder")?.display();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{WORDS}\n{lines}")])
            .env("PATH", format!("{}:{tools}:{path}", self.cluster.bin().display()))
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("CONTAINER_RUNTIME_ENDPOINT", self.cluster.containerd().endpoint())
            .env("STORY", &tale.name)
            .env("ROOM", self.room(tale))
            .env("MANIFESTS", self.cluster.dir().join(&self.options.name).join("manifests"))
            .current_dir(self.room(tale))
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.room(tale).join("stdout"))?)
            .stderr(fs::File::create(self.room(tale).join("stderr"))?);
        let mut child = command.spawn()?;
        let Some(status) = wait_child(&mut child, PATIENCE)? else {
            child.kill()?;
            child.wait()?;
            bail!("it takes too long");
        };
        let said = || fs::read_to_string(self.room(tale).join("stderr")).unwrap_or_default();
        ensure!(status.success(), "{status}: {}", said().trim());
        Ok(())
    }

    /// A story that went wrong may hold its pod.
    fn let_go(&self) -> Result<()> {
        let held = "jsonpath={range .items[?(@.metadata.finalizers)]}{.metadata.name} {end}";
        let held = self.cluster.kubectl(&["get", "pods", "--namespace", NAMESPACE, "--output", held])?;
        for name in held.split_whitespace() {
            let nothing = r#"{"metadata":{"finalizers":null}}"#;
            let patch = ["patch", "pod", name, "--type=merge", "--patch", nothing, "--namespace", NAMESPACE];
            self.cluster.kubectl(&patch)?;
        }
        Ok(())
    }

    /// Of the end only what is meant for it: what else is told then is chance, as of a probe that met it.
    fn farewells(&self) -> Result<Vec<Value>> {
        let text = self.cluster.kubectl(&["get", "events", "--namespace", NAMESPACE, "--output=json"])?;
        let mut list: Value = serde_json::from_str(&text)?;
        let mut events = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        events.retain(|event| AT_THE_END.iter().any(|reason| event["reason"] == *reason));
        Ok(events)
    }
}

/// Waits until the pod is such, from number `from` of the news on, and says where that was.
fn wait(news: &News, from: usize, name: &str, until: &Until) -> Result<usize> {
    let is_it = |item: &Item| match (item, until) {
        (Item::Gone(pod), Until::Gone) => pod["metadata"]["name"] == name,
        (Item::Event(event), Until::Told(reason)) => {
            event["involvedObject"]["name"] == name && event["reason"] == **reason
        }
        (Item::Pod(pod), _) => pod["metadata"]["name"] == name && until.holds(pod),
        _ => false,
    };
    news.wait(from, Deadline::after(PATIENCE), is_it).ok_or_else(|| {
        let last = news.with(|items| {
            let pods = items.iter().rev().filter_map(|item| match item {
                Item::Pod(pod) | Item::Gone(pod) => Some(pod),
                Item::Event(_) => None,
            });
            pods.filter(|pod| pod["metadata"]["name"] == name).map(|pod| pod["status"].clone()).next()
        });
        anyhow!("`{name}` was never {until:?}, but {}", last.unwrap_or_default())
    })
}

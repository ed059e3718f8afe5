//! All that the API server tells of a namespace, kept in order: each version of each pod, their ends, the events.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use crablet_testbed::cluster::Cluster;
use crablet_testbed::wait::Deadline;
use serde_json::Value;

/// One thing that was told.
pub enum Item {
    Pod(Value),
    Gone(Value),
    Event(Value),
}

/// Follows a namespace until it is dropped.
pub struct News {
    told: Arc<Told>,
    kubectl: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Told {
    items: Mutex<Vec<Item>>,
    more: Condvar,
}

/// The watches; none begins once it is over.
#[derive(Default)]
struct Running {
    children: Vec<Child>,
    is_over: bool,
}

impl News {
    pub fn follow(cluster: &Cluster, namespace: &str) -> Result<News> {
        let news = News { told: Arc::default(), kubectl: Arc::default() };
        for kind in ["pods", "events"] {
            let path = format!("/api/v1/namespaces/{namespace}/{kind}");
            // Read at once whatever happens here: an API server leaves a watch that does not keep up.
            let (send, lines) = mpsc::channel();
            let (kubectl, program) = (Arc::clone(&news.kubectl), cluster.kubectl_command());
            let first = watch(program, &path, "", &kubectl)?.context("it is not over")?;
            let again = Again {
                path,
                kubectl,
                kubeconfig: cluster.kubeconfig(),
                program: cluster.bin().join("kubectl"),
            };
            thread::spawn(move || again.pass_on(first, &send));
            let told = Arc::clone(&news.told);
            thread::spawn(move || lines.into_iter().for_each(|change| told.add(change)));
        }
        Ok(news)
    }

    /// How much has been told so far.
    pub fn count(&self) -> usize {
        self.told.items().len()
    }

    /// Where the first item is, from number `from` on, that is such; waits for it.
    pub fn wait(&self, from: usize, deadline: Deadline, such: impl Fn(&Item) -> bool) -> Option<usize> {
        let mut items = self.told.items();
        let mut next = from;
        loop {
            if let Some(found) = items.iter().skip(next).position(&such) {
                return Some(next + found);
            }
            next = next.max(items.len());
            let left = deadline.left()?;
            items = self.told.more.wait_timeout(items, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All of it so far.
    pub fn take(&self) -> Vec<Item> {
        std::mem::take(&mut self.told.items())
    }

    pub fn with<R>(&self, look: impl FnOnce(&[Item]) -> R) -> R {
        look(&self.told.items())
    }
}

impl Told {
    fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, change: Value) {
        let mut change = change;
        let object = change["object"].take();
        let item = match (object["involvedObject"].is_object(), change["type"] == "DELETED") {
            (true, true) => return,
            (true, false) => Item::Event(object),
            (false, true) => Item::Gone(object),
            (false, false) => Item::Pod(object),
        };
        self.items().push(item);
        self.more.notify_all();
    }
}

/// Goes on where a watch has ended.
struct Again {
    path: String,
    kubectl: Arc<Mutex<Running>>,
    kubeconfig: PathBuf,
    program: PathBuf,
}

impl Again {
    fn pass_on(self, first: Lines, send: &Sender<Value>) {
        let mut lines = first;
        let mut version = String::new();
        loop {
            for line in lines.map_while(Result::ok) {
                let Ok(change) = serde_json::from_str::<Value>(&line) else { continue };
                if let Some(newer) = change["object"]["metadata"]["resourceVersion"].as_str() {
                    version = format!("&resourceVersion={newer}");
                    if send.send(change).is_err() {
                        return;
                    }
                }
            }
            let mut program = Command::new(&self.program);
            program.arg("--kubeconfig").arg(&self.kubeconfig);
            match watch(program, &self.path, &version, &self.kubectl) {
                Ok(Some(next)) => lines = next,
                _ => return,
            }
        }
    }
}

type Lines = std::io::Lines<BufReader<ChildStdout>>;

fn watch(program: Command, path: &str, version: &str, kubectl: &Mutex<Running>) -> Result<Option<Lines>> {
    let mut program = program;
    let mut running = kubectl.lock().unwrap_or_else(PoisonError::into_inner);
    if running.is_over {
        return Ok(None);
    }
    program.args(["get", "--raw", &format!("{path}?watch=1{version}")]);
    let mut child = program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("the pipe was asked for")?;
    running.children.push(child);
    Ok(Some(BufReader::new(stdout).lines()))
}

impl Drop for News {
    fn drop(&mut self) {
        let mut running = self.kubectl.lock().unwrap_or_else(PoisonError::into_inner);
        running.is_over = true;
        for kubectl in &mut running.children {
            let _ = kubectl.kill();
            let _ = kubectl.wait();
        }
    }
}

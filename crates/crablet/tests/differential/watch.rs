//! The API server's own word on pods and events, as it comes: states that last for a moment only are seen, too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Result, ensure};
use crablet_testbed::cluster::Cluster;
use crablet_testbed::wait::Deadline;
use serde_json::Value;

/// Follows a namespace until it is dropped.
pub struct Watch {
    kubectl: Vec<Child>,
    told: Receiver<Value>,
}

impl Watch {
    pub fn start(cluster: &Cluster, namespace: &str) -> Result<Watch> {
        let (tell, told) = mpsc::channel();
        let mut watch = Watch { kubectl: Vec::new(), told };
        for kind in ["pods", "events"] {
            let path = format!("/api/v1/namespaces/{namespace}/{kind}?watch=1");
            let mut command = cluster.kubectl_command();
            command.args(["get", "--raw", &path]).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            let lines = BufReader::new(child.stdout.take().context("the pipe was asked for")?).lines();
            watch.kubectl.push(child);
            let tell = tell.clone();
            thread::spawn(move || pass_on(lines, &tell));
        }
        Ok(watch)
    }

    /// The next pod or event that came or changed; `None` when time is up.
    pub fn next(&self, deadline: Deadline) -> Result<Option<Value>> {
        let Some(left) = deadline.left() else { return Ok(None) };
        match self.told.recv_timeout(left) {
            Ok(object) => Ok(Some(object)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("the watches have ended"),
        }
    }
}

/// Ends with `kubectl` or when nobody listens.
fn pass_on(lines: impl Iterator<Item = std::io::Result<String>>, tell: &Sender<Value>) {
    for line in lines.map_while(Result::ok) {
        let Ok(mut change) = serde_json::from_str::<Value>(&line) else { return };
        if change["type"] != "DELETED" && tell.send(change["object"].take()).is_err() {
            return;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for kubectl in &mut self.kubectl {
            let _ = kubectl.kill();
            let _ = kubectl.wait();
        }
    }
}

/// Runs `kubectl` with `text` as its input.
pub fn feed(cluster: &Cluster, args: &[&str], text: &str) -> Result<()> {
    let mut command = cluster.kubectl_command();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("the pipe was asked for")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

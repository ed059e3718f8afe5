//! The node's lease: the sign of life that the cluster looks at.
//!
//! ```text
//! tick ── the last lease is known ──> PUT, 5 tries ── ok ──> sleep a quarter of the lease
//!   │                                   │ conflict: GET again      ^
//!   │ not known                         v all failed               │
//!   └────────────> GET, or create, until the server answers ──> PUT ┘
//! ```
//!
//! Nothing else of the agent is in its way: a task and a lane of its own.

use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ApiError, ErrorKind, Verb};
use crablet_host::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cache::NodeView;
use crate::calls::{Calls, jittered, parsed, pause_for};
use crate::facts::changed;
use crate::said::Said;

const TRIES: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

pub(crate) struct Lease {
    calls: Calls,
    clock: Arc<dyn Clock>,
    seconds: i32,
    node: watch::Receiver<Arc<NodeView>>,
    random: fastrand::Rng,
    /// As the server has last shown it, with fields that are not ours.
    latest: Option<Value>,
    said: Said,
}

impl Lease {
    pub(crate) fn new(
        calls: Calls,
        clock: Arc<dyn Clock>,
        seconds: i32,
        node: watch::Receiver<Arc<NodeView>>,
        seed: u64,
    ) -> Self {
        Self {
            calls,
            clock,
            seconds,
            node,
            random: fastrand::Rng::with_seed(seed),
            latest: None,
            said: Said::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        let period = Duration::from_secs(u64::try_from(self.seconds).unwrap_or(40).max(1)) / 4;
        loop {
            self.node.mark_unchanged();
            self.renew().await;
            let pause = jittered(period, &mut self.random);
            if self.latest.is_some() {
                sleep(pause).await;
            } else {
                // There is no Node yet to own the lease.
                let _ = tokio::time::timeout(pause, node_known(&mut self.node)).await;
            }
        }
    }

    async fn renew(&mut self) {
        if let Some(latest) = self.latest.take()
            && self.update(latest).await
        {
            return;
        }
        if let Some((lease, created)) = self.ensure().await {
            if created {
                self.succeeded(lease);
            } else {
                self.latest = Some(lease.clone());
                self.update(lease).await;
            }
        }
    }

    /// Whether the lease is renewed.
    async fn update(&mut self, mut base: Value) -> bool {
        for _ in 0..TRIES {
            match self.try_update(&base).await {
                Ok(lease) => {
                    self.succeeded(lease);
                    return true;
                }
                Err(error) => {
                    self.failed("Failed to update lease", &error);
                    pause_for(&error).await;
                    if error.kind == ErrorKind::Conflict {
                        match self.ensure().await {
                            Some((lease, _)) => base = lease,
                            None => return false,
                        }
                    }
                }
            }
        }
        false
    }

    async fn try_update(&self, base: &Value) -> Result<Value, ApiError> {
        let lease = self.prepared(base.clone()).await?;
        let answer = self.calls.heartbeat(Verb::Put, self.calls.lease_path(), lease.to_string()).await?;
        parsed(&answer)
    }

    /// The lease as the server has it, and whether it was created just now. `None` without a Node to own it.
    async fn ensure(&mut self) -> Option<(Value, bool)> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_ensure().await {
                Ok(ensured) => return ensured,
                Err(error) => {
                    self.failed("Failed to ensure lease exists, will retry", &error);
                    sleep(pause.max(error.retry_after.unwrap_or_default().min(LONGEST_PAUSE))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn try_ensure(&self) -> Result<Option<(Value, bool)>, ApiError> {
        match self.calls.heartbeat(Verb::Get, self.calls.lease_path(), "").await {
            Ok(lease) => return Ok(Some((parsed(&lease)?, false))),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let new = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": &*self.calls.node, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": &*self.calls.node},
        });
        // A lease without an owner would outlive its node.
        let Ok(new) = self.prepared(new).await else { return Ok(None) };
        let path = self.calls.lease_path();
        let collection = path.rsplit_once('/').map_or(path.as_str(), |(collection, _)| collection).to_owned();
        let created = self.calls.heartbeat(Verb::Post, collection, new.to_string()).await?;
        Ok(Some((parsed(&created)?, true)))
    }

    /// A lease that is good from now on.
    async fn prepared(&self, mut lease: Value) -> Result<Value, ApiError> {
        let owners = lease["metadata"]["ownerReferences"].as_array();
        if owners.is_none_or(Vec::is_empty) {
            let node = parsed(&self.calls.heartbeat(Verb::Get, self.calls.node_path(), "").await?)?;
            let owner = json!({
                "apiVersion": "v1", "kind": "Node", "name": &*self.calls.node, "uid": node["metadata"]["uid"],
            });
            lease["metadata"]["ownerReferences"] = json!([owner]);
        }
        lease["spec"]["leaseDurationSeconds"] = json!(self.seconds);
        lease["spec"]["renewTime"] = json!(micro_time(self.clock.now()));
        Ok(lease)
    }

    fn succeeded(&mut self, lease: Value) {
        self.latest = Some(lease);
        if self.said.is_over() {
            tracing::info!("Lease is renewed again");
        }
    }

    fn failed(&mut self, what: &'static str, error: &ApiError) {
        if self.said.is_news(&error.message) {
            tracing::error!(err = %error, "{what}");
        }
    }
}

/// News of a Node, since the last mark, that exists.
async fn node_known(node: &mut watch::Receiver<Arc<NodeView>>) {
    loop {
        changed(node).await;
        if node.borrow_and_update().uid.is_some() {
            return;
        }
    }
}

/// As the API writes times finer than a second.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

//! The requests that this room makes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Lane, Verb};
use serde_json::Value;

/// The longest that a server's wish to be left alone is followed.
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) api: Arc<dyn ApiServer>,
    pub(crate) node: Arc<str>,
    /// Of what keeps the node alive in the cluster's eyes.
    pub(crate) heartbeat_deadline: Duration,
}

impl Calls {
    pub(crate) fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.node)
    }

    pub(crate) fn lease_path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", self.node)
    }

    pub(crate) fn csi_node_path(&self) -> String {
        format!("/apis/storage.k8s.io/v1/csinodes/{}", self.node)
    }

    /// Through the lane that nothing holds up.
    pub(crate) async fn heartbeat(
        &self,
        verb: Verb,
        path: String,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, ApiError> {
        let call = Call::new(verb, Lane::Heartbeat, path).with_body(body).within(self.heartbeat_deadline);
        self.api.call(call).await
    }

    pub(crate) async fn main(
        &self,
        verb: Verb,
        path: String,
        body: impl Into<Bytes>,
    ) -> Result<Bytes, ApiError> {
        self.api.call(Call::new(verb, Lane::Main, path).with_body(body)).await
    }
}

/// What the server said, as JSON.
pub(crate) fn parsed(answer: &Bytes) -> Result<Value, ApiError> {
    serde_json::from_slice(answer)
        .map_err(|error| ApiError::new(ErrorKind::Other, format!("the answer is not understood: {error}")))
}

/// Waits for as long as the server has asked for, within reason.
pub(crate) async fn pause_for(error: &ApiError) {
    if let Some(pause) = error.retry_after {
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }
}

/// Up to a twenty-fifth more, so that a thousand nodes do not speak at the same time.
pub(crate) fn jittered(period: Duration, random: &mut fastrand::Rng) -> Duration {
    period.mul_f64(1.0 + 0.04 * random.f64())
}

//! The API server as the agent meets it. A dead agent's calls have no effect, the weather strikes calls by chance, and
//! every write to a pod is looked at as it happens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crablet_apiserver::fake::FakeApiServer;
use crablet_apiserver::{ApiError, ApiServer, Call, ErrorKind, Verb, WatchCall, WatchStream};
use crablet_cri::fake::FakeRuntime;
use crablet_host::fake::Gate;
use fastrand::Rng;
use serde_json::Value;

use super::witness::{FOREIGN, Witness, is_mirror};
use crate::sim::machine::Machine;
use crate::sim::world::Variant;

/// How probable it is that a call goes wrong, and in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weather {
    /// The server answers with an error, and nothing is done.
    pub fail: f64,
    /// What is asked for is done, and the answer is lost.
    pub lose_answer: f64,
    pub slow: f64,
    pub slow_for: Duration,
}

/// What a broken server does, to show that the checks bite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Mirrors are not kept, though it says so.
    LosesMirrors,
    /// Conditions that the agent does not send are removed.
    LosesConditions,
    /// Status patches are not kept, though it says so.
    LosesStatuses,
    /// Deleted pods stay.
    KeepsPods,
}

pub struct SimApi {
    pub server: Arc<FakeApiServer>,
    gate: Gate,
    runtime: FakeRuntime,
    pub witness: Witness,
    traces: bool,
    lie: Option<Lie>,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    weather: Weather,
    /// The server does not know a field that the agent writes, and drops it.
    is_old: bool,
}

impl SimApi {
    pub fn new(
        server: Arc<FakeApiServer>,
        gate: Gate,
        runtime: FakeRuntime,
        machine: Machine,
        rng: Rng,
        variant: &Variant,
    ) -> Arc<Self> {
        let state = State { rng, weather: Weather::default(), is_old: false };
        Arc::new(Self {
            server,
            gate,
            witness: Witness::new(runtime.clone(), machine),
            runtime,
            traces: variant.trace_reads,
            lie: variant.lie,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// From now on the server knows `observedGeneration` no more.
    pub fn become_old(&self) {
        self.state().is_old = true;
    }

    pub fn is_old(&self) -> bool {
        self.state().is_old
    }

    /// A place to die.
    async fn step(&self, call: &'static str) {
        if !(self.gate)(call) {
            std::future::pending::<()>().await;
        }
    }

    /// What the weather makes of a call: an error instead of it, or whether its answer is lost.
    async fn strike(&self, deadline: Duration) -> Result<bool, ApiError> {
        let (fate, delay, code) = {
            let state = &mut *self.state();
            let (weather, rng) = (state.weather, &mut state.rng);
            if weather == Weather::default() {
                return Ok(false);
            }
            let slow_for = u64::try_from(weather.slow_for.as_millis()).unwrap_or(u64::MAX);
            let delay = (rng.f64() < weather.slow).then(|| Duration::from_millis(rng.u64(0..=slow_for)));
            (rng.f64(), delay, [429, 500, 503, 403][rng.usize(0..4)])
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay.min(deadline)).await;
            if delay >= deadline {
                return Err(timed_out());
            }
            self.step("api").await;
        }
        let weather = self.state().weather;
        if fate < weather.fail {
            self.witness.count(|writes| writes.failures += 1);
            let body = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "",
                "message": format!("the weather is bad ({code})"),
                "details": if code == 429 { serde_json::json!({"retryAfterSeconds": 1}) } else { Value::Null },
            });
            return Err(ApiError::of_status(code, body.to_string().as_bytes()));
        }
        Ok(fate < weather.fail + weather.lose_answer)
    }

    async fn perform(&self, mut call: Call) -> Result<Bytes, ApiError> {
        if call.verb == Verb::Post && self.lie == Some(Lie::LosesMirrors) && call.path.ends_with("/pods") {
            let mut pod: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            pod["metadata"]["uid"] = "lost".into();
            return Ok(pod.to_string().into());
        }
        if call.verb == Verb::Post && call.path.ends_with("/pods") {
            self.witness.count(|writes| writes.all += 1);
        }
        let Some(name) = pod_of(&call.path).filter(|_| call.verb != Verb::Get) else {
            return self.server.call(call).await;
        };
        let before = self.server.get("pods", &name.0, &name.1);
        if call.verb == Verb::Delete {
            self.witness.judge_deletion(before.as_ref(), &call.body);
        }
        if self.state().is_old {
            call.body = without_generations(&call.body);
        }
        let lies = match (self.lie, call.verb) {
            (Some(Lie::KeepsPods), Verb::Delete) => before.as_ref().is_some_and(|pod| !is_mirror(pod)),
            (Some(Lie::LosesStatuses), Verb::StrategicPatch) => true,
            _ => false,
        };
        if lies {
            return Ok(before.unwrap_or_default().to_string().into());
        }
        let (verb, path, body) = (call.verb, call.path.clone(), call.body.clone());
        let answer = self.server.call(call).await;
        let after = self.server.get("pods", &name.0, &name.1);
        let said = match &answer {
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        let body = if self.traces { String::from_utf8_lossy(&body).into_owned() } else { String::new() };
        self.runtime.note(format!("api {verb:?} {path} {body}: {said}"));
        if answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Unreachable) {
            return answer;
        }
        let is_patch = answer.is_ok() && verb == Verb::StrategicPatch;
        let version =
            |pod: &Option<Value>| pod.as_ref().map(|pod| pod["metadata"]["resourceVersion"].clone());
        let is_idle = is_patch && version(&before) == version(&after);
        self.witness.count(|writes| {
            writes.all += 1;
            writes.patches += u64::from(is_patch);
            writes.idle_patches += u64::from(is_idle);
        });
        if let Some(mut pod) = after {
            if self.lie == Some(Lie::LosesConditions)
                && let Some(conditions) = pod["status"]["conditions"].as_array_mut()
            {
                conditions.retain(|c| c["type"] != FOREIGN);
            }
            self.witness.look(&pod);
        }
        answer
    }
}

#[async_trait]
impl ApiServer for SimApi {
    async fn call(&self, call: Call) -> Result<Bytes, ApiError> {
        // The real one asks the network, which gives others a turn.
        tokio::task::yield_now().await;
        self.step("api").await;
        self.witness.count(|writes| writes.calls += 1);
        let loses = self.strike(call.deadline).await?;
        let answer = self.perform(call).await;
        self.step("api").await;
        if loses {
            self.witness.count(|writes| writes.lost_answers += 1);
            return Err(timed_out());
        }
        answer
    }

    async fn watch(&self, watch: WatchCall) -> Result<WatchStream, ApiError> {
        tokio::task::yield_now().await;
        self.step("watch").await;
        self.witness.count(|writes| writes.calls += 1);
        if self.strike(Duration::from_secs(30)).await? {
            return Err(timed_out());
        }
        self.server.watch(watch).await
    }
}

fn without_generations(body: &[u8]) -> Bytes {
    let mut patch: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(status) = patch["status"].as_object_mut() {
        status.remove("observedGeneration");
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.remove("observedGeneration");
        }
    }
    patch.to_string().into()
}

/// Namespace and name of the pod that a path is about.
fn pod_of(path: &str) -> Option<(String, String)> {
    let (namespace, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once("/pods/")?;
    let name = rest.split(['/', '?']).next()?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn timed_out() -> ApiError {
    ApiError::new(ErrorKind::TimedOut, "context deadline exceeded")
}

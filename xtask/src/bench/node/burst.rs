//! A burst: all pods are created as fast as one client can, and later all are deleted.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::audit::Requests;
use super::machine::{self, Busy};
use super::observer::{Observer, Seen};
use super::subject::Stage;
use super::{crowd, pods};

/// A slow machine is no failure; what is not done by then is told.
const LIMIT: Duration = Duration::from_secs(900);

/// One half of a burst.
#[derive(Debug, Clone)]
pub struct Half {
    /// From the first request to the last pod's event.
    pub took: Duration,
    /// How many pods did not get there in time.
    pub missing: usize,
    /// Seconds, of the agent.
    pub cpu: f64,
    /// Seconds, of containerd.
    pub runtime_cpu: f64,
    /// Seconds, of the API server and etcd.
    pub servers_cpu: f64,
    /// Seconds, of everything on the machine.
    pub machine_cpu: f64,
    pub requests: Requests,
}

pub fn names(stage: &Stage<'_>, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{}-{number}", stage.node)).collect()
}

pub async fn up(stage: &Stage<'_>, names: &[String]) -> Result<Half> {
    let (api, node) = (stage.api.clone(), stage.node.to_owned());
    let create = crowd::each(crowd::IN_FLIGHT, names.to_vec(), move |name| {
        let (api, pod) = (api.clone(), pods::resting(&node, &name));
        async move { api.create(pods::COLLECTION, &pod).await.map(drop) }
    });
    half(stage, names, create, |seen| seen.ready).await
}

pub async fn down(stage: &Stage<'_>, names: &[String]) -> Result<Half> {
    let api = stage.api.clone();
    let delete = crowd::each(crowd::IN_FLIGHT, names.to_vec(), move |name| {
        let api = api.clone();
        async move { api.delete(&pods::path(&name), None).await }
    });
    half(stage, names, delete, |seen| seen.gone).await
}

async fn half(
    stage: &Stage<'_>,
    names: &[String],
    requests: impl Future<Output = Result<Vec<()>>>,
    which: impl Fn(&Seen) -> Option<Instant>,
) -> Result<Half> {
    let place = stage.audit.now();
    let (cpu, runtime_cpu) = (stage.family.cpu()?, stage.runtime_cpu()?);
    let (busy, servers_cpu) = (Busy::now(), machine::servers_cpu());
    let started = Instant::now();
    requests.await?;
    let last = wait_for_all(&stage.pods, names, &which).await?;
    let (cpu, runtime_cpu) = (stage.family.cpu()? - cpu, stage.runtime_cpu()? - runtime_cpu);
    let (machine_cpu, servers_cpu) = (busy.seconds(), machine::servers_cpu() - servers_cpu);
    let requests = stage.audit.requests(stage.node, place, stage.audit.now())?;
    let missing = names.iter().filter(|name| which(&stage.pods.seen(name)).is_none()).count();
    let took = last.saturating_duration_since(started);
    Ok(Half { took, missing, cpu, runtime_cpu, servers_cpu, machine_cpu, requests })
}

/// When the last of them got there; now, if not all did.
async fn wait_for_all(
    observer: &Observer,
    names: &[String],
    which: impl Fn(&Seen) -> Option<Instant>,
) -> Result<Instant> {
    let all = observer
        .wait(LIMIT, |state| {
            names.iter().all(|name| state.get(name).is_some_and(|seen| which(seen).is_some()))
        })
        .await?;
    let last = names.iter().filter_map(|name| which(&observer.seen(name))).max();
    Ok(last.filter(|_| all).unwrap_or_else(Instant::now))
}

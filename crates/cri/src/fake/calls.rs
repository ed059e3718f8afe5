//! The port: gate, faults, effect, gate.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_model::PodUid;
use crablet_model::runtime::{
    Container, ContainerConfig, ContainerListing, ContainerUpdate, Image, Incoming, LinuxResources,
    ListedImage, RuntimeStatus, RuntimeVersion, Sandbox, SandboxConfig,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::FakeRuntime;
use super::faults::Course;
use super::images::with_tag;
use super::state::{ContainerRecord, Due, SandboxRecord, State, not_found};
use super::trace::{Call, Subject, What};
use super::works::Progress;
use crate::port::{CommandOutput, CriError, ErrorKind, EventStream, RegistryAuth, Result, Runtime, Streams};

/// A client that waits for work. Dropped before the answer, it tells the daemon that nobody waits any more.
struct Waiting {
    state: Arc<Mutex<State>>,
    ticket: Option<u64>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && let Ok(mut state) = self.state.lock()
        {
            state.abandon(ticket);
        }
    }
}

pub(super) fn unavailable() -> CriError {
    let message =
        "connection error: desc = \"transport: Error while dialing: dial unix: connection refused\"";
    CriError::new(ErrorKind::Unavailable, message)
}

impl FakeRuntime {
    /// One step of a call: where the agent may die.
    async fn step(&self, call: Call) {
        let gate = self.state().gate.clone();
        if let Some(gate) = gate
            && !gate(call.name())
        {
            pending::<()>().await;
        }
    }

    /// A call from beginning to end. `grace` is what a stop call adds to its deadline.
    async fn call<T: Send + 'static>(
        &self,
        call: Call,
        subject: Subject,
        grace: Option<Duration>,
        effect: impl FnOnce(&mut State) -> Result<Progress<T>> + Send + 'static,
    ) -> Result<T> {
        // A call over a socket always gives others a turn.
        tokio::task::yield_now().await;
        self.step(call).await;
        let received = self.state().receive(call, &subject, grace);
        let result = match received {
            Err(e) => Err(e),
            Ok(course) => self.run(course, self.deadline(call, grace), effect).await,
        };
        if let Err(e) = &result {
            self.state().record(What::Failed { call, subject, error: e.message.clone() });
        }
        self.step(call).await;
        result
    }

    fn deadline(&self, call: Call, grace: Option<Duration>) -> Option<Duration> {
        let timeout = self.state().settings.call_timeout;
        match call {
            Call::PullImage | Call::Events => None,
            Call::RunSandbox => Some(timeout * 2),
            _ => Some(timeout + grace.unwrap_or_default()),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        course: Course,
        deadline: Option<Duration>,
        effect: impl FnOnce(&mut State) -> Result<Progress<T>> + Send + 'static,
    ) -> Result<T> {
        // Nearly every call takes this way: no waiting, no deadline to set up.
        if course.late.is_zero() && !course.silent {
            if course.has_no_effect {
                return Err(course.error.unwrap_or_else(unavailable));
            }
            let progress = self.state().stalled(course.stalls, effect);
            return match (progress, course.error) {
                (Ok(Progress::Done(_)), Some(error)) => Err(error),
                (Ok(Progress::Done(answer)), None) => Ok(answer),
                (Err(e), _) => Err(e),
                (Ok(later), error) => {
                    let answer = within(deadline, self.outcome(later)).await?;
                    error.map_or(Ok(answer), Err)
                }
            };
        }
        within(deadline, async {
            if course.has_no_effect {
                tokio::time::sleep(course.late).await;
            } else {
                let progress = self.begin_late(course.late, effect).await?;
                let answer = self.outcome(progress).await?;
                if !course.silent {
                    return course.error.map_or(Ok(answer), Err);
                }
            }
            match course.error {
                Some(error) if !course.silent => Err(error),
                _ => {
                    let let_go = self.state().let_go.clone();
                    let_go.notified().await;
                    Err(CriError::new(ErrorKind::Unavailable, "error reading from server: EOF"))
                }
            }
        })
        .await
    }

    /// Begins a call after a while, on the daemon's side: the client can be gone by then.
    async fn begin_late<T: Send + 'static>(
        &self,
        late: Duration,
        effect: impl FnOnce(&mut State) -> Result<Progress<T>> + Send + 'static,
    ) -> Result<Progress<T>> {
        if late.is_zero() {
            return effect(&mut self.state());
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = {
            let mut state = self.state();
            let ticket = state.new_ticket();
            let request = move |state: &mut State| {
                let progress = effect(state);
                // A client that is gone has given up this work as well.
                if let Err(Ok(Progress::Later(_, ticket))) = sender.send(progress) {
                    state.abandon(ticket);
                }
            };
            state.requests.insert(ticket, Box::new(request));
            state.agenda.add(Instant::now() + late, Due::Request(ticket));
            ticket
        };
        self.wait(receiver, ticket).await?
    }

    async fn outcome<T>(&self, progress: Progress<T>) -> Result<T> {
        match progress {
            Progress::Done(answer) => Ok(answer),
            Progress::Later(receiver, ticket) => self.wait(receiver, ticket).await?,
        }
    }

    /// `Unavailable` when the daemon dies before it answers.
    async fn wait<T>(&self, receiver: oneshot::Receiver<T>, ticket: u64) -> Result<T> {
        let mut waiting = Waiting { state: self.state.clone(), ticket: Some(ticket) };
        let answer = receiver.await;
        waiting.ticket = None;
        answer.map_err(|_| CriError::new(ErrorKind::Unavailable, "error reading from server: EOF"))
    }
}

/// Waits as long as the client would.
async fn within<T>(deadline: Option<Duration>, work: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(deadline) = deadline else { return work.await };
    match tokio::time::timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(CriError::new(ErrorKind::DeadlineExceeded, "context deadline exceeded")),
    }
}

impl State {
    /// Carries out a call whose work takes so much longer.
    fn stalled<T>(&mut self, time: Duration, effect: impl FnOnce(&mut Self) -> T) -> T {
        self.stall = time;
        let result = effect(self);
        self.stall = Duration::ZERO;
        result
    }

    fn receive(&mut self, call: Call, subject: &Subject, grace: Option<Duration>) -> Result<Course> {
        // What is due at this instant happened before the call came.
        self.run_due();
        if !call.reads() || self.settings.trace_reads {
            self.record(What::Called { call, subject: subject.clone(), grace });
        }
        if self.away {
            return Err(unavailable());
        }
        Ok(self.faults.course(call, subject, &mut self.rng))
    }
}

fn of_pod(uid: Option<&PodUid>) -> Subject {
    Subject { uid: uid.cloned(), ..Subject::default() }
}

fn of_image(image: &str) -> Subject {
    Subject { id: Arc::from(image), ..Subject::default() }
}

fn done<T>(answer: T) -> Result<Progress<T>> {
    Ok(Progress::Done(answer))
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> Result<RuntimeVersion> {
        self.call(Call::Version, Subject::default(), None, |_| {
            done(RuntimeVersion {
                runtime_name: "fake".to_owned(),
                runtime_version: "1.0.0".to_owned(),
                api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        self.call(Call::Status, Subject::default(), None, |state| {
            let problem = (!state.network_ready).then(|| "cni plugin not initialized".to_owned());
            done(RuntimeStatus { network_problem: problem, ..RuntimeStatus::default() })
        })
        .await
    }

    async fn events(&self) -> Result<EventStream> {
        self.call(Call::Events, Subject::default(), None, |state| {
            if !state.settings.streams_events {
                return Err(CriError::new(ErrorKind::Unimplemented, "unknown method GetContainerEvents"));
            }
            done(state.events.subscribe())
        })
        .await
    }

    async fn list_sandboxes(&self, uid: Option<&PodUid>) -> Result<Vec<Sandbox>> {
        let uid = uid.cloned();
        self.call(Call::ListSandboxes, of_pod(uid.as_ref()), None, move |state| {
            let wanted = |s: &&SandboxRecord| uid.as_ref().is_none_or(|uid| s.uid == *uid);
            done(state.sandboxes.values().filter(wanted).map(|s| s.view(true)).collect())
        })
        .await
    }

    async fn list_containers(&self, uid: Option<&PodUid>) -> Result<Vec<ContainerListing>> {
        let uid = uid.cloned();
        self.call(Call::ListContainers, of_pod(uid.as_ref()), None, move |state| {
            let wanted = |c: &&ContainerRecord| uid.as_ref().is_none_or(|uid| c.uid == *uid);
            done(state.containers.values().filter(wanted).map(ContainerRecord::listing).collect())
        })
        .await
    }

    async fn sandbox_status(&self, id: &str) -> Result<Sandbox> {
        let (subject, id) = (self.state().sandbox_subject(id), id.to_owned());
        self.call(Call::SandboxStatus, subject, None, move |state| {
            let sandbox = state.sandboxes.get(&id).ok_or_else(|| not_found("sandbox", &id))?;
            done(sandbox.view(false))
        })
        .await
    }

    async fn container_status(&self, id: &str) -> Result<Container> {
        let (subject, id) = (self.state().container_subject(id), id.to_owned());
        self.call(Call::ContainerStatus, subject, None, move |state| {
            let container = state.containers.get(&id).ok_or_else(|| not_found("container", &id))?;
            done(container.view())
        })
        .await
    }

    async fn run_sandbox(&self, config: &SandboxConfig) -> Result<String> {
        let subject = Subject {
            uid: Some(config.uid.clone()),
            pod: Arc::from(&*config.name),
            attempt: config.attempt,
            ..Subject::default()
        };
        let config = config.clone();
        self.call(Call::RunSandbox, subject, None, move |state| state.begin_sandbox(config)).await
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let (subject, owned) = (self.state().sandbox_subject(id), id.to_owned());
        self.call(Call::StopSandbox, subject, None, move |state| {
            state.stop_sandbox(&owned).map(Progress::Done)
        })
        .await?;
        if let Some(sandbox) = self.state().sandboxes.get_mut(id) {
            sandbox.stopped_by_agent = true;
        }
        Ok(())
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let (subject, id) = (self.state().sandbox_subject(id), id.to_owned());
        self.call(Call::RemoveSandbox, subject, None, move |state| {
            state.remove_sandbox(&id).map(Progress::Done)
        })
        .await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox: &SandboxConfig,
    ) -> Result<String> {
        let subject = Subject {
            uid: Some(sandbox.uid.clone()),
            pod: Arc::from(&*sandbox.name),
            container: Arc::from(&*config.name),
            id: Arc::default(),
            attempt: config.attempt,
        };
        // When it is asked for, not when a late request gets its turn.
        self.state().check_sandbox_of_create(sandbox_id, &config.name);
        let (sandbox_id, config, sandbox) = (sandbox_id.to_owned(), config.clone(), sandbox.clone());
        self.call(Call::CreateContainer, subject, None, move |state| {
            state.begin_create(&sandbox_id, config, &sandbox)
        })
        .await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let (subject, id) = (self.state().container_subject(id), id.to_owned());
        self.call(Call::StartContainer, subject, None, move |state| state.begin_start(&id)).await.map(drop)
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let (subject, id) = (self.state().container_subject(id), id.to_owned());
        self.call(Call::StopContainer, subject, Some(grace), move |state| state.begin_stop(&id, grace))
            .await
            .map(drop)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let (subject, id) = (self.state().container_subject(id), id.to_owned());
        self.call(Call::RemoveContainer, subject, None, move |state| {
            state.remove_container(&id).map(Progress::Done)
        })
        .await
    }

    async fn update_container(&self, id: &str, update: &ContainerUpdate) -> Result<()> {
        let (subject, id, update) = (self.state().container_subject(id), id.to_owned(), update.clone());
        self.call(Call::UpdateContainer, subject, None, move |state| {
            state.update_container(&id, &update).map(Progress::Done)
        })
        .await
    }

    /// As most runtimes today: they need not be told.
    async fn update_sandbox(&self, id: &str, _: &LinuxResources, _: &LinuxResources) -> Result<()> {
        let subject = self.state().sandbox_subject(id);
        self.call(Call::UpdateSandbox, subject, None, |_| {
            Err::<Progress<()>, _>(CriError::new(
                ErrorKind::Unimplemented,
                "unknown method UpdatePodSandboxResources",
            ))
        })
        .await
    }

    async fn memory_usage(&self, id: &str) -> Result<Option<u64>> {
        let (subject, id) = (self.state().container_subject(id), id.to_owned());
        self.call(Call::MemoryUsage, subject, None, move |state| {
            state.containers.get(&id).ok_or_else(|| not_found("container", &id))?;
            done(Some(MEMORY_OF_A_CONTAINER))
        })
        .await
    }

    async fn image_status(&self, image: &str, _: Option<&SandboxConfig>) -> Result<Option<Image>> {
        let image = image.to_owned();
        self.call(Call::ImageStatus, of_image(&image), None, move |state| done(state.image_status(&image)))
            .await
    }

    async fn list_images(&self) -> Result<Vec<ListedImage>> {
        self.call(Call::ListImages, Subject::default(), None, |state| done(state.list_images())).await
    }

    async fn incoming(&self) -> Result<Option<Vec<Incoming>>> {
        Ok(self.state().incoming.clone())
    }

    async fn set_pod_cidr(&self, _: &str) -> Result<()> {
        self.call(Call::SetPodCidr, Subject::default(), None, |_| done(())).await
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&RegistryAuth>,
        sandbox: Option<&SandboxConfig>,
    ) -> Result<String> {
        let mut subject = of_image(&with_tag(image));
        if let Some(sandbox) = sandbox {
            subject.uid = Some(sandbox.uid.clone());
            subject.pod = Arc::from(&*sandbox.name);
            subject.attempt = sandbox.attempt;
        }
        let (image, auth) = (image.to_owned(), auth.cloned());
        self.call(Call::PullImage, subject, None, move |state| state.begin_pull(&image, auth.as_ref())).await
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Option<Duration>,
    ) -> Result<CommandOutput> {
        self.run_command(id, command, timeout).await
    }

    async fn exec(&self, _: &str, _: &[String], _: Streams) -> Result<String> {
        Err(no_processes("Exec"))
    }

    async fn attach(&self, _: &str, _: Streams) -> Result<String> {
        Err(no_processes("Attach"))
    }

    async fn port_forward(&self, _: &str, _: &[u16]) -> Result<String> {
        Err(no_processes("PortForward"))
    }

    async fn checkpoint(&self, _: &str, _: &str, _: i64) -> Result<()> {
        Err(no_processes("CheckpointContainer"))
    }
}

/// Bytes that each container seems to use.
const MEMORY_OF_A_CONTAINER: u64 = 1 << 20;

/// Containers in memory have no process to reach.
pub(super) fn no_processes(method: &str) -> CriError {
    CriError::new(ErrorKind::Unimplemented, format!("unknown method {method}"))
}

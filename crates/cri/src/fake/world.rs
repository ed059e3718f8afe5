//! What a test does from outside, past the port: sets the scene, breaks things, looks inside.

use crablet_model::PodUid;
use crablet_model::runtime::{Container, ContainerState, Incoming, Sandbox};

use super::behaviour::{Behaviour, FakeImage};
use super::checks::Violation;
use super::events::EventFaults;
use super::faults::{CallFault, Chaos};
use super::images::with_tag;
use super::trace::{Cause, TraceEntry, What};
use super::{FakeRuntime, Gate, MakeSource, WriteFile};

/// The scene.
impl FakeRuntime {
    pub fn set_gate(&self, gate: Option<Gate>) {
        self.state().gate = gate;
    }

    pub fn set_write_file(&self, write_file: WriteFile) {
        self.state().write_file = Some(write_file);
    }

    pub fn set_make_source(&self, make_source: MakeSource) {
        self.state().make_source = Some(make_source);
    }

    pub fn put_image(&self, name: &str, image: FakeImage) {
        self.state().images.insert(with_tag(name), image);
    }

    /// What the runtime says of parts of images that are on their way. It says nothing otherwise.
    pub fn set_incoming(&self, incoming: Vec<Incoming>) {
        self.state().incoming = Some(incoming);
    }

    /// How a container of a pod behaves, from its next start and its next stop on.
    pub fn behave(&self, pod: &str, container: &str, behaviour: Behaviour) {
        self.state().behaviours.set(pod, container, behaviour);
    }

    /// How containers of an image behave that have no behaviour of their own. The name is the one in the pod.
    pub fn behave_image(&self, image: &str, behaviour: Behaviour) {
        self.state().behaviours.set_for_image(image, behaviour);
    }

    pub fn set_network_ready(&self, ready: bool) {
        self.state().network_ready = ready;
    }
}

/// Trouble.
impl FakeRuntime {
    pub fn set_chaos(&self, chaos: Chaos) {
        self.state().faults.chaos = chaos;
    }

    pub fn add_fault(&self, fault: CallFault) {
        self.state().faults.rules.push(fault);
    }

    pub fn set_event_faults(&self, faults: EventFaults) {
        self.state().events.faults = faults;
    }

    /// From now on calls and events go well, and nothing is stuck any more. What hangs fails at last, what was stalled goes
    /// on.
    pub fn clear_faults(&self) {
        let mut state = self.state();
        state.faults.rules.clear();
        state.faults.chaos = Chaos::default();
        state.events.faults = EventFaults::default();
        state.behaviours.unstick();
        state.fail_hanging_pulls();
        state.finish_stalled();
        state.let_go.notify_waiters();
    }

    pub fn cut_event_streams(&self, with_error: bool) {
        self.state().events.cut(with_error);
    }

    /// The daemon dies. Every call finds nobody, streams end, what was under way is done or undone; containers live on.
    pub fn go_away(&self) {
        let mut state = self.state();
        if state.away {
            return;
        }
        state.record(What::WentAway);
        let with_error = state.rng.bool();
        state.events.cut(with_error);
        state.drop_all_work();
        state.let_go.notify_waiters();
        state.away = true;
    }

    pub fn come_back(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.away, false) {
            state.record(What::CameBack);
        }
    }

    /// The pod's sandbox dies by itself, with its containers or without them. Says whether there was one.
    pub fn lose_sandbox(&self, uid: &PodUid, with_containers: bool) -> bool {
        let mut state = self.state();
        let is_it = |s: &Sandbox| s.uid == *uid && s.state == crablet_model::runtime::SandboxState::Ready;
        let Some(id) = state.sandboxes.values().map(|s| s.view(true)).find(is_it).map(|s| s.id) else {
            return false;
        };
        if with_containers {
            for container in state.containers_in(&id) {
                state.exit(&container, 137, "Error", Cause::Outside);
            }
        }
        state.sandbox_is_down(&id, Cause::Outside);
        true
    }

    /// Somebody on the node kills a container's process. Says whether it ran.
    pub fn kill_container(&self, uid: &PodUid, name: &str, code: i32) -> bool {
        let mut state = self.state();
        let Some(id) = state.running(uid, name) else { return false };
        state.exit(&id, code, "Error", Cause::Outside);
        true
    }

    /// The daemon loses track of a running container, as containerd can over a restart. Says whether it ran.
    pub fn lose_track(&self, uid: &PodUid, name: &str) -> bool {
        let mut state = self.state();
        let Some(id) = state.running(uid, name) else { return false };
        let Some(container) = state.containers.get_mut(&id) else { return false };
        container.state = ContainerState::Unknown;
        container.exit = None;
        let subject = container.subject();
        state.record(What::ContainerUnknown { container: subject });
        true
    }
}

impl super::state::State {
    fn running(&self, uid: &PodUid, name: &str) -> Option<String> {
        let is_it =
            |c: &&super::state::ContainerRecord| c.uid == *uid && c.name == name && c.state.is_running();
        self.containers.values().find(is_it).map(|c| c.id.clone())
    }
}

/// A look inside.
impl FakeRuntime {
    pub fn sandboxes(&self) -> Vec<Sandbox> {
        self.state().sandboxes.values().map(|sandbox| sandbox.view(false)).collect()
    }

    pub fn containers(&self) -> Vec<Container> {
        self.state().containers.values().map(|container| container.view()).collect()
    }

    pub fn note(&self, text: impl Into<String>) {
        self.state().record(What::Note(text.into()));
    }

    pub fn trace(&self) -> Vec<TraceEntry> {
        self.state().trace.clone()
    }

    /// Looks at the trace without a copy of it. Not to be held over a call of the runtime.
    pub fn read_trace<T>(&self, read: impl FnOnce(&[TraceEntry]) -> T) -> T {
        read(&self.state().trace)
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }
}

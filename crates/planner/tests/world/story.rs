//! What may happen to a pod and to its agent.

use proptest::prelude::*;

use super::World;
use super::pods::{RULED, any_sketch};
use super::resizes::Answer;

/// Something that happens to the pod or to the agent.
#[derive(Clone, Copy, Debug)]
pub enum Happening {
    /// A plan is made and its operations begin.
    Turn,
    /// The n-th operation under way ends well, or not.
    End {
        which: usize,
        well: bool,
    },
    /// The n-th operation under way that makes something has all it needs: the runtime makes it now.
    Reaches {
        which: usize,
    },
    /// A call that was given up takes effect all the same.
    Late,
    /// The n-th start under way has its container running, and goes on with its hook.
    Runs {
        which: usize,
    },
    /// The n-th running container ends by itself.
    Exit {
        which: usize,
        code: i32,
        out_of_memory: bool,
    },
    /// A probe of the n-th running container has a result.
    Probed {
        which: usize,
        probe: Probe,
        passed: bool,
    },
    /// The sandbox dies, its containers with it.
    SandboxDies,
    /// The runtime loses a container's state.
    Lose {
        which: usize,
    },
    /// Somebody removes the n-th container behind the agent's back.
    Vanish {
        which: usize,
    },
    /// The agent is killed and comes back: what is under way is cut off before or after it took effect.
    AgentRestarts {
        took_effect: bool,
    },
    Wait {
        seconds: i64,
    },
    /// The node does not want the pod any more.
    Evicted {
        grace: Option<i64>,
    },
    Delete,
    /// Somebody asks for the end again, with less grace.
    Hurry {
        grace: i64,
    },
    /// The pod is deleted in the API server, which keeps it until the node lets it go.
    DeleteInApi,
    /// The API server has no such pod any more.
    LeavesApi,
    /// The agent is killed while a static pod ends, and finds it wanted again.
    Revived,
    /// The n-th regular container gets another image.
    Edited {
        which: usize,
    },
    /// The n-th container with amounts of its own is to have others.
    Resized {
        which: usize,
        /// Thousandths.
        cpu: i64,
        /// MiB.
        memory: i64,
        answer: Answer,
    },
    /// There is room for what was deferred.
    RoomComes,
    /// Somebody adds an ephemeral container.
    Debugged,
    Network {
        ready: bool,
    },
    /// The wall clock goes back.
    SetBack {
        seconds: i64,
    },
    /// All goes well for a while, then the n-th running container ends badly.
    Crash {
        which: usize,
    },
    /// Something came that containers and pulls may have waited for.
    ObjectsCame,
}

#[derive(Clone, Copy, Debug)]
pub enum Probe {
    Startup,
    Liveness,
    Readiness,
}

pub fn any_happening() -> impl Strategy<Value = Happening> {
    let code = prop_oneof![4 => Just(0), 2 => Just(1), 2 => Just(RULED), 1 => Just(137)];
    let answer =
        prop_oneof![3 => Just(Answer::Granted), 2 => Just(Answer::Deferred), 1 => Just(Answer::Infeasible)];
    let probe = prop_oneof![Just(Probe::Startup), Just(Probe::Liveness), Just(Probe::Readiness)];
    prop_oneof![
        16 => Just(Happening::Turn),
        16 => (0..8usize, prop::bool::weighted(0.85)).prop_map(|(which, well)| Happening::End { which, well }),
        4 => (0..4usize).prop_map(|which| Happening::Reaches { which }),
        1 => Just(Happening::Late),
        2 => (0..4usize).prop_map(|which| Happening::Runs { which }),
        6 => (0..4usize, code, prop::bool::weighted(0.1))
            .prop_map(|(which, code, out_of_memory)| Happening::Exit { which, code, out_of_memory }),
        6 => (0..4usize, probe, prop::bool::weighted(0.7))
            .prop_map(|(which, probe, passed)| Happening::Probed { which, probe, passed }),
        1 => Just(Happening::SandboxDies),
        1 => (0..4usize).prop_map(|which| Happening::Lose { which }),
        1 => (0..4usize).prop_map(|which| Happening::Vanish { which }),
        2 => any::<bool>().prop_map(|took_effect| Happening::AgentRestarts { took_effect }),
        3 => (0..700i64).prop_map(|seconds| Happening::Wait { seconds }),
        3 => (0..20i64).prop_map(|seconds| Happening::Wait { seconds }),
        1 => prop::option::of(0..40i64).prop_map(|grace| Happening::Evicted { grace }),
        1 => Just(Happening::Delete),
        1 => (0..10i64).prop_map(|grace| Happening::Hurry { grace }),
        1 => Just(Happening::DeleteInApi),
        1 => Just(Happening::LeavesApi),
        1 => Just(Happening::Revived),
        1 => (0..4usize).prop_map(|which| Happening::Edited { which }),
        3 => (0..4usize, 1..4i64, 1..4i64, answer).prop_map(|(which, cpu, memory, answer)| {
            Happening::Resized { which, cpu: cpu * 100, memory: memory * 64, answer }
        }),
        1 => Just(Happening::RoomComes),
        1 => Just(Happening::Debugged),
        1 => any::<bool>().prop_map(|ready| Happening::Network { ready }),
        1 => (1..4000i64).prop_map(|seconds| Happening::SetBack { seconds }),
        1 => Just(Happening::ObjectsCame),
        3 => (0..4usize).prop_map(|which| Happening::Crash { which }),
    ]
}

pub fn any_world() -> impl Strategy<Value = World> {
    any_sketch().prop_map(|sketch| World::new(&sketch))
}

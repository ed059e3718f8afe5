//! Pods: where they come from, one worker for each, what the runtime says of them, and what is told to the outside.
//!
//! ```text
//!  sources (folder, URL, submitted, API) ── PodUpdate ──> registry ── assignment ──> worker (one task per pod UID)
//!  pleg (event stream or relist)    ── hint ───────> registry ── nudge ───────> │ inspect, plan, operate, publish
//!                                                                               └──> view (statuses, journal), events
//! ```
//!
//! | module | task or value | input | output |
//! |---|---|---|---|
//! | [`sources`] | one task per source, one mux | manifests | [`sources::PodUpdate`] |
//! | [`registry`] | one task, owner of all workers | pod updates, hints, ends of workers | assignments |
//! | [`admission`] | owned by the registry | the node, pods that run | who may run |
//! | [`worker`] | one task per pod | assignment, nudges, ends of operations | operations, status, journal |
//! | `sight` | one per worker | events, ends of operations | the pod as the runtime has it, with few calls |
//! | `order` | shared by all workers | operations | who waits for whom |
//! | `stage` | one per operation | calls of the runtime | whether it can be given up |
//! | [`hands`] | operations | actions of a plan | outcomes |
//! | `probes` | one task per probe, owned by the pod's worker | the pod's status | verdicts, events |
//! | `handlers` | questions to containers | | answers |
//! | [`pleg`] | one task | runtime events, relists | hints, [`pleg::RuntimeHealth`] |
//! | [`images`] | shared by all workers | images to make ready | pulls, bounded |
//! | [`view`] | shared value | what workers publish | what the server shows |
//! | [`record`] | one file per pod | a worker's memory | the same after a restart |
//! | [`cluster`], [`statuses`], [`mirrors`] | two tasks | what workers publish, the API server's watch | patches, deletions, mirrors |
//! | [`ledger`] | two files | resources that pods were granted and given | the same after a restart |
//! | [`users`] | shared by all workers | pods with users of their own | ranges of the node's users |
//! | [`ports`] | ports | | volumes and cgroups of pods |
//! | [`figures`] | the process's | ends of operations, answers to probes | what Prometheus reads |
//! | [`events`] | port | events | the log, or the API server |
//!
//! Deliberately absent: any loop over all pods on a timer. The relist of [`pleg`] is the only thing that looks at
//! everything, and it costs two calls.

pub mod admission;
pub mod cluster;
pub mod events;
pub mod figures;
mod handlers;
pub mod hands;
mod hooks;
pub mod images;
mod inspect;
pub mod ledger;
pub mod mirrors;
mod nudge;
mod order;
pub mod pleg;
pub mod ports;
mod probes;
pub mod record;
pub mod registry;
pub mod settings;
mod sight;
pub mod sources;
mod stage;
pub mod statuses;
#[cfg(test)]
mod testing;
pub mod users;
pub mod view;
pub mod worker;

/// How plans are made. Always [`crablet_planner::pod::plan`], except in tests that show what a broken planner does.
pub type PlanFn = fn(&crablet_planner::pod::Facts<'_>) -> crablet_planner::pod::Plan;

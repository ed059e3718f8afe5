//! Recording proxies for tests: they stand between a kubelet and what it talks to, write down what is said, and disturb
//! it by rule.
//!
//! | module | what it is |
//! |---|---|
//! | [`cri`] | [`CriProxy`]: between a kubelet and its container runtime; gRPC on unix sockets |
//! | [`api`] | [`ApiProxy`]: in front of an API server; HTTP with TLS on both sides |
//! | [`rules`] | which calls are delayed, held, failed, dropped or cut off |
//! | [`gate`] | a gate in the hands of a test, for rules that hold calls |
//! | [`record`] | what was seen: a JSON line per call in a file, the same in memory, counts, waiting for a line |
//! | [`secrets`] | what is written instead of a secret |
//! | [`grpc`] | gRPC's codes by name |
//!
//! Each proxy has two faces: one for synchronous tests (`CriProxy`, `ApiProxy`: threads of their own, stopped by
//! dropping it) and the async core for those who have a runtime (`CriServer`, `ApiServer`). Waiting always has a deadline.
//!
//! Nothing that ships may depend on this crate.

pub mod api;
mod background;
pub mod cri;
pub mod error;
pub mod gate;
mod glob;
pub mod grpc;
pub mod record;
pub mod rules;
pub mod secrets;

pub use api::{ApiKey, ApiOptions, ApiProxy, ApiRecord, ApiServer, Identity};
pub use cri::{CriOptions, CriProxy, CriRecord, CriServer};
pub use error::{Error, Result};
pub use gate::Gate;
pub use record::{Outcome, Phase, Recorder};
pub use rules::{Action, Cut, Facts, Failure, Matcher, Rule, RuleId, Rules};
pub use secrets::{Salt, Values};

//! The API proxy between clients of both protocols and an API server that the test plays itself.

#[path = "api/actions.rs"]
mod actions;
#[path = "api/faithful.rs"]
mod faithful;
#[path = "api/pki.rs"]
mod pki;
#[path = "api/recorded.rs"]
mod recorded;
#[path = "api/support.rs"]
mod support;

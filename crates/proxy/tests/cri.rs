//! The CRI proxy between a client and a runtime that the test plays itself, at the level of HTTP/2, so that nothing which
//! goes over the wire is out of its sight.

#[path = "cri/actions.rs"]
mod actions;
#[path = "cri/faithful.rs"]
mod faithful;
#[path = "cri/recorded.rs"]
mod recorded;
#[path = "cri/support.rs"]
mod support;

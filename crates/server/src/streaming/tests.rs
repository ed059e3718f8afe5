//! A client on one side, a runtime's streaming server on the other, and real sockets between them.

mod codecs;
mod kubelet;
mod passing;
mod refusals;
mod runtime;
mod spdy_server;
mod translating;
mod tunnels;
mod watched;

//! A node's certificates against an API server in memory, whose certificate controller is in [`world`].

mod bootstrap;
mod pods;
mod rotation;
mod serving;
mod world;

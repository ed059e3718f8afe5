//! The program as a process: how it starts, what it tells, what it listens to, how it ends. No container runtime: where
//! one is needed, see `node.rs`.

mod process {
    pub mod drop_in;
    pub mod life;
    pub mod reload;
    pub mod support;
}

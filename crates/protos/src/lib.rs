//! gRPC interfaces, written as our own `.proto` files in `proto/`.
//!
//! The Rust below `src/generated/` is made from them and checked in, so that an ordinary build needs neither `protoc`
//! nor a code generator. After a change to a `.proto` file:
//!
//! ```text
//! cargo run -p xtask --features protos -- protos
//! ```
//!
//! Where upstream's file is at hand, `-- protos --check PATH` compares every name, number and type of ours with it.
//! Generated code is never edited.

/// The container runtime interface, CRI v1. The server halves need the feature `server`.
#[allow(clippy::all, rustdoc::all)]
pub mod cri {
    include!("generated/runtime.v1.rs");
}

/// containerd's content store.
#[allow(clippy::all, rustdoc::all)]
pub mod content {
    include!("generated/containerd.services.content.v1.rs");
}

/// The container storage interface, CSI v1.
#[allow(clippy::all, rustdoc::all)]
pub mod csi {
    include!("generated/csi.v1.rs");
}

/// The registration of plugins.
#[allow(clippy::all, rustdoc::all)]
pub mod registration {
    include!("generated/pluginregistration.rs");
}

mod debug;

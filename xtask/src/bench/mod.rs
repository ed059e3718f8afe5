//! `bench`: what Crablet costs and how fast it is, beside upstream's kubelet. Nothing is asserted: figures of one machine on
//! one day.
//!
//! | module | what it measures |
//! |---|---|
//! | [`idle`] | both kubelets standing alone, with pods that just run |
//! | [`node`] | both kubelets in a cluster: at rest, a burst of pods, reactions, start-up |
//! | [`sessions`] | both kubelets in a cluster: what hundreds of `logs -f` and `exec` cost |
//! | [`measure`], [`subjects`] | figures from `/proc`; the agents of [`idle`] |

mod idle;
mod measure;
mod node;
mod sessions;
mod subjects;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::Args;

pub fn run(mut args: Args) -> Result<ExitCode> {
    match args.command().as_deref() {
        Some("idle") => idle::run(args),
        Some("node") => node::run(args),
        Some("sessions") => sessions::run(args),
        _ => bail!("there are three benches: `cargo xtask bench idle`, `bench node` and `bench sessions`"),
    }
}

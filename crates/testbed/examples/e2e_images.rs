//! For whoever works on the suites' images: makes them, imports them into a containerd of its own, and runs the given
//! command in one. `cargo run -p crablet-testbed --example e2e_images -- busybox:1.37.0-1 sh -c 'nmeter -d0 %3t | head -n1'`

use std::time::Instant;

use anyhow::{Context, Result};
use crablet_testbed::{Containerd, Flavor, StartOptions, guard, images, say};

fn main() -> Result<()> {
    guard::install()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let started = Instant::now();
    let archives = images::e2e::ensure()?;
    say::step(format!("the archives were there after {:.1?}", started.elapsed()));
    let Some((image, command)) = args.split_first() else { return Ok(()) };
    let name = images::e2e::NAMES.iter().find(|name| name.ends_with(image)).context("no such image")?;

    let options = StartOptions { import_images: false, ..StartOptions::new(Flavor::Debian) };
    let containerd = Containerd::start(options)?;
    let started = Instant::now();
    containerd.import(&archives)?;
    say::step(format!("imported in {:.1?}", started.elapsed()));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    print!("{}", containerd.run(name, "check", &command)?);
    containerd.stop()
}

//! Ports 10250, 10255 and 10248 of Crablet beside those of upstream's kubelet, on two nodes of one control plane: the
//! same questions from the same people must get the same answers. What is meant to differ is named in
//! `endpoints/alike.rs`, nowhere else.
//!
//! `CRABLET_TEST_PRINT=1` prints what upstream's kubelet answered.

mod endpoints {
    pub mod alike;
    pub mod cases;
    pub mod client;
    pub mod fuzz;
    pub mod matrix;
    pub mod world;
}

use std::time::Instant;

use anyhow::{Result, ensure};
use crablet_testbed::cluster;

use endpoints::fuzz;
use endpoints::matrix::{Round, judge, long_commands};
use endpoints::world::World;

#[test]
fn both_kubelets_give_the_same_answers() {
    if !cluster::is_under_test() {
        eprintln!("not run: clusters are not under test (see CRABLET_TEST_CLUSTER)");
        return;
    }
    if let Err(error) = compare() {
        panic!("{}", error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
}

fn compare() -> Result<()> {
    let ours = std::env::var("CRABLET_TEST_KUBELET").as_deref() != Ok("upstream");
    let mut world = timed("a cluster", || World::start(ours))?;
    timed("two kubelets", || world.start_kubelets(&[]))?;
    timed("two pods", || world.start_pods())?;
    let mut differences = timed("the usual answers", || judge(&world, Round::Open))?;
    timed("long commands", || long_commands(&world))?;
    if ours {
        timed("a storm", || fuzz::survive(&world))?;
    }
    timed("two other kubelets", || {
        world.start_kubelets(&["--enable-debugging-handlers=false", "--anonymous-auth=true"])
    })?;
    differences.extend(timed("their answers", || judge(&world, Round::Closed))?);
    timed("the end", || world.stop())?;
    ensure!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

fn timed<T>(what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let done = step()?;
    eprintln!("{what} took {:.1?}", begin.elapsed());
    Ok(done)
}

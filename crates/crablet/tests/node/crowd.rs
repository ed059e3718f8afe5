//! Many pods at once.

use anyhow::{Result, ensure};
use crablet_testbed::agent::Snapshot;

use super::support::{Node, PATIENCE, quiet_pod};

const CROWD: usize = 60;
const KILLS: usize = 100;

fn name(i: usize) -> String {
    format!("crowd-{i:02}")
}

fn all_ready(snapshot: &Snapshot) -> bool {
    (0..CROWD).all(|i| snapshot.is_ready(&name(i)))
}

fn drop_in(node: &Node) -> Result<()> {
    (0..CROWD).try_for_each(|i| node.agent.put_manifest(&format!("{}.yaml", name(i)), &quiet_pod(&name(i))))
}

fn take_out(node: &Node) -> Result<()> {
    (0..CROWD).try_for_each(|i| node.agent.remove_manifest(&format!("{}.yaml", name(i))))
}

pub fn sixty_pods_come_and_go_and_leave_nothing(node: &Node) -> Result<()> {
    node.agent.start()?;
    drop_in(node)?;
    node.wait(all_ready)?;
    take_out(node)?;
    node.wait_empty()
}

pub fn a_hundred_kills_change_nothing_of_that(node: &Node) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(7);
    node.agent.start()?;
    drop_in(node)?;
    kill_at_random(node, &mut random, KILLS / 2)?;
    // A start that is cut off counts as one, in the runtime and here: what must not change is what runs.
    let started = node.wait(all_ready)?;
    let before = ids(node)?;
    kill_at_random(node, &mut random, KILLS / 10)?;
    let settled = node.wait(|s| s.inventoried && all_ready(s))?;
    ensure!(started.pods == settled.pods, "before:\n{started}\nafter:\n{settled}");
    ensure!(before == ids(node)?, "a container was replaced");

    take_out(node)?;
    kill_at_random(node, &mut random, KILLS * 4 / 10)?;
    node.wait_empty()
}

/// Kills the agent after a random number of its reports, so at a random point of what it is doing, and starts it again.
fn kill_at_random(node: &Node, random: &mut fastrand::Rng, kills: usize) -> Result<()> {
    for _ in 0..kills {
        let mut reports = random.u32(1..12);
        node.agent.wait_for(PATIENCE, |snapshot| {
            reports -= 1;
            // A node at rest reports once: there is no later moment to wait for.
            reports == 0 || (snapshot.inventoried && (all_ready(snapshot) || snapshot.pods.is_empty()))
        })?;
        node.agent.kill9()?;
        node.agent.start()?;
    }
    Ok(())
}

fn ids(node: &Node) -> Result<Vec<String>> {
    let mut ids = node.containerd.leftovers().containers;
    ids.sort();
    Ok(ids)
}

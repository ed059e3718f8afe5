//! The agent's ports, and whether another agent runs already.

use std::net::IpAddr;

use super::super::facts::{Listener, Process, Read};
use super::super::report::{Finding, Group};
use super::super::wanted::{Port, Wanted};
use super::{listed, named};

const GROUP: Group = Group("ports");

pub fn judge(
    wanted: &Wanted,
    listeners: &Read<Vec<Listener>>,
    processes: &Read<Vec<Process>>,
) -> Vec<Finding> {
    let mut found = match listeners {
        Ok(listeners) => wanted.ports.iter().map(|port| judge_port(port, listeners)).collect(),
        Err(why) => vec![GROUP.unread("ports", why)],
    };
    found.push(match processes {
        Ok(processes) => agents(processes),
        Err(why) => GROUP.unread("agents", why),
    });
    found
}

fn judge_port(port: &Port, listeners: &[Listener]) -> Finding {
    let title = format!("{} {}", port.number, port.name);
    let held = listeners
        .iter()
        .find(|listener| listener.port == port.number && collide(listener.address, port.address));
    let Some(listener) = held else {
        return GROUP.ok(title, "free");
    };
    let Some(holder) = &listener.holder else {
        return GROUP.error(
            title,
            format!("held by a process that could not be found out, on {}", listener.address),
            format!("find it with `ss -ltnp sport = :{}` as root, and end it", port.number),
        );
    };
    let seen = format!("held by {}", named(holder));
    match agent(holder) {
        Some(Kind::Crablet) => GROUP.warning(
            title,
            format!("{seen}: the agent runs already"),
            "nothing to do, unless another one should start: then stop this one first",
        ),
        Some(Kind::Kubelet) => GROUP.error(
            title,
            format!("{seen}: another kubelet runs"),
            "`systemctl disable --now kubelet` before this agent takes its place; its containers keep running",
        ),
        None => GROUP.error(title, seen, "end it, or give one of the two another port"),
    }
}

/// An unspecified address takes the port on all of them.
fn collide(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    one.is_unspecified() || other.is_unspecified() || one == other
}

enum Kind {
    Crablet,
    Kubelet,
}

/// Neither this command nor the process that holds connections for a dead agent is an agent.
fn agent(process: &Process) -> Option<Kind> {
    let first = process.arguments.get(1).map(String::as_str);
    match process.name.as_str() {
        "kubelet" => Some(Kind::Kubelet),
        "crablet" if first.is_none_or(|first| first.starts_with('-')) => Some(Kind::Crablet),
        _ => None,
    }
}

fn agents(processes: &[Process]) -> Finding {
    let running: Vec<_> = processes.iter().filter(|process| agent(process).is_some()).map(named).collect();
    if running.is_empty() {
        GROUP.ok("other agents", "none")
    } else {
        GROUP.warning(
            "other agents",
            format!("running already: {}", listed(&running)),
            "one agent per node: stop the other before this one starts with the same runtime",
        )
    }
}

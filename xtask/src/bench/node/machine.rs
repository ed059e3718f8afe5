//! What the whole machine, and the control plane in it, had to do: on a machine that is never idle the time a burst takes
//! is the work of everybody divided by the cores.

use std::fs;

use crablet_testbed::process;

use super::family::cpu_of;

/// Ticks of `/proc/stat` per second, on every Linux that there is.
const TICKS: f64 = 100.0;
/// The parts of the control plane that serve requests, by the names of their programs.
const SERVERS: [&str; 2] = ["kube-apiserver", "etcd"];

/// A moment from which CPU time of all processes is counted.
pub struct Busy(f64);

impl Busy {
    pub fn now() -> Busy {
        Busy(total())
    }

    /// Since then.
    pub fn seconds(&self) -> f64 {
        total() - self.0
    }
}

/// Everything but idling and waiting for a disk.
fn total() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0.0)).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    [0, 1, 2, 5, 6].iter().filter_map(|place| ticks.get(*place)).sum::<f64>() / TICKS
}

/// Seconds of CPU of the API server and its store since their start.
pub fn servers_cpu() -> f64 {
    let of_server = |process: &process::ProcessId| {
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        SERVERS.contains(&name.trim())
    };
    let servers = process::with_descendants(&[process::ProcessId::of_self()]);
    servers.iter().filter(|process| of_server(process)).filter_map(|server| cpu_of(server.pid as u32)).sum()
}

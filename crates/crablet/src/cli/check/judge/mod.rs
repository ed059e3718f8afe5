//! From what is wanted and what is there to findings. Pure: no file, no clock, no machine.

mod cgroups;
mod clock;
mod configuration;
mod disk;
mod files;
mod kernel;
mod limits;
mod memory;
mod names;
mod network;
mod permissions;
mod ports;
mod runtime;
#[cfg(test)]
pub mod tests;

use crablet_model::quantity::Quantity;

use super::facts::{Facts, Process};
use super::report::Finding;
use super::wanted::Wanted;

/// Everything, in the order in which it is shown.
pub fn all(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    [
        configuration::judge(wanted),
        permissions::judge(&facts.privileges),
        kernel::judge(wanted, &facts.kernel, &facts.sysctls),
        kernel::security(&facts.security),
        cgroups::judge(wanted, &facts.cgroups, &facts.runtime),
        memory::judge(wanted, facts),
        runtime::judge(&wanted.endpoint, &facts.runtime),
        network::judge(wanted, facts),
        disk::judge(wanted, &facts.disks),
        ports::judge(wanted, &facts.listeners, &facts.processes),
        clock::judge(&facts.clock, &facts.processes),
        names::judge(wanted, facts),
        files::static_pods(wanted, &facts.static_pods).into_iter().collect(),
        files::judge(wanted, &facts.credentials, &facts.clock),
        limits::judge(wanted, facts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn named(process: &Process) -> String {
    format!("`{}` (pid {})", process.name, process.pid)
}

/// `a`, `a and b`, `a, b and c`
fn listed<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [] => "nothing".to_owned(),
        [one] => one.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<_> = most.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", most.join(", "), last.as_ref())
        }
    }
}

/// In the unit that people use for disks and memory: `34.1 GiB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut amount = count as f64;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{amount:.1} {}", UNITS[unit]) }
}

/// `10%` of a whole, or a quantity of its own. What cannot be read was refused with the settings.
fn amount(threshold: &str, total: u64) -> Option<u64> {
    // As upstream: nothing and all are no thresholds.
    if matches!(threshold, "0%" | "100%") {
        return None;
    }
    match threshold.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok()?;
            Some((total as f64 * percent / 100.0) as u64)
        }
        None => u64::try_from(Quantity::parse(threshold).ok()?.value()).ok(),
    }
}

//! Unit properties, named and counted as systemd does.

use crablet_model::cgroup::Cgroup;
use crablet_model::cgroup::limits::{CgroupLimits, weight_of_shares};
use zbus::Variant;

use super::Property;

const DEFAULT_CPU_PERIOD: i64 = 100_000;
/// The first versions that know these properties.
const KNOWS_QUOTA_PERIOD: u32 = 242;
const KNOWS_ALLOWED_CPUS: u32 = 244;
/// systemd counts CPU in whole per cents of a second.
const PER_CENT_USEC: u64 = 10_000;
const SECOND_USEC: u64 = 1_000_000;
/// More CPUs than any kernel supports.
const MOST_CPUS: usize = 1 << 16;

/// What a new slice is told. Its place in the tree follows from its name; `Wants` makes sure of its parent.
pub fn of_new_slice(cgroup: &Cgroup, unified: bool) -> Vec<Property> {
    let io_accounting = if unified { "IOAccounting" } else { "BlockIOAccounting" };
    vec![
        ("Description", Variant::from(format!("libcontainer container {}", cgroup.unit()))),
        ("Wants", Variant::from(vec![cgroup.parent_unit()])),
        ("MemoryAccounting", Variant::from(true)),
        ("CPUAccounting", Variant::from(true)),
        (io_accounting, Variant::from(true)),
        ("TasksAccounting", Variant::from(true)),
        ("DefaultDependencies", Variant::from(false)),
    ]
}

/// The settings that systemd knows. Rounds `limits.cpu_quota` up to what it can say.
pub fn of_limits(limits: &mut CgroupLimits, unified: bool, version: u32) -> Vec<Property> {
    let mut all: Vec<Property> = Vec::new();
    if let Some(bytes) = limits.memory.filter(|bytes| *bytes != 0) {
        all.push((if unified { "MemoryMax" } else { "MemoryLimit" }, number(bytes)));
        if unified && bytes == -1 {
            all.push(("MemorySwapMax", number(-1)));
        }
    }
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares != 0) {
        all.push(if unified {
            ("CPUWeight", number(weight_of_shares(shares)))
        } else {
            ("CPUShares", number(shares))
        });
    }
    add_quota(&mut all, limits, version);
    if let Some(pids) = limits.pids {
        all.push(("TasksMax", number(if pids == 0 { 1 } else { pids })));
    }
    if let Some(mask) = limits.cpus.as_deref().and_then(mask_of).filter(|_| version >= KNOWS_ALLOWED_CPUS) {
        all.push(("AllowedCPUs", Variant::from(mask)));
    }
    all
}

fn add_quota(all: &mut Vec<Property>, limits: &mut CgroupLimits, version: u32) {
    let (quota, period) = (limits.cpu_quota.unwrap_or(0), limits.cpu_period.unwrap_or(0));
    if period > 0 && version >= KNOWS_QUOTA_PERIOD {
        all.push(("CPUQuotaPeriodUSec", number(period)));
    }
    if quota == 0 && period <= 0 {
        return;
    }
    let mut per_second = u64::MAX;
    if quota > 0 {
        let period = if period > 0 { period } else { DEFAULT_CPU_PERIOD } as u64;
        let exact = (quota as u64).saturating_mul(SECOND_USEC) / period;
        per_second = exact.div_ceil(PER_CENT_USEC).saturating_mul(PER_CENT_USEC);
        if per_second != exact {
            limits.cpu_quota = i64::try_from(per_second.saturating_mul(period) / SECOND_USEC).ok();
        }
    }
    all.push(("CPUQuotaPerSecUSec", Variant::from(per_second)));
}

/// Below zero is systemd's infinity.
fn number(value: i64) -> Variant<'static> {
    Variant::from(u64::try_from(value).unwrap_or(u64::MAX))
}

/// `0-2,8` as bits, the lowest CPU first. `None` for what is no list of CPUs.
fn mask_of(cpus: &str) -> Option<Vec<u8>> {
    let mut mask = Vec::new();
    for range in cpus.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= MOST_CPUS {
            return None;
        }
        mask.resize(mask.len().max(last / 8 + 1), 0_u8);
        (first..=last).for_each(|cpu| mask[cpu / 8] |= 1 << (cpu % 8));
    }
    (!mask.is_empty()).then_some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(properties: &[Property]) -> Vec<String> {
        properties.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn settings_in_systemds_words() {
        let limits = || CgroupLimits {
            cpu_shares: Some(1024),
            cpu_quota: Some(25_500),
            cpu_period: Some(100_000),
            memory: Some(1 << 30),
            pids: Some(0),
            cpus: Some("0-2,9".to_string()),
            ..CgroupLimits::default()
        };
        let mut new = limits();
        assert_eq!(
            printed(&of_limits(&mut new, true, 252)),
            [
                "MemoryMax=uint64 1073741824",
                "CPUWeight=uint64 39",
                "CPUQuotaPeriodUSec=uint64 100000",
                "CPUQuotaPerSecUSec=uint64 260000",
                "TasksMax=uint64 1",
                "AllowedCPUs=[byte 0x07, 0x02]",
            ]
        );
        assert_eq!(new.cpu_quota, Some(26_000), "the files get what systemd was told");
        assert_eq!(
            printed(&of_limits(&mut limits(), false, 239)),
            [
                "MemoryLimit=uint64 1073741824",
                "CPUShares=uint64 1024",
                "CPUQuotaPerSecUSec=uint64 260000",
                "TasksMax=uint64 1",
            ]
        );
        let mut free = CgroupLimits { cpu_quota: Some(-1), memory: Some(-1), ..CgroupLimits::default() };
        assert_eq!(
            printed(&of_limits(&mut free, true, 252)),
            [
                "MemoryMax=uint64 18446744073709551615",
                "MemorySwapMax=uint64 18446744073709551615",
                "CPUQuotaPerSecUSec=uint64 18446744073709551615",
            ]
        );
        assert_eq!(of_limits(&mut CgroupLimits::default(), true, 252), []);
    }

    #[test]
    fn lists_of_cpus_become_bits() {
        for (cpus, mask) in [
            ("0", Some(vec![1])),
            ("0-8", Some(vec![0xff, 1])),
            ("1, 3", Some(vec![0b1010])),
            ("", None),
            ("3-1", None),
            ("x", None),
            ("0-99999999", None),
        ] {
            assert_eq!(mask_of(cpus), mask, "{cpus}");
        }
    }
}

//! Memory and swap.

use super::super::facts::{Facts, Memory, Read, Swap};
use super::super::report::{Finding, Group};
use super::super::wanted::Wanted;
use super::kernel::version;
use super::{amount, bytes, listed};

const GROUP: Group = Group("memory");

/// Memory-backed volumes stay out of swap from here on.
const TMPFS_NOSWAP: (u32, u32) = (6, 4);

pub fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let release = facts.kernel.as_ref().ok().and_then(|kernel| version(&kernel.release));
    vec![available(wanted, &facts.memory), swap(wanted, &facts.swaps, release)]
}

fn available(wanted: &Wanted, memory: &Read<Memory>) -> Finding {
    let memory = match memory {
        Ok(memory) => memory,
        Err(why) => return GROUP.unread("available", why),
    };
    let seen = format!("{} of {}", bytes(memory.available), bytes(memory.total));
    let threshold = wanted.eviction_hard.get("memory.available").and_then(|t| amount(t, memory.total));
    match threshold {
        Some(threshold) if memory.available < threshold => GROUP.error(
            "available",
            format!("{seen}, less than the eviction threshold of {}", bytes(threshold)),
            "end what uses it: pods would be evicted as soon as the agent starts",
        ),
        _ => GROUP.ok("available", seen),
    }
}

fn swap(wanted: &Wanted, swaps: &Read<Vec<Swap>>, kernel: Option<(u32, u32)>) -> Finding {
    let swaps = match swaps {
        Ok(swaps) => swaps,
        Err(why) => return GROUP.unread("swap", why),
    };
    if swaps.is_empty() {
        return GROUP.ok("swap", "off");
    }
    let names: Vec<_> = swaps
        .iter()
        .map(|swap| format!("{} ({})", swap.name, bytes(swap.kib.saturating_mul(1024))))
        .collect();
    let seen = format!("on: {}", listed(&names));
    if wanted.fail_swap_on {
        return GROUP.error(
            "swap",
            format!("{seen}; failSwapOn does not allow it"),
            "`swapoff -a` and take it out of /etc/fstab, or set `failSwapOn: false`",
        );
    }
    match kernel {
        Some(kernel) if kernel < TMPFS_NOSWAP => GROUP.warning(
            "swap",
            format!("{seen}; this kernel may write secrets of memory-backed volumes to it"),
            "use kernel 6.4 or later, or encrypted swap",
        ),
        _ => GROUP.ok("swap", seen),
    }
}

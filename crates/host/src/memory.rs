//! Giving freed memory back to the kernel.
//!
//! glibc keeps what was freed: after a burst of decoded pods the process would stay at its peak. Two arenas instead of
//! eight per core, and a trim after each burst, halve the resident size. Other C libraries have neither call.

/// Call before the first thread starts.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: `mallopt` takes two integers and only sets a tunable of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Takes milliseconds when there is much to give back: call it from a blocking thread.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: `malloc_trim` takes the allocator's own locks and touches only memory that was freed.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What the process keeps resident. `None` where `/proc` does not say.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    resident_pages(&statm)?.checked_mul(rustix::param::page_size() as u64)
}

fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_of_statm_is_the_resident_one() {
        for (statm, pages) in
            [("6014 801 622 5 0 337 0\n", Some(801)), ("6014", None), ("", None), ("a b", None)]
        {
            assert_eq!(resident_pages(statm), pages, "{statm:?}");
        }
    }

    #[test]
    fn this_process_is_resident_somewhere() {
        limit_arenas();
        trim();
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}

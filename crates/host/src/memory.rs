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

/// Lets go of code that a burst needed and rest does not: the kernel maps back what is used, from its page cache. On a
/// small node the code of the start is otherwise the largest thing the agent holds.
pub fn release_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (start, end) in maps.lines().filter_map(code_range) {
        #[allow(unsafe_code)]
        // SAFETY: the range is a private, never writable file mapping of this process, so its pages are clean and come
        // back from the file with the same content when they are touched.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

/// The range of a line of `maps` that is code from a file. What may be written, or was before it was sealed, is not code.
fn code_range(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let path = words.nth(3)?;
    if rights != "r-xp" || !path.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
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
    fn only_code_from_files_is_let_go() {
        let code = "55d0-55e0 r-xp 00001000 fe:00 42   /usr/bin/crablet";
        assert_eq!(code_range(code), Some((0x55d0, 0x55e0)));
        for other in [
            "55d0-55e0 r--p 00001000 fe:00 42   /usr/bin/crablet",
            "55d0-55e0 rwxp 00001000 fe:00 42   /usr/bin/crablet",
            "7ffc-7ffd r-xp 00000000 00:00 0    [vdso]",
            "7f00-7f10 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_range(other), None, "{other:?}");
        }
        release_code();
    }

    #[test]
    fn this_process_is_resident_somewhere() {
        limit_arenas();
        trim();
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}

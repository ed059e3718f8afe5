use std::io;
use std::path::Path;
use std::time::Duration;

/// What happens to a call that a rule or chance has picked.
#[derive(Clone, Debug)]
pub enum FileFaultKind {
    /// The call fails with this errno, without an effect, except that a write in place has truncated the file already,
    /// as it has on a real full disk.
    Errno(i32),
    /// The call is answered after this much virtual time.
    Slow(Duration),
    /// The call is never answered and has no effect: a dead network disk.
    Hang,
    /// The call reports success and changes nothing: a disk that lies about having written.
    Forget,
}

/// A rule: calls of this name (every call where `None`) on paths that contain this text.
#[derive(Clone, Debug)]
pub struct FileFault {
    pub call: Option<&'static str>,
    pub path_contains: String,
    pub kind: FileFaultKind,
    /// How many calls it hits before it is spent; `None` never ends.
    pub times: Option<u32>,
}

impl FileFault {
    pub fn on(call: &'static str, path_contains: &str, kind: FileFaultKind) -> Self {
        Self { call: Some(call), path_contains: path_contains.to_owned(), kind, times: None }
    }

    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn hits(&self, call: &str, path: &Path) -> bool {
        self.call.is_none_or(|c| c == call)
            && self.times != Some(0)
            && path.to_string_lossy().contains(&self.path_contains)
    }
}

/// Faults by chance, each a probability per call. The default is a healthy disk.
#[derive(Clone, Debug, Default)]
pub struct DiskChaos {
    /// Any writing call fails with `ENOSPC`.
    pub full: f64,
    /// Any reading call fails with `EIO`.
    pub unreadable: f64,
    /// Any call takes up to [`Self::slow_for`].
    pub slow: f64,
    pub slow_for: Duration,
}

pub(super) const WRITES: [&str; 6] =
    ["write_atomic", "write_in_place", "create_folder", "link", "remove_file", "remove_tree"];

/// Picks what happens to a call: the first rule that hits, else chance.
pub(super) fn choose(
    rules: &mut [FileFault],
    chaos: &DiskChaos,
    rng: &mut fastrand::Rng,
    call: &'static str,
    path: &Path,
) -> Option<FileFaultKind> {
    if let Some(rule) = rules.iter_mut().find(|rule| rule.hits(call, path)) {
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        return Some(rule.kind.clone());
    }
    let writes = WRITES.contains(&call);
    // Removing frees space: a full disk does not refuse it.
    let needs_space = writes && !call.starts_with("remove");
    if needs_space && hit(rng, chaos.full) {
        return Some(FileFaultKind::Errno(libc::ENOSPC));
    }
    if !writes && hit(rng, chaos.unreadable) {
        return Some(FileFaultKind::Errno(libc::EIO));
    }
    if hit(rng, chaos.slow) {
        let nanos = rng.u64(0..=chaos.slow_for.as_nanos() as u64);
        return Some(FileFaultKind::Slow(Duration::from_nanos(nanos)));
    }
    None
}

/// Draws only where there is a chance at all, so that switching one fault off leaves the rest of a run alone.
pub(super) fn hit(rng: &mut fastrand::Rng, chance: f64) -> bool {
    chance > 0.0 && rng.f64() < chance
}

pub(super) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

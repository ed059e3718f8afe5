//! What the machine is like: read once at start.

use std::fs;
use std::path::Path;

/// Facts about the machine that plans depend on.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub memory_bytes: i64,
    pub milli_cpus: i64,
    /// The text of the configured `resolv.conf`.
    pub resolv_conf: String,
    /// Files below `/sys/devices/system/cpu` that containers must not see.
    pub masked_paths: Vec<String>,
}

impl Machine {
    /// Reads what can be read; what cannot stays at its harmless default.
    pub fn read(resolv_conf: Option<&Path>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            memory_bytes: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|t| memory(&t))
                .unwrap_or_default(),
            milli_cpus: i64::try_from(cpus).unwrap_or(1) * 1000,
            resolv_conf: resolv_conf.map(read_or_say).unwrap_or_default(),
            masked_paths: thermal_files(),
        }
    }
}

fn read_or_say(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "cannot read the resolver configuration; pods get none of it");
        String::new()
    })
}

/// `MemTotal:       24614144 kB`
fn memory(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn thermal_files() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu") else {
        return Vec::new();
    };
    let is_cpu = |name: &str| {
        name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut paths: Vec<String> = entries
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(is_cpu))
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(memory("MemTotal:       24614144 kB\nMemFree: 1 kB\n"), Some(24_614_144 * 1024));
        assert_eq!(memory("nothing of the kind"), None);
    }
}

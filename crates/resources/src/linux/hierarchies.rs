//! Where cgroups are mounted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crablet_model::cgroup::limits::{CgroupLimits, CgroupNow};

use super::v1::V1;
use super::v2::V2;

const MOUNT: &str = "/sys/fs/cgroup";
/// Beside the hierarchies of v1, systemd may mount the one of v2, without controllers. Runtimes put containers there too.
const HYBRID_MOUNT: &str = "/sys/fs/cgroup/unified";
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// All hierarchies of the machine: many in v1, one in v2.
pub enum Hierarchies {
    V1(V1),
    V2(V2),
}

impl Hierarchies {
    pub fn find() -> Result<Self, String> {
        if is_cgroup2(MOUNT) {
            return V2::new(PathBuf::from(MOUNT)).map(Self::V2);
        }
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("cannot read `/proc/self/mountinfo`: {error}"))?;
        let mut mounts = mounts_of(&mountinfo);
        if is_cgroup2(HYBRID_MOUNT) {
            mounts.insert("unified", PathBuf::from(HYBRID_MOUNT));
        }
        V1::new(mounts).map(Self::V1)
    }

    pub fn is_unified(&self) -> bool {
        matches!(self, Self::V2(_))
    }

    pub fn has_huge_pages(&self) -> bool {
        match self {
            Self::V1(v1) => v1.has("hugetlb"),
            Self::V2(v2) => v2.needs("hugetlb"),
        }
    }

    /// Whether a cgroup is there with all that pods need. `name` is how upstream's message calls it.
    pub fn check(&self, path: &str, name: &str) -> Result<(), String> {
        match self {
            Self::V1(v1) => v1.check(path, name),
            Self::V2(v2) => v2.check(path, name),
        }
    }

    /// Makes a cgroup in every hierarchy, but systemd's own when that is done.
    pub fn make(&self, path: &str, by_systemd: bool) -> Result<(), String> {
        match self {
            Self::V1(v1) => v1.make(path, by_systemd),
            Self::V2(v2) => v2.make(path),
        }
    }

    pub fn apply(&self, path: &str, limits: &CgroupLimits) -> Result<(), String> {
        match self {
            Self::V1(v1) => v1.apply(path, limits),
            Self::V2(v2) => v2.apply(path, limits),
        }
    }

    pub fn now(&self, path: &str) -> Result<CgroupNow, String> {
        match self {
            Self::V1(v1) => v1.now(path),
            Self::V2(v2) => v2.now(path),
        }
    }

    /// Where a cgroup is or would be, each place once.
    pub fn folders(&self, path: &str) -> Vec<PathBuf> {
        let below = path.trim_start_matches('/');
        match self {
            Self::V1(v1) => v1.mounts().into_iter().map(|mount| mount.join(below)).collect(),
            Self::V2(v2) => vec![v2.mount().join(below)],
        }
    }
}

pub fn is_cgroup2(folder: &str) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|kind| kind.f_type as u64 == CGROUP2_MAGIC)
}

/// The controllers that runtimes know too. `systemd` has a hierarchy without a controller.
const CONTROLLERS: [&str; 15] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "name=systemd",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// Controllers with their mounts, from `/proc/self/mountinfo`. Where one is mounted twice the shorter path is meant.
fn mounts_of(mountinfo: &str) -> BTreeMap<&'static str, PathBuf> {
    let mut found: BTreeMap<&'static str, PathBuf> = BTreeMap::new();
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let mut back = back.split(' ');
        let (kind, options) = (back.next(), back.nth(1).unwrap_or_default());
        let Some(place) = front.split(' ').nth(4).filter(|_| kind == Some("cgroup")) else { continue };
        let place = Path::new(place);
        for option in options.split(',') {
            let Some(name) = CONTROLLERS.iter().find(|known| **known == option) else { continue };
            let name = name.strip_prefix("name=").unwrap_or(name);
            let shortest = found.entry(name).or_insert_with(|| place.to_path_buf());
            if place.as_os_str().len() < shortest.as_os_str().len() {
                *shortest = place.to_path_buf();
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_controller() {
        let found = mounts_of(
            "25 24 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             26 25 0:23 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd\n\
             27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n\
             28 25 0:25 / /mnt/a/longer/place/for/memory rw - cgroup cgroup rw,memory\n\
             29 25 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             31 25 0:27 / /sys/fs/cgroup/odd rw - cgroup cgroup rw,name=odd\n\
             nonsense",
        );
        let printed: Vec<_> =
            found.iter().map(|(name, place)| format!("{name} {}", place.display())).collect();
        assert_eq!(
            printed,
            [
                "cpu /sys/fs/cgroup/cpu,cpuacct",
                "cpuacct /sys/fs/cgroup/cpu,cpuacct",
                "memory /sys/fs/cgroup/memory",
                "systemd /sys/fs/cgroup/systemd",
            ]
        );
    }
}

//! On the cgroups of the machine that runs the tests: version 1 in earnest, below a root of the test's own; version 2
//! against folders that look like it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use super::hierarchies::is_cgroup2;
use super::v2::V2;
use super::*;

const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// A cgroup in every hierarchy that goes away with the test, with all that is in it.
struct Root {
    host: LinuxCgroups,
    cgroup: Cgroup,
}

impl Root {
    /// `None` where the machine has no cgroup v1 that we may change.
    fn new(name: &str) -> Option<Self> {
        let host = LinuxCgroups::find().ok().filter(|host| host.version() == 1);
        Self::on(host, name)
    }

    /// `None` where the machine has no cgroup v2 beside v1.
    fn unified(name: &str) -> Option<Self> {
        let v2 = is_cgroup2(UNIFIED).then(|| V2::new(UNIFIED.into()).expect("a hierarchy"));
        Self::on(v2.map(|v2| LinuxCgroups::new(Hierarchies::V2(v2), Systemd::of_machine())), name)
    }

    fn on(host: Option<LinuxCgroups>, name: &str) -> Option<Self> {
        let Some(host) = host.filter(|_| rustix::process::getuid().is_root()) else {
            eprintln!("skipped: needs root, and cgroup v1 with v2 beside it");
            return None;
        };
        let path = format!("/crablet-test-{}-{name}", std::process::id());
        host.hierarchies.make(&path, false).expect("a root for the test");
        Some(Self { host, cgroup: Cgroup::new(&path, CgroupDriver::Cgroupfs) })
    }

    fn file(&self, controller: &str, cgroup: &Cgroup, file: &str) -> String {
        let folder = Path::new("/sys/fs/cgroup").join(controller).join(cgroup.path().trim_start_matches('/'));
        files::read(&folder, file).expect("a file of the kernel's")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let folders = self.host.hierarchies.folders(&self.cgroup.path());
        let give_up = std::time::Instant::now() + REMOVAL_LIMIT;
        while removal::round(&folders, true) != Ok(Left::Nothing) && std::time::Instant::now() < give_up {
            std::thread::yield_now();
        }
    }
}

/// A process that is killed and waited for, whatever happens to the test.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("a process"))
    }

    fn enter(&self, folders: &[PathBuf]) {
        for folder in folders {
            files::write(folder, "cgroup.procs", &self.0.id().to_string())
                .map_err(String::from)
                .expect("to enter");
        }
    }

    fn was_killed(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.0.wait().expect("an exit").signal() == Some(9)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn v1_a_cgroup_is_made_in_every_hierarchy_with_its_settings() {
    let Some(root) = Root::new("made") else { return };
    let host = &root.host;
    let pod = root.cgroup.child("burstable").child("podu1");
    let missing = host.check(&pod).await.expect_err("not there yet");
    assert!(
        missing.starts_with(&format!("cgroup {} has some missing paths: /sys/fs/cgroup/", pod.quoted())),
        "{missing}"
    );

    let limits = CgroupLimits {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory: Some(64 << 20),
        pids: Some(100),
        ..CgroupLimits::default()
    };
    host.create(&pod, &limits).await.expect("a cgroup");
    host.create(&pod, &limits).await.expect("making it again is fine");
    host.check(&pod).await.expect("it is there");
    for (controller, file, expected) in [
        ("cpu", "cpu.shares", "512"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", "67108864"),
        ("pids", "pids.max", "100"),
    ] {
        assert_eq!(root.file(controller, &pod, file), expected, "{file}");
    }
    let nodes = files::read(Path::new("/sys/fs/cgroup/cpuset"), "cpuset.mems").expect("memory nodes");
    assert_eq!(root.file("cpuset", &pod, "cpuset.mems"), nodes, "a cpuset has what its parent has");
    assert!(!root.file("cpuset", &pod, "cpuset.cpus").is_empty());

    let less = CgroupLimits { cpu_shares: Some(2), cpu_quota: Some(-1), ..CgroupLimits::default() };
    host.update(&pod, &less).await.expect("an update");
    assert_eq!(root.file("cpu", &pod, "cpu.shares"), "2");
    assert_eq!(root.file("cpu", &pod, "cpu.cfs_quota_us"), "-1");
    assert_eq!(root.file("pids", &pod, "pids.max"), "100", "what is not given stays");
    assert_eq!(host.children(&root.cgroup).await, Ok(vec!["burstable".to_string()]));

    host.remove(&pod).await.expect("a removal");
    host.remove(&pod).await.expect("no cgroup is fine");
    assert_eq!(host.children(&root.cgroup.child("burstable")).await, Ok(Vec::new()));
}

#[tokio::test]
async fn v1_removal_kills_frozen_processes_of_containers_too() {
    let Some(root) = Root::new("killed") else { return };
    let host = &root.host;
    let pod = root.cgroup.child("podu1");
    let container = pod.child("container");
    host.create(&container, &CgroupLimits::default()).await.expect("a cgroup");
    let mut sleepers = [Sleeper::new(), Sleeper::new()];
    sleepers[0].enter(&host.hierarchies.folders(&container.path()));
    sleepers[1].enter(&host.hierarchies.folders(&pod.path()));
    let freezer = Path::new("/sys/fs/cgroup/freezer").join(container.path().trim_start_matches('/'));
    files::write(&freezer, "freezer.state", "FROZEN").map_err(String::from).expect("frozen");

    host.remove(&pod).await.expect("a removal");
    assert!(host.hierarchies.folders(&pod.path()).iter().all(|folder| !folder.exists()));
    assert!(sleepers.iter_mut().all(Sleeper::was_killed));
}

#[tokio::test]
async fn v2_a_real_cgroup_is_made_found_and_removed_with_what_is_frozen_in_it() {
    let before = files::read(Path::new(UNIFIED), "cgroup.subtree_control");
    let Some(root) = Root::unified("unified") else { return };
    let host = &root.host;
    let pod = root.cgroup.child("podu1");
    let container = pod.child("container");
    let limits =
        CgroupLimits { huge_pages: [("2MB".to_string(), 2 << 20)].into(), ..CgroupLimits::default() };
    host.create(&container, &CgroupLimits::default()).await.expect("a cgroup");
    host.check(&container).await.expect("with all controllers that the kernel offers");
    assert_eq!(host.children(&pod).await, Ok(vec!["container".to_string()]));
    if host.hierarchies.has_huge_pages() && huge_page_sizes().contains(&"2MB".to_string()) {
        host.update(&pod, &limits).await.expect("settings");
        assert_eq!(root.file("unified", &pod, "hugetlb.2MB.max"), "2097152");
        assert_eq!(root.file("unified", &pod, "hugetlb.2MB.rsvd.max"), "2097152");
    }

    let mut sleeper = Sleeper::new();
    let folders = host.hierarchies.folders(&container.path());
    sleeper.enter(&folders);
    files::write(&folders[0], "cgroup.freeze", "1").map_err(String::from).expect("frozen");
    host.remove(&pod).await.expect("a removal");
    assert!(sleeper.was_killed());
    assert_eq!(host.children(&root.cgroup).await, Ok(Vec::new()));

    drop(root);
    if before.is_ok_and(|enabled| enabled.is_empty()) {
        // The machine as it was: v1 could otherwise not have the controller.
        let _ = files::write(Path::new(UNIFIED), "cgroup.subtree_control", "-hugetlb");
    }
}

#[tokio::test]
async fn v1_a_refused_setting_names_the_file_and_leaves_the_cgroup() {
    let Some(root) = Root::new("refused") else { return };
    let pod = root.cgroup.child("podu1");
    let limits = CgroupLimits { cpus: Some("999999".into()), ..CgroupLimits::default() };
    root.host.create(&pod, &limits).await.expect("a cgroup without this setting");
    let refused = root.host.update(&pod, &limits).await.expect_err("no such CPU");
    assert!(refused.contains("cannot write `999999` to `/sys/fs/cgroup/cpuset/"), "{refused}");
    assert!(root.host.remove(&Cgroup::new("/", CgroupDriver::Cgroupfs)).await.is_err(), "never the root");
}

/// Folders that look like cgroup v2, as far as folders can.
fn unified(folder: &Path, path: &str, controllers: &str) {
    let place = folder.join(path);
    fs::create_dir_all(&place).expect("a folder");
    fs::write(place.join("cgroup.controllers"), format!("{controllers}\n")).expect("a file");
    for file in ["cgroup.subtree_control", "cpu.max", "cpu.weight", "cpuset.cpus", "memory.max", "pids.max"] {
        fs::write(place.join(file), "").expect("a file");
    }
}

#[tokio::test]
async fn v2_controllers_are_enabled_on_the_way_down_and_settings_are_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let offered = "cpuset cpu io memory pids";
    unified(folder.path(), "", offered);
    unified(folder.path(), "kubepods", offered);
    unified(folder.path(), "kubepods/podu1", "cpu memory");
    let v2 = V2::new(folder.path().to_path_buf()).expect("a hierarchy");
    let host = LinuxCgroups::new(Hierarchies::V2(v2), Systemd::of_machine());
    assert_eq!(host.version(), 2);
    let kubepods = Cgroup::new("/kubepods", CgroupDriver::Cgroupfs);
    let pod = kubepods.child("podu1");
    host.check(&kubepods).await.expect("all that the kernel offers, though that has no hugetlb");
    assert_eq!(
        host.check(&pod).await.expect_err("a folder is not enough"),
        r#"cgroup ["kubepods" "podu1"] has some missing controllers: cpuset, pids"#
    );

    let limits = CgroupLimits {
        cpu_shares: Some(1024),
        cpu_quota: Some(-1),
        cpu_period: Some(50_000),
        memory: Some(64 << 20),
        pids: Some(-1),
        cpus: Some("0-1".into()),
        huge_pages: [("2MB".to_string(), 0)].into(),
    };
    host.create(&pod, &limits).await.expect("a cgroup");
    host.update(&pod, &limits).await.expect("no file for huge pages, where the kernel has none");
    let read = |path: &str| fs::read_to_string(folder.path().join(path)).expect("a file");
    for (file, expected) in [
        ("cgroup.subtree_control", "+cpuset +cpu +io +memory +pids"),
        ("kubepods/cgroup.subtree_control", "+cpuset +cpu +io +memory +pids"),
        ("kubepods/podu1/cgroup.subtree_control", ""),
        ("kubepods/podu1/cpu.weight", "39"),
        ("kubepods/podu1/cpu.max", "max 50000"),
        ("kubepods/podu1/memory.max", "67108864"),
        ("kubepods/podu1/pids.max", "max"),
        ("kubepods/podu1/cpuset.cpus", "0-1"),
    ] {
        assert_eq!(read(file), expected, "{file}");
    }
}

#[tokio::test]
async fn v2_a_tree_of_folders_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("cgroup.controllers"), "cpu").expect("a file");
    fs::create_dir_all(folder.path().join("kubepods/podu1/container/inner")).expect("folders");
    let v2 = V2::new(folder.path().to_path_buf()).expect("a hierarchy");
    let host = LinuxCgroups::new(Hierarchies::V2(v2), Systemd::of_machine());
    host.remove(&Cgroup::new("/kubepods/podu1", CgroupDriver::Cgroupfs)).await.expect("a removal");
    assert!(!folder.path().join("kubepods/podu1").exists());
    assert!(folder.path().join("kubepods").exists());
}

#[test]
fn what_holds_for_a_cgroup_of_version_2_is_read_from_its_files() {
    let folder = std::env::temp_dir().join(format!("crablet-cgroup-now-{}", std::process::id()));
    let pod = folder.join("pod");
    fs::create_dir_all(&pod).expect("a folder");
    let write = |file: &str, text: &str| fs::write(pod.join(file), text).expect("a file");
    fs::write(folder.join("cgroup.controllers"), "cpu memory\n").expect("a file");
    write("cpu.max", "max 100000\n");
    write("cpu.weight", "39\n");
    write("memory.max", "max\n");
    write("memory.current", "4096\n");
    let v2 = V2::new(folder.clone()).expect("a hierarchy");
    let free = CgroupNow {
        cpu_shares: 998,
        cpu_quota: -1,
        cpu_period: 100_000,
        memory: i64::MAX,
        memory_usage: 4096,
    };
    assert_eq!(v2.now("/pod"), Ok(free));
    let limits = CgroupLimits {
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory: Some(1 << 20),
        ..CgroupLimits::default()
    };
    v2.apply("/pod", &limits).expect("settings");
    // As a plain file has no kernel behind it, what was written is what there is.
    let trimmed = |file: &str| fs::read_to_string(pod.join(file)).expect("a file");
    assert!(trimmed("cpu.max").starts_with("50000 100000") && trimmed("memory.max").starts_with("1048576"));
    write("cpu.max", "nonsense\n");
    assert!(v2.now("/pod").is_err_and(|error| error.contains("nonsense")));
    fs::remove_dir_all(&folder).expect("the folder goes");
}

#[tokio::test]
async fn what_holds_for_a_cgroup_of_version_1_is_read_from_the_kernel() {
    let Some(root) = Root::new("now") else { return };
    let limits = CgroupLimits {
        cpu_shares: Some(512),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        memory: Some(64 << 20),
        ..CgroupLimits::default()
    };
    root.host.update(&root.cgroup, &limits).await.expect("settings");
    let now = root.host.now(&root.cgroup).await.expect("what holds");
    let expected = CgroupNow {
        cpu_shares: 512,
        cpu_quota: 20_000,
        cpu_period: 100_000,
        memory: 64 << 20,
        memory_usage: now.memory_usage,
    };
    assert_eq!(now, expected);
}

//! Local volumes on a real machine: folders, a disk with a file system, a disk as a device.

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{Agent, UID, claim_volume, pod_with};
use crablet_model::PodRef;
use crablet_volumes::LinuxVolumeHost;
use serde_json::json;

/// A root folder that leaves no mounts and no loop devices behind, whatever happens.
struct Root(tempfile::TempDir);

impl Root {
    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        paths.filter(|path| path.starts_with(self.path())).collect()
    }

    /// Loop devices on files below the root.
    fn loops(&self) -> Vec<String> {
        let listed = Command::new("losetup").args(["-l", "-n", "-O", "NAME,BACK-FILE"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let root = self.path().display().to_string();
        let below = listed.lines().filter(|line| line.contains(&root));
        below.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    }

    fn disk(&self, name: &str) -> String {
        let file = self.path().join(name);
        File::create(&file).unwrap().set_len(32 << 20).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Those that lie on others first.
        for device in self.loops().iter().rev() {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
        for path in self.mounts().iter().rev() {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
        for device in self.loops() {
            let _ = Command::new("losetup").args(["-d", &device]).status();
        }
    }
}

#[tokio::test]
async fn folders_disks_and_devices_come_and_go() {
    let root = Root(tempfile::tempdir().unwrap());
    let (disk, raw) = (root.disk("disk.img"), root.disk("raw.img"));
    let data = root.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("old"), "old").unwrap();
    let start = || {
        let agent = Agent::start(&root.path(), Arc::new(LinuxVolumeHost::default()));
        agent.put_claim("folder", json!({ "local": { "path": data }, "mountOptions": ["noexec"] }));
        agent.put_claim("disk", json!({ "local": { "path": disk } }));
        agent.put_claim("raw", json!({ "local": { "path": raw }, "volumeMode": "Block" }));
        agent
    };
    let agent = start();
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/{name}") });
    let container = json!([{ "name": "c", "volumeMounts": [mount("folder"), mount("disk")],
        "volumeDevices": [{ "name": "raw", "devicePath": "/dev/x" }] }]);
    let spec = json!({ "containers": container, "securityContext": { "fsGroup": 2000 } });
    let pod = pod_with(json!([claim_volume("folder"), claim_volume("disk"), claim_volume("raw")]), spec);
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    let at = |volume: &str| Path::new(&mounted[volume].host_path);
    assert_eq!(fs::read_to_string(at("folder").join("old")).unwrap(), "old");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(&*at("folder").to_string_lossy())).unwrap();
    assert!(line.contains("noexec"), "{line}");
    fs::write(at("disk").join("word"), "on disk").unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(at("disk")).unwrap().gid(), 2000);
    assert_eq!(fs::canonicalize(at("raw")).unwrap(), Path::new(&raw));
    // Two of ours, and the one that holds the device.
    assert_eq!(root.loops().len(), 3);
    let stats = agent.volumes.stats(&pod).await;
    let of_disk = stats.iter().find(|stats| stats.name == "disk").unwrap();
    assert!((1..32 << 20).contains(&of_disk.usage.capacity), "{:?}", of_disk.usage);

    // The next life finds all of it, and takes it away; what is on the volumes stays.
    drop(agent);
    let agent = start();
    agent.volumes.set_up(&pod).await.unwrap();
    assert_eq!(root.loops().len(), 3);
    assert_eq!(root.mounts().len(), 4, "folder, disk twice, device: {:?}", root.mounts());
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert_eq!(root.mounts(), [""; 0].map(PathBuf::from));
    assert_eq!(root.loops().len(), 2);
    assert_eq!(fs::read_to_string(data.join("old")).unwrap(), "old");
    let left = root.path().join("pods").join(UID);
    let left: Vec<_> = fs::read_dir(left).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["plugins"]);

    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    let word = Path::new(&mounted["disk"].host_path).join("word");
    assert_eq!(fs::read_to_string(word).unwrap(), "on disk");
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
}

//! On this machine, with real mounts. Needs root, as the agent does.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Agent, UID, pod_with};
use crablet_apiserver::ObjectKind;
use crablet_model::PodRef;
use crablet_volumes::{LinuxVolumeHost, VolumeHost};
use serde_json::json;

/// A root folder that leaves no mounts behind, whatever happens.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        paths.filter(|path| path.starts_with(self.path())).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for path in self.mounts().iter().rev() {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn access(path: impl AsRef<Path>) -> (u32, u32, u32) {
    let found = fs::metadata(path).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid())
}

#[tokio::test]
async fn a_pod_lives_and_goes() {
    let root = Root::new();
    let agent = Agent::start(&root.path(), Arc::new(LinuxVolumeHost::default()));
    agent.objects.put(ObjectKind::Secret, "s", Some(json!({ "data": { "key": "c2VjcmV0" } })));
    agent.objects.config_map("m", json!({ "conf": "1" }));
    let sources = json!([{ "serviceAccountToken": { "path": "token" } }, { "configMap": { "name": "m" } }]);
    let volumes = json!([
        { "name": "disk", "emptyDir": {} },
        { "name": "mem", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        { "name": "map", "configMap": { "name": "m", "defaultMode": 0o644 } },
        { "name": "hush", "secret": { "secretName": "s", "defaultMode": 0o400 } },
        { "name": "api", "projected": { "defaultMode": 0o644, "sources": sources } },
    ]);
    let pod = pod_with(volumes, json!({ "securityContext": { "fsGroup": 2000, "runAsUser": 1000 } }));
    let id = PodRef::of(&pod);
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    let at = |volume: &str, file: &str| Path::new(&mounted[volume].host_path).join(file);

    assert_eq!(access(at("disk", "")), (0o2777, 0, 2000));
    assert_eq!(access(at("mem", "")), (0o3777, 0, 2000));
    assert_eq!(rustix::fs::statfs(at("mem", "")).unwrap().f_blocks * 4096, 1 << 20);
    assert_eq!(fs::read_to_string(at("map", "conf")).unwrap(), "1");
    assert_eq!(access(at("map", "conf")), (0o644, 0, 2000));
    assert_eq!(fs::read_to_string(at("hush", "key")).unwrap(), "secret");
    assert_eq!(access(at("hush", "key")), (0o440, 0, 2000));
    assert_eq!(access(at("api", "token")), (0o640, 1000, 2000));
    assert_eq!(root.mounts().len(), 3);
    assert_eq!(access(root.path().join("pods").join(UID).join("volumes")).0, 0o750);

    // A container plants links; the sub path and the removal pass over them.
    let precious = root.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "x").unwrap();
    symlink(&precious, at("disk", "link")).unwrap();
    symlink(&precious, at("mem", "link")).unwrap();
    agent.volumes.sub_path(&id, "c", 1, "disk", "link").await.unwrap_err();
    let bound = agent.volumes.sub_path(&id, "c", 0, "disk", "a/b").await.unwrap();
    fs::write(at("disk", "a/b/file"), "inside").unwrap();
    assert_eq!(fs::read_to_string(Path::new(&bound).join("file")).unwrap(), "inside");
    let key = agent.volumes.sub_path(&id, "c", 2, "map", "conf").await.unwrap();
    assert_eq!(fs::read_to_string(key).unwrap(), "1");

    // The next life knows nothing but the disk.
    drop(agent);
    let agent = Agent::start(&root.path(), Arc::new(LinuxVolumeHost::default()));
    agent.volumes.tear_down(&id).await.unwrap();
    assert_eq!(root.mounts(), [""; 0].map(PathBuf::from));
    let left: Vec<_> = fs::read_dir(root.path().join("pods").join(UID)).unwrap().collect();
    assert_eq!(left.len(), 1, "only `plugins` is left: {left:?}");
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "x");
}

#[tokio::test]
async fn a_part_of_a_path_that_is_not_there_is_told_by_the_path() {
    let root = Root::new();
    let agent = Agent::start(&root.path(), Arc::new(LinuxVolumeHost::default()));
    let path = root.path().join("nope").display().to_string();
    let pod = pod_with(json!([{ "name": "v", "hostPath": { "path": path } }]), json!({}));
    agent.volumes.set_up(&pod).await.unwrap();
    let error = agent.volumes.sub_path(&PodRef::of(&pod), "c", 0, "v", "a").await.unwrap_err();
    assert_eq!(error, format!("stat {path}: no such file or directory"));
}

#[tokio::test]
async fn somebody_elses_mount_inside_a_volume_is_never_emptied() {
    let root = Root::new();
    let host = Arc::new(LinuxVolumeHost::default());
    let agent = Agent::start(&root.path(), host.clone());
    let pod = pod_with(json!([{ "name": "disk", "emptyDir": {} }]), json!({}));
    let mounted = agent.volumes.set_up(&pod).await.unwrap();
    let inner = Path::new(&mounted["disk"].host_path).join("inner");
    let precious = root.path().join("precious");
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "x").unwrap();
    rustix::mount::mount_bind(&precious, &inner).unwrap();
    let error = agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap_err();
    assert!(error.contains("is a mount point"), "{error}");
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "x");
    host.unmount(&inner, false).await.unwrap();
    agent.volumes.tear_down(&PodRef::of(&pod)).await.unwrap();
    assert!(!inner.exists());
}

//! Where CSI volumes lie, equal to upstream's, so that either agent can take over the other's.

use std::path::{Path, PathBuf};

use crablet_model::PodUid;
use ring::digest::{SHA256, digest};

/// As a folder of a pod has it.
pub const FOLDER: &str = "kubernetes.io~csi";
const PLUGIN: &str = "kubernetes.io/csi";
pub const DATA_FILE: &str = "vol_data.json";
pub const MOUNT: &str = "mount";
pub const GLOBAL_MOUNT: &str = "globalmount";
const DEVICES: &str = "volumeDevices";

#[derive(Clone, Debug)]
pub struct Places {
    root: PathBuf,
}

impl Places {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// Holds the target and the file about it.
    pub fn pod_volume(&self, uid: &PodUid, spec_name: &str) -> PathBuf {
        self.pod_volumes(uid).join(escaped(spec_name))
    }

    pub fn pod_volumes(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str()).join("volumes").join(FOLDER)
    }

    /// One folder per driver, and `volumeDevices`.
    pub fn plugin(&self) -> PathBuf {
        self.root.join("plugins").join(PLUGIN)
    }

    /// One folder per staged volume.
    pub fn staged(&self, driver: &str) -> PathBuf {
        self.plugin().join(driver)
    }

    /// What is staged is mounted here; the file about it lies beside.
    pub fn global_mount(&self, driver: &str, handle: &str) -> PathBuf {
        self.staged(driver).join(sha256(&[handle])).join(GLOBAL_MOUNT)
    }

    pub fn devices(&self) -> PathBuf {
        self.plugin().join(DEVICES)
    }

    pub fn device_staging(&self, spec_name: &str) -> PathBuf {
        self.devices().join("staging").join(spec_name)
    }

    pub fn device_publish(&self, spec_name: &str) -> PathBuf {
        self.devices().join("publish").join(spec_name)
    }

    /// Holds `dev`, the global map, and `data`.
    pub fn device(&self, spec_name: &str) -> PathBuf {
        self.devices().join(escaped(spec_name))
    }

    pub fn device_map(&self, spec_name: &str) -> PathBuf {
        self.device(spec_name).join("dev")
    }

    pub fn device_data(&self, spec_name: &str) -> PathBuf {
        self.device(spec_name).join("data")
    }
}

fn escaped(name: &str) -> String {
    name.replace('/', "~")
}

/// Of the texts one after another, in hex.
pub fn sha256(texts: &[&str]) -> String {
    let hash = digest(&SHA256, texts.concat().as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The VolumeAttachment of a volume on a node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&[handle, driver, node]))
}

/// The handle of a volume that lives and dies with its pod.
pub fn inline_handle(uid: &PodUid, volume: &str) -> String {
    format!("csi-{}", sha256(&[uid.as_str(), volume]))
}

/// As `volumesAttached` and `volumesInUse` of the Node have it.
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("{PLUGIN}/{driver}^{handle}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_equal_upstreams() {
        // `printf vol-1 | sha256sum`, as upstream names the folder.
        assert_eq!(
            Places::new(Path::new("/r")).global_mount("d.io", "vol-1"),
            Path::new(
                "/r/plugins/kubernetes.io/csi/d.io/\
                 d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49/globalmount"
            )
        );
        assert_eq!(
            attachment_name("vol-1", "d.io", "n1"),
            "csi-40442d846bb36955ab6e193f0f927e71c846efef02079a519a1ea8cd4a8c18f3"
        );
        assert_eq!(unique_name("d.io", "vol-1"), "kubernetes.io/csi/d.io^vol-1");
    }
}

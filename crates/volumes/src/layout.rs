//! Where a pod's volumes lie. Upstream's names: either agent finds the other's.

use std::path::{Path, PathBuf};

use crablet_model::PodUid;

pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// The folder of one pod.
#[derive(Clone, Debug)]
pub struct PodLayout {
    folder: PathBuf,
}

impl PodLayout {
    pub fn new(root: &Path, uid: &PodUid) -> Self {
        Self { folder: root.join("pods").join(uid.as_str()) }
    }

    pub fn pod(&self) -> &Path {
        &self.folder
    }

    pub fn volumes(&self) -> PathBuf {
        self.folder.join("volumes")
    }

    /// `plugin` is the escaped name: `kubernetes.io~secret`.
    pub fn volume(&self, plugin: &str, name: &str) -> PathBuf {
        self.volumes().join(plugin).join(name)
    }

    pub fn plugins(&self) -> PathBuf {
        self.folder.join("plugins")
    }

    /// Where the markers of empty folders lie.
    pub fn markers(&self) -> PathBuf {
        self.plugins().join(EMPTY_DIR)
    }

    /// Links to the devices that containers get.
    pub fn devices(&self) -> PathBuf {
        self.folder.join("volumeDevices")
    }

    pub fn device(&self, plugin: &str, name: &str) -> PathBuf {
        self.devices().join(plugin).join(name)
    }

    pub fn sub_paths(&self) -> PathBuf {
        self.folder.join("volume-subpaths")
    }

    pub fn sub_path(&self, volume: &str, container: &str, index: usize) -> PathBuf {
        self.sub_paths().join(volume).join(container).join(index.to_string())
    }
}

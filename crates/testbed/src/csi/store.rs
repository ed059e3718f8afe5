//! The driver's volumes: a folder each, with what is known of it and its content.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{packages, sha256};

const DEFAULT_BYTES: i64 = 1 << 20;

pub struct Store {
    volumes: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub bytes: i64,
    /// As large as the node has made it.
    pub node_bytes: i64,
    /// Goes with its pod.
    pub ephemeral: bool,
    /// Where it is published for a single writer, who shares it with nobody.
    #[serde(default)]
    pub single_target: Option<PathBuf>,
}

impl Store {
    pub fn new(home: &Path) -> Self {
        Self { volumes: home.join("volumes") }
    }

    pub fn create(&self, name: &str, bytes: i64) -> Result<Volume> {
        let id = format!("vol-{}", &sha256::hex(name.as_bytes())[..24]);
        self.create_as(&id, name, bytes, false)
    }

    pub fn create_as(&self, id: &str, name: &str, bytes: i64, ephemeral: bool) -> Result<Volume> {
        if let Some(volume) = self.find(id)? {
            return Ok(volume);
        }
        let bytes = if bytes > 0 { bytes } else { DEFAULT_BYTES };
        let volume = Volume {
            id: id.to_owned(),
            name: name.to_owned(),
            bytes,
            node_bytes: bytes,
            ephemeral,
            single_target: None,
        };
        fs::create_dir_all(self.content(id))?;
        self.keep(&volume)?;
        Ok(volume)
    }

    pub fn keep(&self, volume: &Volume) -> Result<()> {
        let file = self.volumes.join(&volume.id).join("volume.json");
        let half = file.with_extension("new");
        fs::write(&half, serde_json::to_vec(volume)?)?;
        fs::rename(half, file)?;
        Ok(())
    }

    pub fn find(&self, id: &str) -> Result<Option<Volume>> {
        // A handle is a name and no path.
        if id.is_empty() || id.contains('/') || id.starts_with('.') {
            return Ok(None);
        }
        match fs::read(self.volumes.join(id).join("volume.json")) {
            Ok(json) => Ok(Some(serde_json::from_slice(&json)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn remove(&self, id: &str) -> Result<()> {
        if self.find(id)?.is_some() {
            self.let_go_of_device(id)?;
            fs::remove_dir_all(self.volumes.join(id))?;
        }
        Ok(())
    }

    pub fn content(&self, id: &str) -> PathBuf {
        self.volumes.join(id).join("content")
    }

    pub fn make_sick(&self, id: &str, why: &str) -> Result<()> {
        fs::write(self.volumes.join(id).join("sick"), why)?;
        Ok(())
    }

    pub fn sickness(&self, id: &str) -> Option<String> {
        fs::read_to_string(self.volumes.join(id).join("sick")).ok()
    }

    /// The loop device over the volume's file, made if there is none.
    pub fn device(&self, volume: &Volume) -> Result<PathBuf> {
        let image = self.image(&volume.id);
        if let Some(device) = device_of(&image)? {
            return Ok(device);
        }
        let file = fs::File::options().create(true).append(true).open(&image)?;
        file.set_len(u64::try_from(volume.bytes.max(DEFAULT_BYTES))?)?;
        let made = losetup(&["--find", "--show", &image.display().to_string()])?;
        Ok(PathBuf::from(made.trim()))
    }

    pub fn let_go_of_device(&self, id: &str) -> Result<()> {
        while let Some(device) = device_of(&self.image(id))? {
            losetup(&["--detach", &device.display().to_string()])?;
            // A device in use goes when its last user does.
            if device_of(&self.image(id))?.as_ref() == Some(&device) {
                break;
            }
        }
        Ok(())
    }

    pub fn let_go_of_devices(&self) -> Result<()> {
        let Ok(volumes) = fs::read_dir(&self.volumes) else { return Ok(()) };
        for volume in volumes.flatten() {
            self.let_go_of_device(&volume.file_name().to_string_lossy())?;
        }
        Ok(())
    }

    fn image(&self, id: &str) -> PathBuf {
        self.volumes.join(id).join("disk.img")
    }
}

fn device_of(image: &Path) -> Result<Option<PathBuf>> {
    if !image.exists() {
        return Ok(None);
    }
    let listed =
        losetup(&["--noheadings", "--output", "NAME", "--associated", &image.display().to_string()])?;
    Ok(listed.lines().next().map(|line| PathBuf::from(line.trim())))
}

fn losetup(arguments: &[&str]) -> Result<String> {
    let program = packages::program("losetup").unwrap_or_else(|| "losetup".into());
    let done = Command::new(program).args(arguments).output().context("cannot run `losetup`")?;
    if !done.status.success() {
        bail!("`losetup {}`: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

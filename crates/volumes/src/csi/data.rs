//! `vol_data.json`: what has to be known of a volume to take it down, written before the driver is called.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::places::DATA_FILE;
use crate::port::{VolumeHost, told};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifecycle {
    Persistent,
    Ephemeral,
}

impl Lifecycle {
    pub fn name(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

/// In the order and with the names of upstream's keys (v1.36): its encoder sorts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeData {
    #[serde(rename = "attachmentID", skip_serializing_if = "Option::is_none")]
    pub attachment_id: Option<String>,
    #[serde(rename = "driverName")]
    pub driver: String,
    #[serde(rename = "nodeName", skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The SELinux label that it is mounted with, if any.
    #[serde(rename = "seLinuxMountContext", skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(rename = "specVolID", skip_serializing_if = "Option::is_none")]
    pub spec_name: Option<String>,
    #[serde(rename = "volumeHandle")]
    pub handle: String,
    #[serde(rename = "volumeLifecycleMode", skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// What was found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// Half a file, of an agent that died while it wrote: the driver was not called yet.
    Broken(String),
    Data(VolumeData),
}

pub async fn read(host: &dyn VolumeHost, folder: &Path) -> Result<Found, String> {
    let file = folder.join(DATA_FILE);
    let content = host.read_file(&file).await.map_err(|error| told("open", &file, &error))?;
    let Some(content) = content else { return Ok(Found::Nothing) };
    Ok(match serde_json::from_slice::<VolumeData>(&content) {
        Ok(data) if !data.driver.is_empty() && !data.handle.is_empty() => Found::Data(data),
        Ok(_) => Found::Broken("it names no driver or no volume".to_owned()),
        Err(error) => Found::Broken(error.to_string()),
    })
}

/// Leaves alone what is there already, so that a death meanwhile harms nothing.
pub async fn write(host: &dyn VolumeHost, folder: &Path, data: &VolumeData) -> Result<(), String> {
    let same = matches!(read(host, folder).await, Ok(Found::Data(there)) if there == *data);
    if same {
        return Ok(());
    }
    let file = folder.join(DATA_FILE);
    let mut content = serde_json::to_vec(data).map_err(|error| error.to_string())?;
    content.push(b'\n');
    let failed = |error| format!("failed to save volume data file {}", told("open", &file, &error));
    host.write_file(&file, &content).await.map_err(failed)
}

pub async fn remove(host: &dyn VolumeHost, folder: &Path) -> Result<(), String> {
    let file = folder.join(DATA_FILE);
    host.remove_file(&file).await.map_err(|error| told("remove", &file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_upstreams() {
        let data = VolumeData {
            attachment_id: Some("csi-1".to_owned()),
            driver: "d.io".to_owned(),
            node: Some("n1".to_owned()),
            context: Some("u:r:t:s0".to_owned()),
            spec_name: Some("pv".to_owned()),
            handle: "vol".to_owned(),
            lifecycle: Some(Lifecycle::Persistent),
        };
        let json = r#"{"attachmentID":"csi-1","driverName":"d.io","nodeName":"n1","seLinuxMountContext":"u:r:t:s0","specVolID":"pv","volumeHandle":"vol","volumeLifecycleMode":"Persistent"}"#;
        assert_eq!(serde_json::to_string(&data).unwrap(), json);
        assert_eq!(serde_json::from_str::<VolumeData>(json).unwrap(), data);
    }
}

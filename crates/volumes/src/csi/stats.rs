//! How full a volume is, as its driver tells.

use crablet_model::PodUid;
use crablet_protos::csi::volume_usage::Unit;

use super::Csi;
use super::data::{self, Found};
use super::places::MOUNT;

/// Zero where the driver says nothing, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiStats {
    pub capacity: i64,
    pub used: i64,
    pub available: i64,
    pub inodes: i64,
    pub inodes_used: i64,
    pub inodes_free: i64,
    /// Whether the volume is unwell and why, where the driver can tell.
    pub condition: Option<(bool, String)>,
}

pub(super) async fn of(csi: &Csi, uid: &PodUid, spec_name: &str) -> Result<Option<CsiStats>, String> {
    let folder = csi.places.pod_volume(uid, spec_name);
    let Found::Data(data) = data::read(&*csi.host, &folder).await? else { return Ok(None) };
    let client = csi.drivers.client(&data.driver)?;
    let abilities = client.capabilities().await.map_err(|error| error.to_string())?;
    if !abilities.stats {
        return Ok(None);
    }
    let answer = client.stats(&data.handle, &folder.join(MOUNT)).await.map_err(|error| error.to_string())?;
    let tells_health = csi.volume_health && abilities.condition;
    if !tells_health && answer.usage.is_empty() {
        return Err("failed to get usage from response. usage is nil".to_owned());
    }
    let mut stats = CsiStats::default();
    for usage in &answer.usage {
        match usage.unit() {
            Unit::Bytes => {
                (stats.capacity, stats.used, stats.available) = (usage.total, usage.used, usage.available);
            }
            Unit::Inodes => {
                (stats.inodes, stats.inodes_used, stats.inodes_free) =
                    (usage.total, usage.used, usage.available);
            }
            Unit::Unknown => {}
        }
    }
    if tells_health {
        let condition = answer.volume_condition.unwrap_or_default();
        stats.condition = Some((condition.abnormal, condition.message));
    }
    Ok(Some(stats))
}

//! How many volumes a driver can have on this node may change: drivers whose CSIDriver has
//! `nodeAllocatableUpdatePeriodSeconds` are asked again at that pace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::Csi;
use super::places::attachment_name;

/// What an attacher tells of a node that can have no more, as a code of gRPC.
const RESOURCE_EXHAUSTED: i32 = 8;

pub(super) async fn run(csi: Arc<Csi>) {
    let mut drivers = csi.drivers.changes();
    let mut objects = csi.objects.changes();
    let mut asked: BTreeMap<String, (Duration, Instant)> = BTreeMap::new();
    loop {
        let periods = periods(&csi);
        asked.retain(|driver, (period, _)| periods.get(driver) == Some(period));
        for (driver, period) in periods {
            asked.entry(driver).or_insert_with(|| (period, Instant::now() + period));
        }
        let next = asked.values().map(|(_, at)| *at).min();
        // Every arm may be dropped: a watch keeps what it has not given out.
        tokio::select! {
            biased;
            Ok(()) = drivers.changed() => {}
            Ok(()) = objects.changed() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => ask(&csi, &mut asked).await,
        }
    }
}

pub(super) async fn is_exhausted(csi: &Csi, driver: &str, handle: &str) -> bool {
    let spec = csi.objects.known_driver(driver);
    if spec.and_then(|spec| spec.node_allocatable_update_period_seconds).is_none_or(|period| period <= 0) {
        return false;
    }
    let name = attachment_name(handle, driver, &csi.node_name);
    let attachment = match csi.objects.attachment(&name).await {
        Ok(attachment) => attachment,
        Err(err) => {
            error!(attachmentName = name, err, "Failed to get volume attachment");
            return false;
        }
    };
    let code = attachment.status.and_then(|status| status.attach_error?.error_code);
    if code != Some(RESOURCE_EXHAUSTED) {
        return false;
    }
    if let Err(err) = csi.drivers.refresh(driver).await {
        error!(driver, err, "Failed to update CSIDriver");
    }
    true
}

fn periods(csi: &Csi) -> BTreeMap<String, Duration> {
    let period = |name: String| {
        let seconds = csi.objects.known_driver(&name)?.node_allocatable_update_period_seconds?;
        let period = Duration::from_secs(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?);
        Some((name, period))
    };
    csi.drivers.names().into_iter().filter_map(period).collect()
}

async fn ask(csi: &Csi, asked: &mut BTreeMap<String, (Duration, Instant)>) {
    let now = Instant::now();
    for (driver, (period, at)) in asked.iter_mut().filter(|(_, (_, at))| *at <= now) {
        *at = now + *period;
        if let Err(err) = csi.drivers.refresh(driver).await {
            error!(driver, err, "Failed to update CSIDriver");
        }
    }
}

//! How many volumes a driver can have on this node may change: drivers whose CSIDriver has
//! `nodeAllocatableUpdatePeriodSeconds` are asked again at that pace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::Csi;

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

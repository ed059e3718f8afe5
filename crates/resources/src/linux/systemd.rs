//! Slices, asked of systemd over D-Bus.
//!
//! The connection is opened when it is first needed, and again after it broke. A job is waited for by its `JobRemoved`
//! signal, which systemd sends only to those who subscribed.

mod properties;

use std::time::Duration;

use crablet_model::cgroup::Cgroup;
use crablet_model::cgroup::limits::CgroupLimits;
use futures_util::StreamExt;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::{debug, warn};
use zbus::{DynamicType, OwnedObjectPath, Proxy, Variant};

/// How long systemd may take for a job, as in upstream's library.
const JOB_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

type Property = (&'static str, Variant<'static>);
type AuxiliaryUnit = (&'static str, Vec<Property>);

pub struct Systemd {
    /// Where the bus is; the machine's own when not given.
    #[cfg(test)]
    socket: Option<std::path::PathBuf>,
    link: Mutex<Option<Link>>,
}

#[derive(Clone)]
struct Link {
    manager: Proxy<'static>,
    /// The number in front of systemd's version; 0 when it says nothing that we understand.
    version: u32,
}

impl Systemd {
    pub fn of_machine() -> Self {
        Self {
            #[cfg(test)]
            socket: None,
            link: Mutex::default(),
        }
    }

    /// Makes the cgroup's slice. That it is there is fine.
    pub async fn start(&self, cgroup: &Cgroup, unified: bool) -> Result<(), String> {
        let unit = cgroup.unit();
        let properties = properties::of_new_slice(cgroup, unified);
        let ask = (unit.as_str(), "replace", properties, Vec::<AuxiliaryUnit>::new());
        match self.job("StartTransientUnit", &ask).await {
            Ok(result) if result == "done" => Ok(()),
            Ok(result) => {
                self.reset_failed(&unit).await;
                Err(format!("error creating systemd unit `{unit}`: got `{result}`"))
            }
            Err(Failed::Call(error)) if is_method_error(&error, "org.freedesktop.systemd1.UnitExists") => {
                Ok(())
            }
            Err(Failed::Late) => {
                self.reset_failed(&unit).await;
                Err(format!("Timeout waiting for systemd to create {unit}"))
            }
            Err(failed) => Err(format!("unable to start unit \"{unit}\": {failed}")),
        }
    }

    /// Gives the slice its settings. Quotas are rounded up to what systemd can say, so that the files get the same.
    pub async fn set(&self, cgroup: &Cgroup, limits: &mut CgroupLimits, unified: bool) -> Result<(), String> {
        let unit = cgroup.unit();
        let link =
            self.link().await.map_err(|failed| format!("cannot set up the unit `{unit}`: {failed}"))?;
        let properties = properties::of_limits(limits, unified, link.version);
        if properties.is_empty() {
            return Ok(());
        }
        let set = self.call("SetUnitProperties", &(unit.as_str(), true, properties)).await;
        set.map_err(|failed| format!("cannot set up the unit `{unit}`: {failed}"))
    }

    /// Stops the slice, and lets systemd forget it if it failed. That there is none is fine.
    pub async fn stop(&self, cgroup: &Cgroup) -> Result<(), String> {
        let unit = cgroup.unit();
        match self.job("StopUnit", &(unit.as_str(), "replace")).await {
            Ok(result) if result != "done" => {
                warn!(unit, result, "systemd did not remove a unit, continuing");
            }
            Ok(_) => {}
            Err(Failed::Late) => return Err(format!("Timed out while waiting for systemd to remove {unit}")),
            Err(Failed::Call(error)) if is_method_error(&error, "org.freedesktop.systemd1.NoSuchUnit") => {}
            Err(failed) => return Err(failed.to_string()),
        }
        self.reset_failed(&unit).await;
        Ok(())
    }

    async fn reset_failed(&self, unit: &str) {
        // Only a failed unit can be reset, and most have not failed.
        if let Err(failed) = self.call("ResetFailedUnit", &(unit,)).await {
            debug!(unit, %failed, "A unit was not reset");
        }
    }

    /// Calls a method that begins a job, and waits for the job's result. Begins again when the connection turned out to
    /// be broken: both methods may be called twice.
    async fn job<B>(&self, method: &'static str, ask: &B) -> Result<String, Failed>
    where
        B: serde::Serialize + DynamicType + Sync,
    {
        let first = self.try_job(method, ask).await;
        if matches!(first, Err(Failed::Closed(_))) { self.try_job(method, ask).await } else { first }
    }

    async fn try_job<B>(&self, method: &'static str, ask: &B) -> Result<String, Failed>
    where
        B: serde::Serialize + DynamicType + Sync,
    {
        let work = async {
            let manager = self.link().await?.manager;
            // Before the call: a short job may be over before its answer is read.
            let mut removed = manager.receive_signal("JobRemoved").await?;
            let job: OwnedObjectPath = manager.call(method, ask).await?;
            while let Some(signal) = removed.next().await {
                let (_, ended, _, result): (u32, OwnedObjectPath, String, String) =
                    signal.body().deserialize()?;
                if ended == job {
                    return Ok(result);
                }
            }
            Err(Failed::Closed("it was closed".to_string()))
        };
        self.within(JOB_LIMIT, work).await
    }

    /// Calls a method, once more when the connection turned out to be broken.
    async fn call<B>(&self, method: &'static str, ask: &B) -> Result<(), Failed>
    where
        B: serde::Serialize + DynamicType + Sync,
    {
        let first = self.try_call(method, ask).await;
        if matches!(first, Err(Failed::Closed(_))) { self.try_call(method, ask).await } else { first }
    }

    async fn try_call<B>(&self, method: &'static str, ask: &B) -> Result<(), Failed>
    where
        B: serde::Serialize + DynamicType + Sync,
    {
        let work = async { Ok(self.link().await?.manager.call(method, ask).await?) };
        self.within(CALL_LIMIT, work).await
    }

    /// Forgets a connection that is closed, or on which nothing comes back.
    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let done = timeout(limit, work).await.unwrap_or(Err(Failed::Late));
        if matches!(done, Err(Failed::Closed(_) | Failed::Late)) {
            *self.link.lock().await = None;
        }
        done
    }

    async fn link(&self) -> Result<Link, Failed> {
        let mut link = self.link.lock().await;
        if let Some(open) = link.as_ref() {
            return Ok(open.clone());
        }
        let open = timeout(CALL_LIMIT, self.open()).await.map_err(|_| Failed::Late)??;
        Ok(link.insert(open).clone())
    }

    async fn open(&self) -> zbus::Result<Link> {
        let connection = self.connect().await?;
        let manager = zbus::proxy::Builder::<Proxy<'static>>::new(&connection)
            .destination("org.freedesktop.systemd1")
            .path("/org/freedesktop/systemd1")
            .interface("org.freedesktop.systemd1.Manager")
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await?;
        manager.call::<_, _, ()>("Subscribe", &()).await?;
        let version: String = manager.get_property("Version").await.unwrap_or_default();
        Ok(Link { manager, version: version_number(&version) })
    }

    async fn connect(&self) -> zbus::Result<zbus::Connection> {
        #[cfg(test)]
        if let Some(socket) = &self.socket {
            let stream = std::os::unix::net::UnixStream::connect(socket)?;
            return zbus::connection::Builder::unix_stream(stream).p2p().build().await;
        }
        zbus::Connection::system().await
    }
}

#[derive(Debug)]
enum Failed {
    Call(zbus::Error),
    /// There is no connection, or no more.
    Closed(String),
    Late,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Closed(why) => write!(
                f,
                "no connection to systemd: {why}; without systemd, set `cgroupDriver: cgroupfs` here and in the \
                 container runtime"
            ),
            Self::Late => f.write_str("systemd did not answer in time"),
        }
    }
}

impl From<zbus::Error> for Failed {
    fn from(error: zbus::Error) -> Self {
        match error {
            zbus::Error::InputOutput(error) => Self::Closed(error.to_string()),
            error => Self::Call(error),
        }
    }
}

fn is_method_error(error: &zbus::Error, expected: &str) -> bool {
    matches!(error, zbus::Error::MethodError(name, ..) if name.as_str() == expected)
}

/// `v245.4-1.fc32`, `245`: 245.
fn version_number(text: &str) -> u32 {
    let digits = text.trim_start_matches(['"', 'v']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;

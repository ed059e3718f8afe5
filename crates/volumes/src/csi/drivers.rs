//! The drivers that have registered on this node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;
use tracing::{error, info};

use super::client::{DriverClient, NodeInfo};

/// Where the cluster is told of drivers: the Node and its CSINode.
#[async_trait]
pub trait CsiNodeRecord: Send + Sync + 'static {
    /// Puts the driver on the Node (its id, topology labels) and on the CSINode.
    async fn install(&self, driver: &str, info: &NodeInfo) -> Result<(), String>;

    /// Only the CSINode: how many volumes the driver can have here may change.
    async fn update(&self, driver: &str, info: &NodeInfo) -> Result<(), String>;

    async fn uninstall(&self, driver: &str) -> Result<(), String>;
}

/// Major, minor and whatever follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(Vec<u64>);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim().strip_prefix('v').unwrap_or(text.trim());
        let end = numbers.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(numbers.len());
        let parts: Option<Vec<u64>> = numbers[..end].split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() >= 2).map(Self)
    }

    fn text(&self) -> String {
        self.0.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
    }
}

#[derive(Clone)]
struct Registered {
    endpoint: PathBuf,
    version: Version,
}

pub struct Drivers {
    record: Arc<dyn CsiNodeRecord>,
    registered: Mutex<BTreeMap<String, Registered>>,
    /// Moves with every driver that comes or goes.
    changes: watch::Sender<u64>,
}

impl Drivers {
    pub fn new(record: Arc<dyn CsiNodeRecord>) -> Self {
        Self { record, registered: Mutex::default(), changes: watch::Sender::new(0) }
    }

    pub fn client(&self, driver: &str) -> Result<DriverClient, String> {
        if driver.is_empty() {
            return Err("driver name is empty".to_owned());
        }
        let known =
            self.registered().get(driver).map(|known| DriverClient::new(driver, known.endpoint.clone()));
        known.ok_or_else(|| format!("driver name {driver} not found in the list of registered CSI drivers"))
    }

    pub fn names(&self) -> Vec<String> {
        self.registered().keys().cloned().collect()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether a driver that asks for it may register.
    pub fn validate(&self, driver: &str, endpoint: &str, versions: &[String]) -> Result<(), String> {
        let fails = |why| format!("validation failed for CSI Driver {driver} at endpoint {endpoint}: {why}");
        self.usable_version("ValidatePlugin", driver, versions).map(drop).map_err(fails)
    }

    /// The driver is used from now on, if the cluster could be told of it.
    pub async fn register(&self, driver: &str, endpoint: PathBuf, versions: &[String]) -> Result<(), String> {
        let version = self.usable_version("RegisterPlugin", driver, versions)?;
        info!(driver, endpoint = %endpoint.display(), "Registering a CSI driver");
        let client = DriverClient::new(driver, endpoint.clone());
        self.registered().insert(driver.to_owned(), Registered { endpoint, version });
        let told = match client.node_info().await {
            Ok(info) if info.node_id.is_empty() => {
                Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned())
            }
            Ok(info) => self.record.install(driver, &info).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = told {
            self.forget(driver).await;
            return Err(error);
        }
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The driver has taken its socket away. One that serves elsewhere under the same name has come in its place and
    /// stays: the old one of an upgrade goes after the new one has registered.
    pub async fn deregister(&self, driver: &str, endpoint: &Path) {
        let is_it = self.registered().get(driver).is_some_and(|there| there.endpoint == endpoint);
        if is_it {
            self.forget(driver).await;
        }
    }

    async fn forget(&self, driver: &str) {
        self.registered().remove(driver);
        if let Err(error) = self.record.uninstall(driver).await {
            error!(driver, err = error, "Error uninstalling CSI driver");
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Asks the driver again how many volumes it can have, and tells the cluster.
    pub async fn refresh(&self, driver: &str) -> Result<(), String> {
        let client = self.client(driver)?;
        let info = client.node_info().await.map_err(|error| error.to_string())?;
        self.record.update(driver, &info).await
    }

    fn usable_version(&self, caller: &str, driver: &str, versions: &[String]) -> Result<Version, String> {
        let failed = format!("kubernetes.io/csi: {caller} for CSI driver {driver:?} failed.");
        if versions.is_empty() {
            return Err(format!("{failed} Plugin returned an empty list for supported versions"));
        }
        let version = highest(versions).map_err(|error| {
            format!("{failed} None of the versions specified {versions:?} are supported. err={error}")
        })?;
        match self.registered().get(driver) {
            Some(there) if there.version >= version => Err(format!(
                "{failed} Another driver with the same name is already registered with a higher supported version: {:?}",
                there.version.text()
            )),
            _ => Ok(version),
        }
    }

    fn registered(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The highest 1.x: what is newer need not be like it, what is older is not served any more.
fn highest(versions: &[String]) -> Result<Version, String> {
    let readable = versions.iter().filter_map(|text| Version::parse(text));
    let highest = readable.filter(|version| version.0[0] <= 1).max();
    let list = versions.join(" ");
    let highest = highest.ok_or_else(|| {
        format!("could not find a highest supported version from versions ([{list}]) reported by this plugin")
    })?;
    match highest.0[0] {
        1 => Ok(highest),
        _ => Err(format!("highest supported version reported by plugin is {}, must be v1.x", highest.text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    #[async_trait]
    impl CsiNodeRecord for Nobody {
        async fn install(&self, _: &str, _: &NodeInfo) -> Result<(), String> {
            Ok(())
        }
        async fn update(&self, _: &str, _: &NodeInfo) -> Result<(), String> {
            Ok(())
        }
        async fn uninstall(&self, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    fn versions(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_driver_needs_a_version_one() {
        let drivers = Drivers::new(Arc::new(Nobody));
        let validate = |list: &[&str]| drivers.validate("d", "/s", &versions(list));
        for good in [&["1.0.0"][..], &["v1.2", "0.3.0"], &["2.0.0", "1.1.0"], &["junk", "1.0"]] {
            validate(good).unwrap_or_else(|error| panic!("{good:?}: {error}"));
        }
        for bad in [&[][..], &["0.3.0"], &["2.0.0"], &["junk"]] {
            let error = validate(bad).unwrap_err();
            assert!(error.starts_with("validation failed for CSI Driver d at endpoint /s: "), "{error}");
        }
    }

    #[tokio::test]
    async fn an_upgraded_driver_outlives_the_socket_of_the_old_one() {
        let drivers = Drivers::new(Arc::new(Nobody));
        for (endpoint, version) in [("/old", vec![1, 0]), ("/new", vec![1, 1])] {
            let there = Registered { endpoint: endpoint.into(), version: Version(version) };
            drivers.registered().insert("d".to_owned(), there);
        }
        drivers.deregister("d", Path::new("/old")).await;
        assert!(drivers.client("d").is_ok());
        drivers.deregister("d", Path::new("/new")).await;
        assert!(drivers.client("d").is_err());
    }

    #[test]
    fn a_namesake_needs_a_higher_version() {
        let drivers = Drivers::new(Arc::new(Nobody));
        let there = Registered { endpoint: "/s".into(), version: Version(vec![1, 2]) };
        drivers.registered().insert("d".to_owned(), there);
        assert!(drivers.validate("d", "/t", &versions(&["1.3.0"])).is_ok());
        let error = drivers.validate("d", "/t", &versions(&["1.2"])).unwrap_err();
        assert!(error.contains("already registered with a higher supported version: \"1.2\""), "{error}");
    }
}

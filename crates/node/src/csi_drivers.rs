//! Which CSI drivers the node has, as the cluster is told: the Node gets an annotation with the id that each driver has for
//! it, and labels of its place; the CSINode lists the drivers with the number of volumes that each can have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_apiserver::{ApiError, Verb};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use crate::cache::NodeView;
use crate::calls::{Calls, parsed};
use crate::csi_node;

const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Upstream's tries and pauses.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const FACTOR: u32 = 5;
const GAVE_UP: &str = "timed out waiting for the condition";

/// A driver as it describes the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    pub node_id: String,
    /// Zero for no limit that is known.
    pub max_volumes: i64,
    /// Labels that say where the node is.
    pub topology: BTreeMap<String, String>,
}

/// Tells the cluster of drivers that come and go. Clones share it.
#[derive(Clone)]
pub struct CsiDrivers {
    /// `None` in standalone mode.
    calls: Option<Calls>,
    node: watch::Receiver<Arc<NodeView>>,
    /// One change at a time: they all change the same two objects.
    turn: Arc<Mutex<()>>,
}

impl CsiDrivers {
    pub(crate) fn new(calls: Option<Calls>, node: watch::Receiver<Arc<NodeView>>) -> Self {
        Self { calls, node, turn: Arc::default() }
    }

    /// Puts the driver on the Node and on the CSINode.
    pub async fn install(&self, driver: &str, info: &DriverInfo) -> Result<(), String> {
        let calls = self.calls()?;
        let _turn = self.turn.lock().await;
        let mut tries = Tries::new("node");
        let done = loop {
            if let Some(end) = tries.after(install_on_node(calls, driver, info).await).await {
                break end;
            }
        };
        done.map_err(|error| format!("error updating Node object with CSI driver node info: {error}"))?;
        self.put_on_csi_node(calls, driver, info).await
    }

    /// Only what the CSINode says: the limit may have changed.
    pub async fn update(&self, driver: &str, info: &DriverInfo) -> Result<(), String> {
        let calls = self.calls()?;
        let _turn = self.turn.lock().await;
        self.put_on_csi_node(calls, driver, info).await
    }

    /// The driver is gone. Labels stay, as upstream leaves them.
    pub async fn uninstall(&self, driver: &str) -> Result<(), String> {
        let calls = self.calls()?;
        let _turn = self.turn.lock().await;
        let mut tries = Tries::new("CSINode");
        let done = loop {
            if let Some(end) = tries.after(take_off_csi_node(calls, driver).await).await {
                break end;
            }
        };
        done.map_err(|error| format!("error uninstalling CSI driver from CSINode object {error}"))?;
        let mut tries = Tries::new("node");
        let done = loop {
            if let Some(end) = tries.after(remove_from_node(calls, driver).await).await {
                break end;
            }
        };
        done.map_err(|error| format!("error removing CSI driver node info from Node object {error}"))
    }

    async fn put_on_csi_node(&self, calls: &Calls, driver: &str, info: &DriverInfo) -> Result<(), String> {
        let mut tries = Tries::new("CSINode");
        let done = loop {
            let uid = self.node.borrow().uid.clone();
            if let Some(end) = tries.after(put_on_csi_node(calls, uid, driver, info).await).await {
                break end;
            }
        };
        done.map_err(|error| format!("error updating CSINode object with CSI driver node info: {error}"))
    }

    fn calls(&self) -> Result<&Calls, String> {
        self.calls.as_ref().ok_or_else(|| "error getting CSI client".to_owned())
    }
}

fn text(error: ApiError) -> String {
    error.to_string()
}

async fn put_on_csi_node(
    calls: &Calls,
    uid: Option<String>,
    driver: &str,
    info: &DriverInfo,
) -> Result<(), String> {
    let uid = uid.ok_or("the Node is not known yet")?;
    let mut csi_node = match calls.main(Verb::Get, calls.csi_node_path(), "").await {
        Err(error) if error.is_not_found() => csi_node::create(calls, &uid).await.map_err(text)?,
        Err(error) => return Err(text(error)),
        Ok(json) => parsed(&json).map_err(text)?,
    };
    if !csi_node::owned_by(&csi_node, &uid) {
        calls.main(Verb::Delete, calls.csi_node_path(), "").await.map_err(text)?;
        return Err(format!("CSINode {:?} was owned by different node, deleted it", &*calls.node));
    }
    if !with(&mut csi_node, driver, info) {
        return Ok(());
    }
    calls.main(Verb::Put, calls.csi_node_path(), csi_node.to_string()).await.map(drop).map_err(text)
}

async fn take_off_csi_node(calls: &Calls, driver: &str) -> Result<(), String> {
    let json = match calls.main(Verb::Get, calls.csi_node_path(), "").await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer.map_err(text)?,
    };
    let mut csi_node = parsed(&json).map_err(text)?;
    if !without(&mut csi_node, driver) {
        return Ok(());
    }
    calls.main(Verb::Put, calls.csi_node_path(), csi_node.to_string()).await.map(drop).map_err(text)
}

async fn install_on_node(calls: &Calls, driver: &str, info: &DriverInfo) -> Result<(), String> {
    let node = parsed(&calls.main(Verb::Get, calls.node_path(), "").await.map_err(text)?).map_err(text)?;
    match installed_on_node(&node, driver, info)? {
        Some(patch) => patch_node(calls, patch).await,
        None => Ok(()),
    }
}

async fn remove_from_node(calls: &Calls, driver: &str) -> Result<(), String> {
    let node = parsed(&calls.main(Verb::Get, calls.node_path(), "").await.map_err(text)?).map_err(text)?;
    match removed_from_node(&node, driver)? {
        Some(patch) => patch_node(calls, patch).await,
        None => Ok(()),
    }
}

/// A change that is tried a few times, with pauses that grow.
struct Tries {
    what: &'static str,
    errors: Vec<String>,
    made: u32,
    pause: Duration,
}

impl Tries {
    fn new(what: &'static str) -> Self {
        Self { what, errors: Vec::new(), made: 0, pause: FIRST_PAUSE }
    }

    /// After a try: how it ended, or, after a pause, nothing if there is another one.
    async fn after(&mut self, result: Result<(), String>) -> Option<Result<(), String>> {
        match result {
            Ok(()) => return Some(Ok(())),
            Err(error) if self.errors.contains(&error) => {}
            Err(error) => self.errors.push(error),
        }
        self.made += 1;
        if self.made < TRIES {
            sleep(self.pause).await;
            self.pause *= FACTOR;
            return None;
        }
        let causes = match &*self.errors {
            [only] => only.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        Some(Err(format!("error updating {}: {GAVE_UP}; caused by: {causes}", self.what)))
    }
}

/// Through the status, which is the part of the Node that a node may change without further rights.
async fn patch_node(calls: &Calls, patch: Value) -> Result<(), String> {
    let path = format!("{}/status", calls.node_path());
    calls.main(Verb::StrategicPatch, path, patch.to_string()).await.map(drop).map_err(text)
}

fn ids(node: &Value) -> Result<Map<String, Value>, String> {
    let Some(annotation) = node["metadata"]["annotations"][NODE_ID].as_str().filter(|text| !text.is_empty())
    else {
        return Ok(Map::new());
    };
    serde_json::from_str(annotation).map_err(|error| {
        format!("failed to parse node's {NODE_ID:?} annotation value ({annotation:?}) err={error}")
    })
}

/// `None` if the Node says all that already.
fn installed_on_node(node: &Value, driver: &str, info: &DriverInfo) -> Result<Option<Value>, String> {
    let mut ids = ids(node)?;
    let labels = &node["metadata"]["labels"];
    for (key, value) in &info.topology {
        if let Some(there) = labels[key].as_str().filter(|there| there != value) {
            return Err(format!(
                "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{there:?}"
            ));
        }
    }
    let mut metadata = json!({});
    if ids.get(driver).and_then(Value::as_str) != Some(&info.node_id) {
        ids.insert(driver.to_owned(), json!(info.node_id));
        metadata["annotations"] = json!({ NODE_ID: Value::Object(ids).to_string() });
    }
    if info.topology.iter().any(|(key, value)| labels[key].as_str() != Some(value)) {
        metadata["labels"] = json!(info.topology);
    }
    let is_news = metadata.as_object().is_some_and(|parts| !parts.is_empty());
    Ok(is_news.then(|| json!({ "metadata": metadata })))
}

fn removed_from_node(node: &Value, driver: &str) -> Result<Option<Value>, String> {
    let mut ids = ids(node)?;
    if ids.remove(driver).is_none() {
        return Ok(None);
    }
    let rest = if ids.is_empty() { Value::Null } else { json!(Value::Object(ids).to_string()) };
    Ok(Some(json!({ "metadata": { "annotations": { NODE_ID: rest } } })))
}

/// Lists the driver; says whether that changed anything.
fn with(csi_node: &mut Value, driver: &str, info: &DriverInfo) -> bool {
    let mut entry = json!({
        "name": driver,
        "nodeID": info.node_id,
        "topologyKeys": info.topology.keys().collect::<Vec<_>>(),
    });
    match info.max_volumes {
        0 => {}
        count if count < 0 => {
            tracing::error!(driver, count, "Invalid attach limit value, it is not added to the CSINode");
        }
        count => {
            let count = i32::try_from(count).unwrap_or(i32::MAX);
            entry["allocatable"] = json!({ "count": count });
        }
    }
    let drivers = drivers_of(csi_node);
    let is_there = |there: &Value| {
        let keys = |value: &Value| {
            let mut keys: Vec<String> =
                serde_json::from_value(value["topologyKeys"].clone()).unwrap_or_default();
            keys.sort();
            keys
        };
        there["nodeID"] == entry["nodeID"]
            && there["allocatable"]["count"] == entry["allocatable"]["count"]
            && keys(there) == keys(&entry)
    };
    if drivers.iter().any(|there| there["name"] == driver && is_there(there)) {
        return false;
    }
    let mut rest: Vec<Value> = drivers.iter().filter(|there| there["name"] != driver).cloned().collect();
    rest.push(entry);
    csi_node["spec"]["drivers"] = json!(rest);
    true
}

fn without(csi_node: &mut Value, driver: &str) -> bool {
    let drivers = drivers_of(csi_node);
    let rest: Vec<Value> = drivers.iter().filter(|there| there["name"] != driver).cloned().collect();
    let changed = rest.len() != drivers.len();
    csi_node["spec"]["drivers"] = json!(rest);
    changed
}

fn drivers_of(csi_node: &Value) -> Vec<Value> {
    csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default()
}

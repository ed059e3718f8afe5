//! `serviceaccounts/token`: tokens that open nothing.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::path::Resource;
use super::store::Store;
use super::verbs::{Answer, missing, seconds};
use super::weather::status;

/// A token lives for an hour unless the request says otherwise.
const DEFAULT_LIFE: i64 = 3600;

pub(super) fn request(
    store: &mut Store,
    now: Timestamp,
    namespace: &str,
    account: &str,
    mut request: Value,
) -> Answer {
    let bound = &request["spec"]["boundObjectRef"];
    if let Some(name) = bound["name"].as_str() {
        let pods = Resource::named("pods");
        let Some(pod) = store.get(&pods, namespace, name) else { return Err(missing(&pods, name)) };
        let (wanted, actual) = (&bound["uid"], &pod["metadata"]["uid"]);
        if wanted != actual {
            let why =
                format!("the UID in the bound object reference ({wanted}) does not match the UID in record");
            return Err(status(409, "Conflict", why));
        }
    }
    let life = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_LIFE);
    let serial = store.next_uid();
    request["kind"] = json!("TokenRequest");
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["metadata"] = json!({"name": account, "namespace": namespace, "creationTimestamp": seconds(now)});
    request["spec"]["expirationSeconds"] = json!(life);
    request["status"] = json!({
        "token": format!("fake-token-{namespace}-{account}-{serial}"),
        "expirationTimestamp": seconds(now + SignedDuration::from_secs(life)),
    });
    Ok(Bytes::from(request.to_string()))
}

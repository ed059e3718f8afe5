//! What changes in the cluster reaches the files of containers that run: at once with Crablet, with upstream's kubelet
//! within its sync. What is immutable or seen through a sub path stays as it was.

use anyhow::{Result, ensure};
use serde_json::json;

use super::objects::pod_with;
use crate::cluster::follow::Follow;
use crate::cluster::support::Room;

/// Prints each file when it changes.
const READER: &str = r#"
trap 'exit 0' TERM
while true; do
  for file in /map/word /secret/word /all/map /all/label /info/label /info/annotation /fixed/word /part; do
    now=$(cat $file)
    eval "old=\"\$seen_$(echo $file | tr / _)\""
    if [ "$now" != "$old" ]; then
      echo "$file=$now"
      eval "seen_$(echo $file | tr / _)=\"\$now\""
    fi
  done
  sleep 0.1
done
"#;

pub fn what_changes_reaches_the_containers(room: &Room<'_>) -> Result<()> {
    room.kubectl(&["create", "configmap", "map", "--from-literal=word=one"])?;
    room.kubectl(&["create", "secret", "generic", "secret", "--from-literal=word=one"])?;
    room.create(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "fixed" },
                         "immutable": true, "data": { "word": "one" } }))?;
    let field = |path: &str, field: &str| json!({ "path": path, "fieldRef": { "fieldPath": field } });
    let label = "metadata.labels['colour']";
    let mut pod = pod_with(
        "reader",
        READER,
        &[
            json!({ "name": "map", "configMap": { "name": "map" } }),
            json!({ "name": "secret", "secret": { "secretName": "secret" } }),
            json!({ "name": "fixed", "configMap": { "name": "fixed" } }),
            json!({ "name": "info", "downwardAPI": { "items": [
                field("label", label), field("annotation", "metadata.annotations['mood']"),
            ] } }),
            json!({ "name": "all", "projected": { "sources": [
                { "configMap": { "name": "map", "items": [{ "key": "word", "path": "map" }] } },
                { "downwardAPI": { "items": [field("label", label)] } },
            ] } }),
        ],
    );
    pod["metadata"]["labels"]["colour"] = json!("one");
    pod["metadata"]["annotations"] = json!({ "mood": "one" });
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    if let Some(mounts) = mounts.as_array_mut() {
        mounts.push(json!({ "name": "map", "mountPath": "/part", "subPath": "word" }));
    }
    room.create_ready(&pod)?;
    let mut log = room.follow(&["logs", "-f", "reader"])?;
    seen(&mut log, &["/fixed/word=one", "/part=one"])?;

    let two = r#"{"data":{"word":"two"}}"#;
    room.kubectl(&["patch", "configmap", "map", "--patch", two])?;
    seen(&mut log, &["/map/word=two", "/all/map=two"])?;
    room.kubectl(&["patch", "secret", "secret", "--patch", r#"{"stringData":{"word":"two"}}"#])?;
    seen(&mut log, &["/secret/word=two"])?;
    room.kubectl(&["label", "pod", "reader", "colour=two", "--overwrite"])?;
    seen(&mut log, &["/all/label=two", "/info/label=two"])?;
    room.kubectl(&["annotate", "pod", "reader", "mood=two", "--overwrite"])?;
    seen(&mut log, &["/info/annotation=two"])?;
    // Made anew under the same name it is another one, and what is mounted stays what it was.
    room.kubectl(&["delete", "configmap", "fixed"])?;
    room.kubectl(&["create", "configmap", "fixed", "--from-literal=word=two"])?;
    room.kubectl(&["patch", "configmap", "map", "--patch", r#"{"data":{"word":"three"}}"#])?;
    seen(&mut log, &["/map/word=three", "/all/map=three"])?;
    let now = room.kubectl(&["exec", "reader", "--", "cat", "/fixed/word", "/part"])?;
    ensure!(now.trim() == "oneone", "what was to stay is now {now:?}");
    room.delete(&["pod", "reader"])
}

/// All of them, in any order.
fn seen(log: &mut Follow, lines: &[&str]) -> Result<()> {
    for wanted in lines {
        if !log.has_said(wanted) {
            log.until(|line| line == *wanted)?;
        }
    }
    Ok(())
}

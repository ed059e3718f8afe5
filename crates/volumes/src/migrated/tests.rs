use super::*;
use serde_json::{Value, json};

const ZONE: &str = topology::ZONE;
const BETA_ZONE: &str = topology::BETA_ZONE;
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

fn volume(mut metadata: Value, spec: Value) -> api::PersistentVolume {
    metadata["name"] = json!("pv");
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// What becomes of a volume: its whole specification.
fn spec_of(metadata: Value, spec: Value) -> Result<Value, String> {
    let volume = translated(volume(metadata, spec))?;
    assert_eq!(volume.metadata.name.as_deref(), Some("pv"), "folders go by the name");
    Ok(serde_json::to_value(volume.spec).unwrap())
}

/// The source, of which nothing of old is left.
fn csi_of(metadata: Value, source: Value) -> Value {
    let spec = spec_of(metadata, source).unwrap();
    assert_eq!(spec.as_object().unwrap().keys().collect::<Vec<_>>(), ["csi"]);
    spec["csi"].clone()
}

fn error_of(metadata: Value, source: Value) -> String {
    let error = spec_of(metadata, source).unwrap_err();
    error.strip_prefix("failed to translate in-tree pv to CSI: ").unwrap().to_owned()
}

/// Terms of one requirement each.
fn affinity(terms: &[(&str, &[&str])]) -> Value {
    let terms = terms.iter().map(|wanted| json!({ "matchExpressions": [within(wanted)] }));
    json!({ "required": { "nodeSelectorTerms": terms.collect::<Vec<_>>() } })
}

fn within((key, values): &(&str, &[&str])) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

#[test]
fn disks_of_clouds_are_volumes_of_their_drivers() {
    let cases = [
        (
            json!({ "awsElasticBlockStore": { "volumeID": "vol-1" } }),
            json!({ "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1",
                "volumeAttributes": { "partition": "0" } }),
        ),
        (
            json!({ "awsElasticBlockStore": {
                "volumeID": "aws://eu-1a/vol-1", "fsType": "ext4", "partition": 2, "readOnly": true,
            } }),
            json!({ "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4", "readOnly": true,
                "volumeAttributes": { "partition": "2" } }),
        ),
        (
            json!({ "gcePersistentDisk": { "pdName": "d", "fsType": "xfs" } }),
            json!({ "driver": "pd.csi.storage.gke.io", "fsType": "xfs",
                "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "volumeAttributes": { "partition": "" } }),
        ),
        (
            json!({ "azureDisk": { "diskName": "d", "diskURI": "/subscriptions/s/disks/d" } }),
            json!({ "driver": "disk.csi.azure.com", "volumeHandle": "/subscriptions/s/disks/d",
                "volumeAttributes": { "kind": "Managed" } }),
        ),
        (
            json!({ "azureDisk": { "diskName": "d", "diskURI": "u", "kind": "managed", "cachingMode": "None",
                "fsType": "ext4", "readOnly": false } }),
            json!({ "driver": "disk.csi.azure.com", "volumeHandle": "u", "fsType": "ext4", "readOnly": false,
                "volumeAttributes": { "kind": "Managed", "cachingmode": "None", "fstype": "ext4" } }),
        ),
        (
            json!({ "cinder": { "volumeID": "v", "fsType": "ext3", "readOnly": true } }),
            json!({ "driver": "cinder.csi.openstack.org", "volumeHandle": "v", "fsType": "ext3",
                "readOnly": true, "volumeAttributes": {} }),
        ),
        (
            json!({ "vsphereVolume": {
                "volumePath": "[ds] a.vmdk", "fsType": "ext4", "storagePolicyID": "id",
            } }),
            json!({ "driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] a.vmdk", "fsType": "ext4",
                "volumeAttributes": {} }),
        ),
        (
            json!({ "vsphereVolume": { "volumePath": "[ds] a.vmdk", "storagePolicyName": "gold" } }),
            json!({ "driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] a.vmdk",
                "volumeAttributes": { "storagepolicyname": "gold" } }),
        ),
        (
            json!({ "portworxVolume": { "volumeID": "v", "fsType": "ext4", "readOnly": true } }),
            json!({ "driver": "pxd.portworx.com", "volumeHandle": "v", "fsType": "ext4",
                "volumeAttributes": {} }),
        ),
    ];
    for (old, new) in cases {
        assert_eq!(csi_of(json!({}), old.clone()), new, "{old}");
    }
}

#[test]
fn any_other_volume_stays_as_it_is() {
    for source in [
        json!({ "csi": { "driver": "d.io", "volumeHandle": "h" } }),
        json!({ "local": { "path": "/data" }, "accessModes": ["ReadWriteMany"] }),
        json!({ "nfs": { "server": "s", "path": "/" }, "nodeAffinity": affinity(&[(ZONE, &["a"])]) }),
    ] {
        assert_eq!(spec_of(json!({ "labels": { ZONE: "a" } }), source.clone()), Ok(source));
    }
    let empty = api::PersistentVolume::default();
    assert_eq!(translated(empty.clone()), Ok(empty));
}

#[test]
fn the_id_of_a_disk_may_be_a_path_in_a_zone() {
    let of = |id: &str| json!({ "awsElasticBlockStore": { "volumeID": id } });
    for id in ["aws://eu-1a/vol-1", "aws:///vol-1", "aws://eu-1a//vol-1/", "aws://eu-1a/vol-1?x#y"] {
        assert_eq!(csi_of(json!({}), of(id))["volumeHandle"], "vol-1", "{id}");
    }
    assert_eq!(csi_of(json!({}), of("anything/else"))["volumeHandle"], "anything/else");
    for id in ["aws://vol-1", "aws://eu-1a/", "aws://eu-1a/disk-1", "aws://eu-1a/vol-1/x"] {
        let why = "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume";
        assert_eq!(error_of(json!({}), of(id)), format!("{why} ({id})"));
    }
}

#[test]
fn a_disk_of_several_zones_is_one_of_their_region() {
    let handle = |labels: Value| {
        let disk = json!({ "gcePersistentDisk": { "pdName": "d", "partition": 3 } });
        let spec = spec_of(json!({ "labels": labels }), disk)?;
        assert_eq!(spec["csi"]["volumeAttributes"]["partition"], "3");
        Ok::<_, String>(spec["csi"]["volumeHandle"].as_str().unwrap().to_owned())
    };
    let disk = |place: &str| Ok::<_, String>(format!("projects/UNSPECIFIED/{place}/disks/d"));
    assert_eq!(handle(json!({ ZONE: "us-east1-b" })), disk("zones/us-east1-b"));
    assert_eq!(handle(json!({ ZONE: "us-east1-b", BETA_ZONE: "us-east1-c" })), disk("zones/us-east1-c"));
    assert_eq!(handle(json!({ ZONE: "us-east1-b", BETA_ZONE: "" })), disk("zones/us-east1-b"));
    assert_eq!(handle(json!({ ZONE: "" })), disk("zones/UNSPECIFIED"));
    assert_eq!(handle(json!({ BETA_ZONE: "us-east1-b__us-east1-c" })), disk("regions/us-east1"));
    let told = "failed to translate in-tree pv to CSI: failed to get region from zones";
    let fails = |why: &str| Err::<String, _>(format!("{told}: {why}"));
    assert_eq!(
        handle(json!({ ZONE: "us-east1-b__eu-west1-c" })),
        fails("multiple or no regions gotten from zones, got: map[eu-west1:{} us-east1:{}]")
    );
    assert_eq!(
        handle(json!({ ZONE: "us-east1-b__moon" })),
        fails("zone in unexpected format, expected: {locale}-{region}-{zone}, got: moon")
    );
}

#[test]
fn a_driver_is_asked_only_for_modes_that_it_has() {
    let modes = |modes: Value| {
        let spec = json!({ "gcePersistentDisk": { "pdName": "d" }, "accessModes": modes });
        spec_of(json!({}), spec).unwrap()["accessModes"].clone()
    };
    assert_eq!(modes(json!(["ReadWriteMany"])), json!(["ReadWriteOnce"]));
    assert_eq!(modes(json!(["ReadOnlyMany", "ReadWriteOnce"])), json!(["ReadWriteOnce"]));
    assert_eq!(modes(json!(["ReadOnlyMany", "ReadWriteMany"])), json!(["ReadWriteOnce"]));
    assert_eq!(modes(json!(["ReadOnlyMany"])), json!(["ReadOnlyMany"]));
    assert_eq!(modes(json!(["ReadWriteOncePod"])), json!(["ReadWriteOnce"]));
    assert_eq!(modes(Value::Null), Value::Null);
}

#[test]
fn only_managed_disks_have_a_driver() {
    let disk = json!({ "azureDisk": { "diskName": "d", "diskURI": "u", "kind": "Dedicated" } });
    assert_eq!(error_of(json!({}), disk), "kind(Dedicated) is not supported in csi migration");
}

#[test]
fn a_share_comes_with_the_secret_of_its_account() {
    let share = |secret: &str, namespace: Value| json!({ "azureFile": { "shareName": "s", "secretName": secret, "secretNamespace": namespace } });
    let metadata = json!({ "annotations": { "kubernetes.io/azure-file-resource-group": "rg" } });
    let secret = "azure-storage-account-acc-secret";
    assert_eq!(
        csi_of(metadata, share(secret, json!("ns"))),
        json!({ "driver": "file.csi.azure.com", "volumeHandle": "rg#acc#s#pv#ns",
            "volumeAttributes": { "sharename": "s" },
            "nodeStageSecretRef": { "name": secret, "namespace": "ns" } })
    );
    let mut of_claim = share("mine", Value::Null);
    of_claim["claimRef"] = json!({ "namespace": "theirs" });
    let spec = spec_of(json!({}), of_claim.clone()).unwrap();
    assert_eq!(spec["csi"]["volumeHandle"], "#mine#s#pv#theirs");
    assert_eq!(spec["csi"]["nodeStageSecretRef"], json!({ "name": "mine", "namespace": "theirs" }));
    let nowhere = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
    assert_eq!(error_of(json!({}), share("mine", Value::Null)), nowhere);
    of_claim["azureFile"]["secretNamespace"] = json!("");
    assert_eq!(error_of(json!({}), of_claim), nowhere);
}

#[test]
fn a_secret_of_two_annotations_is_for_all_calls() {
    let disk = json!({ "portworxVolume": { "volumeID": "v" } });
    let mut notes = json!({ "openstorage.io/auth-secret-name": "key" });
    let bare = json!({ "driver": "pxd.portworx.com", "volumeHandle": "v", "volumeAttributes": {} });
    assert_eq!(csi_of(json!({ "annotations": notes }), disk.clone()), bare);
    notes["openstorage.io/auth-secret-namespace"] = json!("safe");
    let csi = csi_of(json!({ "annotations": notes }), disk);
    for call in ["controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand"] {
        assert_eq!(csi[format!("{call}SecretRef")], json!({ "name": "key", "namespace": "safe" }), "{call}");
    }
}

/// The node affinity of a disk with these labels, and this affinity so far.
fn affinity_of(source: &str, labels: Value, before: Value) -> Value {
    let disk = match source {
        "vsphereVolume" => json!({ "volumePath": "p" }),
        _ => json!({ "volumeID": "vol-1" }),
    };
    let spec = json!({ source: disk, "nodeAffinity": before });
    spec_of(json!({ "labels": labels }), spec).unwrap()["nodeAffinity"].clone()
}

#[test]
fn zones_are_told_in_the_drivers_words() {
    let own = "topology.ebs.csi.aws.com/zone";
    let aws = |labels: Value, before: Value| affinity_of("awsElasticBlockStore", labels, before);
    assert_eq!(aws(json!({}), Value::Null), Value::Null);
    for zone in [ZONE, BETA_ZONE] {
        assert_eq!(aws(json!({ zone: "a" }), Value::Null), affinity(&[(own, &["a"])]), "of the label");
        let terms = affinity(&[(zone, &["a", "b"]), ("else", &["x"])]);
        let renamed = affinity(&[(own, &["a", "b"]), ("else", &["x"])]);
        assert_eq!(aws(json!({ zone: "other" }), terms), renamed, "terms count more");
    }
    assert_eq!(aws(json!({ ZONE: "b__ a __b__" }), Value::Null), affinity(&[(own, &["a", "b"])]));
    assert_eq!(aws(json!({ ZONE: "" }), Value::Null), Value::Null);
    assert_eq!(aws(json!({ ZONE: "new", BETA_ZONE: "old" }), Value::Null), affinity(&[(own, &["new"])]));
    let both = affinity(&[(BETA_ZONE, &["a"]), (ZONE, &["b"])]);
    assert_eq!(aws(json!({}), both), affinity(&[(BETA_ZONE, &["a"]), (own, &["b"])]), "one name only");

    let added = aws(json!({ ZONE: "a" }), affinity(&[("one", &["x"]), ("two", &["y"])]));
    let zone = within(&(own, &["a"]));
    let term = |key: &str, value: &str| json!({ "matchExpressions": [within(&(key, &[value])), zone] });
    assert_eq!(added["required"]["nodeSelectorTerms"], json!([term("one", "x"), term("two", "y")]));

    let cinder = affinity_of("cinder", json!({ ZONE: "a" }), Value::Null);
    assert_eq!(cinder, affinity(&[("topology.cinder.csi.openstack.org/zone", &["a"])]));
}

#[test]
fn a_region_of_old_has_its_new_name() {
    let own = "topology.ebs.csi.aws.com/zone";
    let before = affinity(&[(BETA_ZONE, &["a"]), (BETA_REGION, &["r"])]);
    let after = affinity(&[(own, &["a"]), (REGION, &["r"])]);
    assert_eq!(affinity_of("awsElasticBlockStore", json!({}), before), after);
    let alone = affinity(&[(BETA_REGION, &["r"])]);
    assert_eq!(affinity_of("awsElasticBlockStore", json!({}), alone.clone()), alone, "without a zone of old");
}

#[test]
fn one_driver_has_regions_of_its_own() {
    let (zone, region) = ("topology.csi.vmware.com/zone", "topology.csi.vmware.com/region");
    let vsphere = |labels: Value, before: Value| affinity_of("vsphereVolume", labels, before);
    let before = affinity(&[(BETA_ZONE, &["a"]), (BETA_REGION, &["r"])]);
    assert_eq!(vsphere(json!({}), before), affinity(&[(zone, &["a"]), (region, &["r"])]));
    let labelled = vsphere(json!({ ZONE: "a__b", REGION: "r" }), Value::Null);
    let both = json!({ "matchExpressions": [within(&(zone, &["a__b"])), within(&(region, &["r"]))] });
    assert_eq!(labelled["required"]["nodeSelectorTerms"], json!([both]));
}

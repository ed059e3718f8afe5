//! From a claim to the volume that is bound to it.
//!
//! A node may get the claims of its pods and their volumes, and not watch them. So they are asked for when a pod needs
//! them, and again while it waits.

use crablet_apiserver::{ApiServer, Call, Lane};
use crablet_model::api;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::migrated;
use crate::plugins::Request;

const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// A group that containers have to be in, by whoever made the volume.
const GROUP: &str = "pv.beta.kubernetes.io/gid";
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// A claim and its volume, bound to each other.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub claim: api::PersistentVolumeClaim,
    pub volume: api::PersistentVolume,
    /// The pod asks for a volume that nobody writes to.
    pub read_only: bool,
}

impl Claimed {
    /// The name of the volume on disk.
    pub fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn spec(&self) -> Option<&api::PersistentVolumeSpec> {
        self.volume.spec.as_ref()
    }

    pub fn is_block(&self) -> bool {
        self.spec().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    pub fn group(&self) -> Option<i64> {
        self.annotation(GROUP)?.parse().ok()
    }

    /// Those of the specification, or of the annotation that came before it.
    pub fn mount_options(&self) -> Vec<String> {
        let mut options: Vec<String> = match self.annotation(MOUNT_OPTIONS) {
            Some(options) => options.split(',').map(str::to_owned).collect(),
            None => self.spec().and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
        };
        options.retain(|option| !option.is_empty());
        options
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.volume.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

/// The claim that a volume of a pod means: its name, and whether the pod only reads.
pub(crate) fn wanted(pod: &str, volume: &api::Volume) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), source.read_only.unwrap_or(false)));
    }
    volume.ephemeral.as_ref().map(|_| (format!("{pod}-{}", volume.name), false))
}

/// Finds the volume, or says what is missing.
pub(crate) async fn resolve(request: &Request<'_>, name: &str, read_only: bool) -> Result<Claimed, Failure> {
    let namespace = &request.id.namespace;
    let told = |why: String| Failure::process(format!("error processing PVC {namespace}/{name}: {why}"));
    let api = request.ctx.api.as_deref();
    let api = api.ok_or_else(|| told("there is no API server in standalone mode".to_owned()))?;
    let claim = claim(api, namespace, name).await.map_err(told)?;
    if request.volume.ephemeral.is_some() && !is_owned(&claim, request) {
        let pod = &request.id.name;
        return Err(Failure::process(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        )));
    }
    let volume = volume(api, &claim).await.map_err(told)?;
    // What was said of the volume does not change by waiting.
    let volume =
        migrated::translated(volume).map_err(|text| Failure { waits: false, ..Failure::process(text) })?;
    let claimed = Claimed { claim, volume, read_only };
    check_mode(request, &claimed)?;
    Ok(claimed)
}

async fn claim(
    api: &dyn ApiServer,
    namespace: &str,
    name: &str,
) -> Result<api::PersistentVolumeClaim, String> {
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
    let claim: api::PersistentVolumeClaim =
        get(api, path).await.map_err(|error| format!("failed to fetch PVC from API server: {error}"))?;
    let meta = &claim.metadata;
    let protected = meta.finalizers.iter().flatten().any(|finalizer| finalizer == PROTECTION);
    // A claim that goes away is good for those that have it already: the protection says that there are such.
    if meta.deletion_timestamp.is_some() && !protected {
        return Err("PVC is being deleted".to_owned());
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound".to_owned());
    }
    if volume_name(&claim).is_empty() {
        return Err("PVC has empty pvc.Spec.VolumeName".to_owned());
    }
    Ok(claim)
}

async fn volume(
    api: &dyn ApiServer,
    claim: &api::PersistentVolumeClaim,
) -> Result<api::PersistentVolume, String> {
    let name = volume_name(claim);
    let path = format!("/api/v1/persistentvolumes/{name}");
    let volume: api::PersistentVolume = get(api, path)
        .await
        .map_err(|error| format!("failed to fetch PV {name} from API server: {error}"))?;
    let bound_to = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).ok_or_else(|| {
        format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        )
    })?;
    let (theirs, ours) = (bound_to.uid.as_deref(), claim.metadata.uid.as_deref());
    if theirs != ours {
        let (theirs, ours) = (theirs.unwrap_or_default(), ours.unwrap_or_default());
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {theirs} does not point to claim.UID {ours}"
        ));
    }
    Ok(volume)
}

fn volume_name(claim: &api::PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

fn is_owned(claim: &api::PersistentVolumeClaim, request: &Request<'_>) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == request.id.uid.as_str())
}

/// A device is no folder, and a folder no device.
fn check_mode(request: &Request<'_>, claimed: &Claimed) -> Result<(), Failure> {
    let name = &request.volume.name;
    let uses = crate::pod::uses(request.spec, name);
    let wrong = match claimed.is_block() {
        true if uses.mounted => Some(("Block", "volumeMounts")),
        false if uses.mapped => Some(("Filesystem", "volumeDevices")),
        _ => None,
    };
    wrong.map_or(Ok(()), |(mode, field)| {
        let text = format!("volume {name} has volumeMode {mode}, but is specified in {field}");
        Err(Failure { waits: false, ..Failure::process(text) })
    })
}

pub(crate) async fn get<T: DeserializeOwned>(api: &dyn ApiServer, path: String) -> Result<T, String> {
    let answer = api.call(Call::get(Lane::Main, path)).await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&answer).map_err(|error| format!("the answer is not understood: {error}"))
}

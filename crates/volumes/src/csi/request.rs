//! Which volume is wanted.

use crablet_model::{PodRef, api};

use super::data::Lifecycle;
use super::places::inline_handle;
use crate::selinux;

/// A volume of a pod, as its caller knows it.
pub struct CsiRequest<'a> {
    pub id: &'a PodRef,
    pub pod: &'a api::Pod,
    pub source: CsiSource<'a>,
    pub fs_group: Option<u32>,
    /// The SELinux label to mount it with.
    pub context: Option<String>,
    /// `fsGroupChangePolicy: OnRootMismatch`
    pub on_root_mismatch: bool,
    /// It is there already and shall be published again.
    pub again: bool,
}

pub enum CsiSource<'a> {
    /// Of the pod itself; lives and dies with it.
    Inline {
        name: &'a str,
        source: &'a api::CSIVolumeSource,
    },
    Claimed {
        pv: &'a api::PersistentVolume,
        claim: &'a api::PersistentVolumeClaim,
        read_only: bool,
    },
}

/// The same, for a task that outlives its caller.
pub(super) struct Wish {
    pub id: PodRef,
    pub service_account: String,
    pub volume: Wanted,
    pub fs_group: Option<u32>,
    pub context: Option<String>,
    pub on_root_mismatch: bool,
    pub again: bool,
}

/// A volume in one form, whatever it came from.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub driver: String,
    pub handle: String,
    /// As folders of the pod name it: the persistent volume, or the volume of the pod.
    pub spec_name: String,
    pub lifecycle: Lifecycle,
    pub fs_type: String,
    pub read_only: bool,
    pub attributes: std::collections::BTreeMap<String, String>,
    pub access_modes: Option<Vec<String>>,
    pub mount_options: Vec<String>,
    pub stage_secret: Option<SecretRef>,
    pub publish_secret: Option<SecretRef>,
    pub expand_secret: Option<SecretRef>,
    pub claim: Option<Claim>,
}

#[derive(Clone, Debug)]
pub(super) struct SecretRef {
    pub namespace: String,
    pub name: String,
}

/// What expansion needs.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub namespace: String,
    pub name: String,
    /// The size that the persistent volume has.
    pub capacity: Option<String>,
    /// The size that the claim says it has.
    pub stated: Option<String>,
}

impl CsiRequest<'_> {
    pub(super) fn owned(&self) -> Wish {
        let spec = self.pod.spec.as_ref();
        let mut volume = self.source.wanted(self.id);
        volume.mount_options.extend(self.context.as_deref().map(selinux::option));
        Wish {
            id: self.id.clone(),
            service_account: spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
            volume,
            fs_group: self.fs_group,
            context: self.context.clone(),
            on_root_mismatch: self.on_root_mismatch,
            again: self.again,
        }
    }
}

impl CsiSource<'_> {
    fn wanted(&self, id: &PodRef) -> Wanted {
        match self {
            Self::Inline { name, source } => inline(id, name, source),
            Self::Claimed { pv, claim, read_only } => claimed(pv, claim, *read_only),
        }
    }
}

fn inline(id: &PodRef, name: &str, source: &api::CSIVolumeSource) -> Wanted {
    let secret = source.node_publish_secret_ref.as_ref();
    Wanted {
        driver: source.driver.clone(),
        handle: inline_handle(&id.uid, name),
        spec_name: name.to_owned(),
        lifecycle: Lifecycle::Ephemeral,
        fs_type: source.fs_type.clone().unwrap_or_default(),
        read_only: source.read_only == Some(true),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        access_modes: None,
        mount_options: Vec::new(),
        stage_secret: None,
        publish_secret: secret
            .map(|secret| SecretRef { namespace: id.namespace.to_string(), name: secret.name.clone() }),
        expand_secret: None,
        claim: None,
    }
}

fn claimed(pv: &api::PersistentVolume, claim: &api::PersistentVolumeClaim, read_only: bool) -> Wanted {
    let spec = pv.spec.clone().unwrap_or_default();
    let source = spec.csi.unwrap_or_default();
    let secret = |secret: Option<api::SecretReference>| {
        secret.map(|secret| SecretRef {
            namespace: secret.namespace.unwrap_or_default(),
            name: secret.name.unwrap_or_default(),
        })
    };
    let stated = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let claim = Claim {
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        capacity: spec.capacity.and_then(|mut all| all.remove("storage")).map(|quantity| quantity.0),
        stated: stated.map(|quantity| quantity.0.clone()),
    };
    Wanted {
        driver: source.driver,
        handle: source.volume_handle,
        spec_name: pv.metadata.name.clone().unwrap_or_default(),
        lifecycle: Lifecycle::Persistent,
        fs_type: source.fs_type.unwrap_or_default(),
        read_only,
        attributes: source.volume_attributes.unwrap_or_default(),
        access_modes: spec.access_modes,
        mount_options: spec.mount_options.unwrap_or_default(),
        stage_secret: secret(source.node_stage_secret_ref),
        publish_secret: secret(source.node_publish_secret_ref),
        expand_secret: secret(source.node_expand_secret_ref),
        claim: Some(claim),
    }
}

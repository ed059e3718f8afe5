//! The way in for file systems: attachment, staging, publishing, the pod's group, growth.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crablet_protos::csi;
use jiff::SignedDuration;
use k8s_openapi::api::storage::v1::CSIDriverSpec;

use super::client::{CallError, Capabilities, DriverClient};
use super::data::{self, Found, Lifecycle, VolumeData};
use super::places::{GLOBAL_MOUNT, MOUNT, attachment_name};
use super::request::{SecretRef, Wanted, Wish};
use super::rules::{Kind, capability, group_policy, supports_lifecycle, takes_group};
use super::{Csi, Failure, Published, context, expand, unmount};
use crate::ownership;
use crate::port::{GroupChange, told};

pub(super) const SET_UP: &str = "MountVolume.SetUp";
const WAIT_FOR_ATTACH: &str = "MountVolume.WaitForAttach";
const MOUNT_DEVICE: &str = "MountVolume.MountDevice";
const EXPAND: &str = "MountVolume.Setup failed while expanding volume";

/// Upstream publishes again whenever it looks at the pod, which is about every minute.
const REPUBLISH: SignedDuration = SignedDuration::from_secs(60);

type Strings = BTreeMap<String, String>;

pub(super) async fn set_up(csi: &Arc<Csi>, wish: &Wish) -> Result<Published, Failure> {
    let volume = &wish.volume;
    let step = |step: &'static str| move |message: String| Failure { step, message };
    let spec = csi.objects.driver(&volume.driver).await.map_err(step(SET_UP))?;
    let spec = spec.as_deref();
    let first = if volume.lifecycle == Lifecycle::Persistent { MOUNT_DEVICE } else { SET_UP };
    let publish_context = csi.attachment(volume, spec).await.map_err(step(WAIT_FOR_ATTACH))?;
    let caller = match volume.lifecycle {
        Lifecycle::Persistent => "attacher.MountDevice failed to create newCsiDriverClient",
        Lifecycle::Ephemeral => "mounter.SetUpAt failed to get CSI client",
    };
    let client = csi.client(volume, caller).map_err(step(first))?;
    csi.uses.load(&*csi.host, &csi.places).await.map_err(step(first))?;

    let folder = csi.places.pod_volume(&wish.id.uid, &volume.spec_name);
    let place = match volume.lifecycle {
        Lifecycle::Persistent => csi.places.global_mount(&volume.driver, &volume.handle),
        Lifecycle::Ephemeral => folder.join(MOUNT),
    };
    let _alone = csi.uses.lock(&place).await;
    let abilities = client.capabilities().await.map_err(|error| step(first)(error.to_string()))?;
    let work = Work { csi, wish, spec, client, abilities, publish_context, folder: &folder, place: &place };
    // An earlier life may have mounted it: then what is there stays, whatever comes of this.
    let known = matches!(data::read(&*csi.host, &folder).await, Ok(Found::Data(_)));
    let done = Box::pin(work.whole()).await;
    if let Err(problem) = &done
        && problem.over
        && !known
        && !wish.again
    {
        work.give_up().await;
    }
    let refresh_at = done.map_err(|problem| problem.failure)?;
    Ok(Published { path: folder.join(MOUNT), refresh_at })
}

/// A step that failed.
struct Problem {
    failure: Failure,
    /// Nothing goes on in the driver, so what was prepared may be removed.
    over: bool,
}

struct Work<'a> {
    csi: &'a Arc<Csi>,
    wish: &'a Wish,
    spec: Option<&'a CSIDriverSpec>,
    client: DriverClient,
    abilities: Capabilities,
    publish_context: Strings,
    folder: &'a Path,
    place: &'a Path,
}

impl Work<'_> {
    /// Says when the driver wants to be asked again.
    async fn whole(&self) -> Result<Option<jiff::Timestamp>, Problem> {
        let (csi, wish) = (self.csi, self.wish);
        let volume = &wish.volume;
        let before = |message| Problem { failure: Failure { step: SET_UP, message }, over: true };
        supports_lifecycle(volume, self.spec).map_err(before)?;
        let policy = group_policy(self.spec).map_err(before)?;
        // Before anything else is made: who takes the pod down finds the volume by it.
        self.remember().await.map_err(before)?;
        if volume.lifecycle == Lifecycle::Persistent {
            csi.uses.add(self.place, &wish.id.uid);
            self.check_label().await.map_err(before)?;
            if !csi.uses.is_staged(self.place) {
                self.stage().await?;
                csi.uses.set_staged(self.place, true);
            }
        }
        let refresh_at = self.publish().await?;
        if !self.abilities.mount_group && takes_group(volume, wish.fs_group, policy) {
            self.set_group().await?;
        }
        let staging =
            (volume.lifecycle == Lifecycle::Persistent && self.abilities.stage).then_some(self.place);
        let at = expand::At { place: self.place, path: &self.folder.join(MOUNT), staging };
        expand::during_mount(csi, wish, &self.client, self.abilities, at)
            .await
            .map_err(|message| Problem { failure: Failure { step: EXPAND, message }, over: false })?;
        Ok(refresh_at)
    }

    /// What was staged with another SELinux label has to be unstaged first, which is not for this pod to do while others
    /// use it.
    async fn check_label(&self) -> Result<(), String> {
        let (csi, wanted) = (self.csi, &self.wish.context);
        if !self.abilities.stage || !csi.uses.is_staged(self.place) {
            return Ok(());
        }
        let beside = self.place.parent().unwrap_or(self.place);
        match data::read(&*csi.host, beside).await {
            Ok(Found::Data(staged)) if staged.context != *wanted => Err(format!(
                "conflicting SELinux labels of volume {}: {:?} and {:?}",
                self.wish.volume.spec_name,
                staged.context.unwrap_or_default(),
                wanted.as_deref().unwrap_or_default()
            )),
            _ => Ok(()),
        }
    }

    async fn remember(&self) -> Result<(), String> {
        let (csi, volume) = (self.csi, &self.wish.volume);
        let made = csi.host.make_folder(self.folder, 0o750, 0o750).await;
        made.map_err(|error| {
            let what = told("mkdir", self.folder, &error);
            format!("kubernetes.io/csi: mounter.SetUpAt failed to create dir {what}")
        })?;
        let data = VolumeData {
            attachment_id: Some(attachment_name(&volume.handle, &volume.driver, &csi.node_name)),
            driver: volume.driver.clone(),
            node: Some(csi.node_name.clone()),
            context: self.wish.context.clone(),
            spec_name: Some(volume.spec_name.clone()),
            handle: volume.handle.clone(),
            lifecycle: Some(volume.lifecycle),
        };
        data::write(&*csi.host, self.folder, &data).await
    }

    async fn stage(&self) -> Result<(), Problem> {
        let (csi, volume) = (self.csi, &self.wish.volume);
        let before = |message| Problem { failure: Failure { step: MOUNT_DEVICE, message }, over: true };
        let secrets = match &volume.stage_secret {
            Some(secret) if self.abilities.stage => {
                csi.secret(secret, "NodeStageSecretRef").await.map_err(before)?
            }
            _ => Strings::new(),
        };
        let made = csi.host.make_folder(self.place, 0o750, 0o750).await;
        made.map_err(|error| {
            let what = told("mkdir", self.place, &error);
            before(format!("kubernetes.io/csi: attacher.MountDevice failed to create dir {what}"))
        })?;
        if !self.abilities.stage {
            return Ok(());
        }
        let data = VolumeData {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            context: self.wish.context.clone(),
            ..VolumeData::default()
        };
        let beside = self.place.parent().unwrap_or(self.place);
        data::write(&*csi.host, beside, &data).await.map_err(before)?;
        csi.uses.hold(self.place, &volume.driver, &volume.handle);
        let group = self.wish.fs_group.filter(|_| self.abilities.mount_group);
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.place.display().to_string(),
            volume_capability: Some(capability(volume, self.abilities, Kind::Mount { group })),
            secrets,
            volume_context: volume.attributes.clone(),
        };
        let staged = self.client.stage(request).await;
        if staged.as_ref().is_err_and(CallError::is_final)
            && csi.uses.is_only_user(self.place, &self.wish.id.uid)
        {
            match unmount::remove(csi, beside, GLOBAL_MOUNT).await {
                Ok(()) => csi.uses.let_go(self.place),
                Err(error) => {
                    tracing::warn!(folder = %beside.display(), error, "Failed to remove the place of a volume");
                }
            }
        }
        staged.map_err(|error| called(MOUNT_DEVICE, &error))
    }

    async fn publish(&self) -> Result<Option<jiff::Timestamp>, Problem> {
        let (csi, wish) = (self.csi, self.wish);
        let volume = &wish.volume;
        // What is staged already stays so until the next try.
        let over = volume.lifecycle == Lifecycle::Ephemeral;
        let before = |message| Problem { failure: Failure { step: SET_UP, message }, over };
        let mut secrets = match &volume.publish_secret {
            Some(secret) => csi.secret(secret, "NodePublishSecretRef").await.map_err(before)?,
            None => Strings::new(),
        };
        let tokens = context::tokens(csi, self.spec, wish).await.map_err(|error| {
            before(format!(
                "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: {error}"
            ))
        })?;
        let mut attributes = volume.attributes.clone();
        attributes.extend(context::pod_info(self.spec, wish));
        attributes.extend(tokens.attributes);
        secrets.extend(tokens.secrets);
        let staged = volume.lifecycle == Lifecycle::Persistent && self.abilities.stage;
        let group = wish.fs_group.filter(|_| self.abilities.mount_group);
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: if staged { self.place.display().to_string() } else { String::new() },
            target_path: self.folder.join(MOUNT).display().to_string(),
            volume_capability: Some(capability(volume, self.abilities, Kind::Mount { group })),
            readonly: volume.read_only,
            secrets,
            volume_context: attributes,
        };
        let published = self.client.publish(request).await;
        published.map_err(|error| {
            let problem = called(SET_UP, &error);
            Problem { over: problem.over && over, ..problem }
        })?;
        // Also for the sake of tokens only a driver that says so is asked again, as upstream (v1.36).
        let republish = self.spec.is_some_and(|spec| spec.requires_republish == Some(true));
        let again = republish.then(|| csi.clock.now() + REPUBLISH);
        Ok(again.map(|again| tokens.refresh_at.map_or(again, |token| token.min(again))))
    }

    async fn set_group(&self) -> Result<(), Problem> {
        let Some(group) = self.wish.fs_group else { return Ok(()) };
        let change = GroupChange { group, read_only: false, only_on_mismatch: self.wish.on_root_mismatch };
        let path = self.folder.join(MOUNT);
        let (csi, id) = (self.csi, &self.wish.id);
        let given = ownership::give(&*csi.host, &*csi.events, id, &path, change).await;
        given.map_err(|error| {
            let volume = &self.wish.volume.handle;
            let message = format!("applyFSGroup failed for vol {volume}: {}", told("lstat", &path, &error));
            Problem { failure: Failure { step: SET_UP, message }, over: false }
        })
    }

    /// The driver has refused: nothing of the volume stays with the pod.
    async fn give_up(&self) {
        let (csi, uid) = (self.csi, &self.wish.id.uid);
        if let Err(error) = unmount::remove(csi, self.folder, MOUNT).await {
            tracing::warn!(folder = %self.folder.display(), error, "Failed to remove what is left of a volume");
            return;
        }
        if self.wish.volume.lifecycle == Lifecycle::Persistent && csi.uses.remove(self.place, uid) {
            csi.unstaging.add_mount(&self.wish.volume, self.place);
        }
    }
}

fn called(step: &'static str, error: &CallError) -> Problem {
    Problem { failure: Failure { step, message: error.to_string() }, over: error.is_final() }
}

impl Csi {
    /// What the attacher has to tell the driver; nothing where the driver's volumes are not attached.
    pub(super) async fn attachment(
        &self,
        volume: &Wanted,
        spec: Option<&CSIDriverSpec>,
    ) -> Result<Strings, String> {
        let skipped = spec.is_some_and(|spec| spec.attach_required == Some(false));
        if volume.lifecycle == Lifecycle::Ephemeral || skipped {
            return Ok(Strings::new());
        }
        let handle = &volume.handle;
        let name = attachment_name(handle, &volume.driver, &self.node_name);
        let attachment = self.objects.attachment(&name).await.map_err(|error| {
            format!("volume {handle} has GET error for volume attachment {name}: {error}")
        })?;
        if attachment.metadata.deletion_timestamp.is_some() {
            return Err("volume attachment is being deleted".to_owned());
        }
        let status = attachment.status.unwrap_or_default();
        match status.attach_error.filter(|_| !status.attached) {
            Some(error) => Err(error.message.unwrap_or_default()),
            None if status.attached => Ok(status.attachment_metadata.unwrap_or_default()),
            None => Err(format!("volume {handle} is not attached for volume attachment {name}")),
        }
    }

    pub(super) fn client(&self, volume: &Wanted, caller: &str) -> Result<DriverClient, String> {
        let failed = |error| format!("kubernetes.io/csi: {caller}: {error}");
        self.drivers.client(&volume.driver).map_err(failed)
    }

    pub(super) async fn secret(&self, secret: &SecretRef, field: &str) -> Result<Strings, String> {
        let SecretRef { namespace, name } = secret;
        let failed = |error| format!("fetching {field} {namespace}/{name} failed: {error}");
        self.objects.credentials(namespace, name).await.map_err(failed)
    }
}

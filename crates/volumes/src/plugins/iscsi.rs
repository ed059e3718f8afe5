//! Disks of an iSCSI target, by the host's own `iscsiadm`.

mod login;
mod logout;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crablet_model::api;
use crablet_planner::pod::config::MountedVolume;
use serde_json::{Value, json};

use super::disk::Shown;
use super::{Request, scsi};
use crate::claims::Claimed;
use crate::failure::{Failure, Step};
use crate::volumes::Context;
use crate::{attach as attachments, claims};

pub use logout::sweep;

pub const FOLDER: &str = "kubernetes.io~iscsi";
const PLUGIN: &str = "plugins/kubernetes.io/iscsi";
const PORT: u16 = 3260;

/// A unit of a target, and the ways to it.
#[derive(Debug)]
pub struct Disk {
    name: String,
    portals: Vec<String>,
    target: String,
    unit: u32,
    /// The interface that is there, and the one that is used: a copy of it where the volume has its own initiator.
    first_interface: String,
    interface: String,
    initiator: String,
    chap_discovery: bool,
    chap_session: bool,
    /// Where the secret of CHAP lies: namespace and name.
    secret: Option<(Option<String>, String)>,
    fs_type: String,
    read_only: bool,
}

impl Disk {
    pub fn of_pod(name: &str, source: &api::ISCSIVolumeSource) -> Self {
        let disk = Self {
            name: name.to_owned(),
            portals: portals(&source.target_portal, source.portals.as_deref()),
            target: source.iqn.clone(),
            unit: u32::try_from(source.lun).unwrap_or_default(),
            first_interface: source.iscsi_interface.clone().unwrap_or_else(|| "default".to_owned()),
            interface: String::new(),
            initiator: source.initiator_name.clone().unwrap_or_default(),
            chap_discovery: source.chap_auth_discovery.unwrap_or(false),
            chap_session: source.chap_auth_session.unwrap_or(false),
            secret: source.secret_ref.as_ref().map(|secret| (None, secret.name.clone())),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only: source.read_only.unwrap_or(false),
        };
        disk.with_interface()
    }

    pub fn of_volume(claimed: &Claimed, source: &api::ISCSIPersistentVolumeSource) -> Self {
        let secret = source
            .secret_ref
            .as_ref()
            .map(|secret| (secret.namespace.clone(), secret.name.clone().unwrap_or_default()));
        let disk = Self {
            name: claimed.name().to_owned(),
            portals: portals(&source.target_portal, source.portals.as_deref()),
            target: source.iqn.clone(),
            unit: u32::try_from(source.lun).unwrap_or_default(),
            first_interface: source.iscsi_interface.clone().unwrap_or_else(|| "default".to_owned()),
            interface: String::new(),
            initiator: source.initiator_name.clone().unwrap_or_default(),
            chap_discovery: source.chap_auth_discovery.unwrap_or(false),
            chap_session: source.chap_auth_session.unwrap_or(false),
            secret,
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only: claimed.read_only,
        };
        disk.with_interface()
    }

    fn with_interface(mut self) -> Self {
        self.interface = match self.initiator.is_empty() {
            true => self.first_interface.clone(),
            false => format!("{}:{}", self.portals[0], self.name),
        };
        self
    }

    pub fn global(&self, root: &Path, block: bool) -> PathBuf {
        let plugin = root.join(PLUGIN);
        let plugin = if block { plugin.join("volumeDevices") } else { plugin };
        let name = format!("{}-{}-lun-{}", self.portals[0], self.target, self.unit);
        plugin.join(format!("iface-{}", self.interface)).join(name)
    }

    /// As controllers name it.
    fn unique_name(&self) -> String {
        let portal = self.portals[0].strip_suffix(&format!(":{PORT}")).unwrap_or(&self.portals[0]);
        format!("kubernetes.io/iscsi/{portal}:{}:{}", self.target, self.unit)
    }

    /// Upstream's `iscsi.json`, by which the disk is detached later.
    fn saved(&self) -> Value {
        json!({
            "VolName": self.name,
            "Portals": self.portals,
            "Iqn": self.target,
            "Lun": self.unit.to_string(),
            "InitIface": self.first_interface,
            "Iface": self.interface,
            "InitiatorName": self.initiator,
            "MetricsProvider": null,
        })
    }
}

/// All of them with a port, each once, the first one first.
fn portals(first: &str, others: Option<&[String]>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for portal in std::iter::once(first).chain(others.into_iter().flatten().map(String::as_str)) {
        let has_port = portal.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let portal = if has_port { portal.to_owned() } else { format!("{portal}:{PORT}") };
        if !all.contains(&portal) {
            all.push(portal);
        }
    }
    all
}

pub async fn set_up(
    request: &Request<'_>,
    disk: &Disk,
    options: Vec<String>,
) -> Result<MountedVolume, Failure> {
    let global = disk.global(&request.ctx.root_dir, false);
    let _held = request.ctx.locks.hold(&global).await;
    let device = attach(request, disk, false).await?;
    let shown =
        Shown { plugin: FOLDER, name: &disk.name, source: &global, read_only: disk.read_only, options };
    scsi::mount_and_show(request, &device, &disk.fs_type, &global, shown).await
}

pub async fn attach(request: &Request<'_>, disk: &Disk, block: bool) -> Result<PathBuf, Failure> {
    let ctx = request.ctx;
    if ctx.api.is_some() {
        let volume = disk.unique_name();
        ctx.attachments.want(&volume, &request.id.uid);
        attachments::check(&ctx.storage.borrow(), &volume)?;
    }
    let secret = match disk.chap_discovery || disk.chap_session {
        true => secret(request, disk).await?,
        false => BTreeMap::new(),
    };
    // Two volumes of one target must not log in and out at once.
    let _held = ctx.locks.hold(Path::new(&disk.target)).await;
    let device = login::login(ctx, disk, &secret).await;
    let device = device.map_err(|text| Failure::at(Step::Mount("MountVolume.WaitForAttach failed"), text))?;
    save(ctx, disk, block).await?;
    Ok(device)
}

async fn secret(request: &Request<'_>, disk: &Disk) -> Result<BTreeMap<String, String>, Failure> {
    let Some((namespace, name)) = &disk.secret else {
        return Err("CHAP is asked for, and the volume names no secret".to_owned().into());
    };
    let data = match (namespace, request.ctx.api.as_deref()) {
        (Some(namespace), Some(api)) => {
            let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
            let found: Result<api::Secret, _> = claims::get(api, path).await;
            let found =
                found.map_err(|error| format!("couldn't get secret {namespace}/{name} err: {error}"))?;
            found.data
        }
        _ => request.ctx.objects.secret(&request.id.namespace, name).await?.data.clone(),
    };
    let text = |value: k8s_openapi::ByteString| String::from_utf8_lossy(&value.0).into_owned();
    Ok(data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect())
}

/// A volume that is mounted has been saved before, and hides the place.
async fn save(ctx: &Context, disk: &Disk, block: bool) -> Result<(), String> {
    let global = disk.global(&ctx.root_dir, block);
    let host = &ctx.host;
    let told = |call: &str, error: std::io::Error| crate::port::told(call, &global, &error);
    host.make_folder(&global, 0o750, 0o750).await.map_err(|error| told("mkdir", error))?;
    let mounts = host.mounts(&global).await.map_err(|error| told("read mounts of", error))?;
    if !block && crate::devices::is_mounted(&global, &mounts) {
        return Ok(());
    }
    let text = format!("{}\n", disk.saved());
    host.write_file(&global.join("iscsi.json"), text.as_bytes()).await.map_err(|error| told("write", error))
}

//! Volumes that belong to a claim: found by it, checked, and set up by their kind.

use std::path::{Path, PathBuf};

use crablet_model::api;
use crablet_model::events::Event;
use crablet_planner::node::admission::terms_match;
use crablet_planner::pod::config::MountedVolume;

use super::{Ready, Request, fc, host_path, iscsi, local, nfs};
use crate::claims::{self, Claimed};
use crate::csi::{CsiRequest, CsiSource, Grown};
use crate::failure::{Failure, Step};
use crate::{attach, block, selinux, tenants};

const IN_USE: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

pub async fn set_up(request: &Request<'_>, claim: &str, read_only: bool) -> Result<Ready, Failure> {
    let claimed = claims::resolve(request, claim, read_only).await?;
    let (name, group) = (claimed.name().to_owned(), claimed.group());
    let is_block = claimed.is_block();
    let failed = |failure: Failure| {
        let failure = if is_block { failure.of_device() } else { failure };
        failure.of(&name)
    };
    check(request, &claimed).await.map_err(failed)?;
    let ready = match is_block {
        true => map(request, &claimed).await.map(Ready::from),
        false => mount(request, &claimed).await,
    };
    let mut ready = ready.map_err(failed)?;
    ready.mounted.group = group;
    ready.disk_name = Some(name);
    Ok(ready)
}

async fn check(request: &Request<'_>, claimed: &Claimed) -> Result<(), Failure> {
    let Some(spec) = claimed.spec() else { return Err("no volume plugin matched".to_owned().into()) };
    let node = request.ctx.storage.borrow().clone();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required
        && !terms_match(&required.node_selector_terms, &node.name, &node.labels)
    {
        let step = Step::Mount("MountVolume.NodeAffinity check failed");
        return Err(Failure::at(step, "no matching NodeSelectorTerms"));
    }
    // More than one mode leaves open which of them this pod means.
    let for_one_pod = spec.access_modes.as_deref() == Some(&["ReadWriteOncePod".to_owned()]);
    let (ctx, name, pod) = (request.ctx, claimed.name(), &request.id.uid);
    if for_one_pod && tenants::lies_elsewhere(ctx, name, pod).await? {
        return Err(IN_USE.to_owned().into());
    }
    match ctx.tenants.enter(name, pod, for_one_pod) {
        true => Ok(()),
        false => Err(IN_USE.to_owned().into()),
    }
}

async fn mount(request: &Request<'_>, claimed: &Claimed) -> Result<Ready, Failure> {
    let Some(spec) = claimed.spec() else { return Err("no volume plugin matched".to_owned().into()) };
    let read_only = claimed.read_only;
    let mut options = claimed.mount_options();
    let context = selinux_label(request, spec).await?;
    if let Some(source) = &spec.local {
        return local::set_up(request, claimed, source).await.map(Ready::from);
    }
    if let Some(source) = &spec.nfs {
        return nfs::set_up(request, claimed.name(), source, read_only, options).await.map(Ready::from);
    }
    if let Some(source) = &spec.iscsi {
        let disk = iscsi::Disk::of_volume(claimed, source);
        options.extend(context.as_deref().map(selinux::option));
        let mounted = iscsi::set_up(request, &disk, options).await?;
        return Ok(labelled(mounted, context.as_deref()).into());
    }
    if let Some(source) = &spec.fc {
        let disk = fc::Disk::of(claimed.name(), source, read_only);
        options.extend(context.as_deref().map(selinux::option));
        let mounted = fc::set_up(request, &disk, options).await?;
        return Ok(labelled(mounted, context.as_deref()).into());
    }
    if let Some(driver) = &spec.csi {
        wait_for_attachment(request, driver).await?;
        return csi_mount(request, claimed, context).await;
    }
    if let Some(source) = &spec.host_path {
        if !options.is_empty() {
            let step = Step::Mount("MountVolume.MountOptionSupport check failed");
            return Err(Failure::at(step, "mount options are not supported for this volume type"));
        }
        let mounted = host_path::set_up(request, source).await?;
        return Ok(Ready::from(MountedVolume { read_only, ..mounted }));
    }
    Err(unknown(spec))
}

async fn map(request: &Request<'_>, claimed: &Claimed) -> Result<MountedVolume, Failure> {
    let Some(spec) = claimed.spec() else { return Err("no volume plugin matched".to_owned().into()) };
    let (ctx, name) = (request.ctx, claimed.name());
    // Whoever attaches a device holds its lock until a pod shows for it, or it would be taken for unused.
    let (plugin, device, global, _held) = if let Some(source) = &spec.local {
        let global = block::global_map(&ctx.root_dir, local::FOLDER, name);
        let held = ctx.locks.hold(&global).await;
        (local::FOLDER, local::device(claimed, source)?, global, held)
    } else if let Some(source) = &spec.iscsi {
        let disk = iscsi::Disk::of_volume(claimed, source);
        let global = disk.global(&ctx.root_dir, true);
        let held = ctx.locks.hold(&global).await;
        (iscsi::FOLDER, iscsi::attach(request, &disk, true).await?, global, held)
    } else if let Some(source) = &spec.fc {
        let disk = fc::Disk::of(name, source, claimed.read_only);
        let global = disk.global(&ctx.root_dir, true);
        let held = ctx.locks.hold(&global).await;
        (fc::FOLDER, fc::attach(request, &disk).await?, global, held)
    } else if let Some(source) = &spec.csi {
        wait_for_attachment(request, source).await?;
        let (device, global) = csi_map(request, claimed).await?;
        let held = ctx.locks.hold(&global).await;
        (crate::teardown::CSI, device, global, held)
    } else {
        return Err(unknown(spec));
    };
    let link = block::map(ctx, &request.id.uid, plugin, name, &device, &global)
        .await
        .map_err(|text| Failure::at(Step::Map("MapVolume.MapBlockVolume failed"), text))?;
    if !request.again {
        for (what, path) in [("globalMapPath", global.as_path()), ("volumeMapPath", parent(&link))] {
            let text = format!(
                "MapVolume.MapPodDevice succeeded for volume {name:?} {what} {:?}",
                path.display().to_string()
            );
            request.ctx.events.emit(Event::normal(request.id, "SuccessfulMountVolume", text));
        }
    }
    let host_path = link.display().to_string();
    Ok(MountedVolume { host_path, read_only: claimed.read_only, block: true, ..Default::default() })
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// A kind that upstream knows no more, or that this agent does not know yet.
fn unknown(spec: &api::PersistentVolumeSpec) -> Failure {
    let not_kinds = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
    ];
    let not_kinds_either = ["storageClassName", "volumeAttributesClassName", "volumeMode"];
    let json = serde_json::to_value(spec).unwrap_or_default();
    let mut keys = json.as_object().into_iter().flat_map(|fields| fields.keys());
    let kind =
        keys.find(|key| !not_kinds.contains(&key.as_str()) && !not_kinds_either.contains(&key.as_str()));
    Failure::from(match kind {
        Some(kind) => format!("volumes of kind `{kind}` are not supported yet"),
        None => "no volume plugin matched".to_owned(),
    })
}

/// A driver whose volumes a controller attaches: not before it has.
async fn wait_for_attachment(
    request: &Request<'_>,
    source: &api::CSIPersistentVolumeSource,
) -> Result<(), Failure> {
    let Some(csi) = &request.ctx.csi else { return Err(super::no_csi(&source.driver)) };
    if !csi.attach_required(&source.driver).await.map_err(Failure::from)? {
        return Ok(());
    }
    let volume = crate::csi::unique_name(&source.driver, &source.volume_handle);
    request.ctx.attachments.want(&volume, &request.id.uid);
    let attached = attach::check(&request.ctx.storage.borrow(), &volume).map(drop);
    let of_driver = Some(Box::new((source.driver.clone(), source.volume_handle.clone())));
    attached.map_err(|failure| Failure { unattached: of_driver, ..failure })
}

async fn csi_mount(
    request: &Request<'_>,
    claimed: &Claimed,
    context: Option<String>,
) -> Result<Ready, Failure> {
    let Some(csi) = &request.ctx.csi else { return Err("no volume plugin matched".to_owned().into()) };
    let wish = CsiRequest { context: context.clone(), ..request.csi(source(claimed)) };
    let published = csi.set_up(&wish).await.map_err(super::of_driver)?;
    let read_only = claimed.read_only;
    let host_path = published.path.display().to_string();
    let mounted = MountedVolume { host_path, read_only, relabel: !read_only, ..Default::default() };
    let mounted = labelled(mounted, context.as_deref());
    Ok(Ready { mounted, refresh_at: published.refresh_at, disk_name: None })
}

/// The SELinux label to mount the volume with, where its plugin takes one.
async fn selinux_label(
    request: &Request<'_>,
    spec: &api::PersistentVolumeSpec,
) -> Result<Option<String>, Failure> {
    let Some(selinux) = &request.ctx.selinux else { return Ok(None) };
    let takes_label = match (&spec.csi, &request.ctx.csi) {
        (Some(source), Some(csi)) => csi.takes_selinux_label(&source.driver).await?,
        _ => spec.iscsi.is_some() || spec.fc.is_some(),
    };
    match takes_label {
        true => selinux.context(request.spec, request.name(), spec.access_modes.as_deref()),
        false => Ok(None),
    }
}

/// What is mounted with a label needs none from the runtime.
fn labelled(mounted: MountedVolume, context: Option<&str>) -> MountedVolume {
    MountedVolume { relabel: mounted.relabel && context.is_none(), ..mounted }
}

/// Has the driver expand a volume that the pod has, if the cluster has made it larger.
pub async fn grow(request: &Request<'_>, claimed: &Claimed, is_block: bool) -> Result<Grown, String> {
    let is_of_driver = claimed.spec().is_some_and(|spec| spec.csi.is_some());
    let Some(csi) = request.ctx.csi.as_ref().filter(|_| is_of_driver) else { return Ok(Grown::Settled) };
    csi.grow(&request.csi(source(claimed)), is_block).await
}

async fn csi_map(request: &Request<'_>, claimed: &Claimed) -> Result<(PathBuf, PathBuf), Failure> {
    let Some(csi) = &request.ctx.csi else { return Err("no volume plugin matched".to_owned().into()) };
    let mapped = csi.map(&request.csi(source(claimed))).await.map_err(super::of_driver)?;
    Ok((mapped.device, mapped.global_map))
}

fn source(claimed: &Claimed) -> CsiSource<'_> {
    CsiSource::Claimed { pv: &claimed.volume, claim: &claimed.claim, read_only: claimed.read_only }
}

//! A folder that begins empty. Volumes of files lie in one too.

use std::collections::BTreeSet;
use std::path::Path;

use crablet_model::api;
use crablet_model::quantity::Quantity;
use crablet_planner::pod::config::MountedVolume;
use tracing::warn;

use super::{Request, size};
use crate::layout::{EMPTY_DIR, PodLayout};
use crate::port::{GroupChange, MemoryFs, Mounted, PathKind, reason, told};
use crate::volumes::Context;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    Disk,
    Memory,
    /// Of this page size, or of the one that the pod requests.
    HugePages(Option<String>),
}

impl Medium {
    fn of(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("HugePages-")) {
            ("", _) => Ok(Self::Disk),
            ("Memory", _) => Ok(Self::Memory),
            ("HugePages", _) => Ok(Self::HugePages(None)),
            (_, Some(size)) => Ok(Self::HugePages(Some(size.to_owned()))),
            _ => Err(format!("unknown storage medium {text:?}")),
        }
    }
}

pub async fn set_up(
    request: &Request<'_>,
    source: &api::EmptyDirVolumeSource,
) -> Result<MountedVolume, String> {
    let folder = request.layout.volume(EMPTY_DIR, request.name());
    let medium = Medium::of(source.medium.as_deref().unwrap_or_default())?;
    let limit = source.size_limit.as_ref().and_then(|limit| Quantity::try_from(limit).ok());
    make(request, request.name(), &folder, &medium, limit).await?;
    Ok(MountedVolume { host_path: folder.display().to_string(), relabel: true, ..Default::default() })
}

/// Makes an empty folder, unless its marker says that it was made. What is in it then belongs to the containers.
pub async fn make(
    request: &Request<'_>,
    marker: &str,
    folder: &Path,
    medium: &Medium,
    limit: Option<Quantity>,
) -> Result<(), String> {
    let host = &request.ctx.host;
    let marker_folder = request.layout.markers().join(marker);
    let ready_file = marker_folder.join("ready");
    let look = |path: &Path, error: std::io::Error| told("stat", path, &error);
    if host.kind(&ready_file).await.map_err(|error| look(&ready_file, error))? == Some(PathKind::File) {
        match medium {
            Medium::Memory if mounted_at(request.ctx, folder).await?.is_some() => return Ok(()),
            Medium::Disk => {
                if host.kind(folder).await.map_err(|error| look(folder, error))?.is_some() {
                    return Ok(());
                }
                warn!(path = %folder.display(), "The folder of a volume that was ready is gone: made again");
                host.remove_tree(&marker_folder)
                    .await
                    .map_err(|error| told("remove", &marker_folder, &error))?;
            }
            _ => {}
        }
    }
    host.make_folder(folder, 0o777, 0o755).await.map_err(|error| told("mkdir", folder, &error))?;
    match medium {
        Medium::Disk => {}
        Medium::Memory => {
            let size = size::of_memory(request.ctx, request.spec, limit);
            mount(request, folder, MemoryFs::Tmpfs { size }).await?;
        }
        Medium::HugePages(page_size) => mount_huge_pages(request, folder, page_size.as_deref()).await?,
    }
    if let Some(group) = request.owners.group {
        let change = GroupChange { group, read_only: false, only_on_mismatch: false };
        if let Err(error) = request.give(folder, change).await {
            // As upstream: the pod starts, and what it cannot write it will tell itself.
            warn!(path = %folder.display(), group, error, "Failed to give a volume to its group");
        }
    }
    host.make_folder(&marker_folder, 0o750, 0o750)
        .await
        .map_err(|error| told("mkdir", &marker_folder, &error))?;
    host.make_file(&ready_file, 0o644).await.map_err(|error| told("open", &ready_file, &error))
}

/// Takes away the marker, the mount and the folder. What is mounted deeper is not ours, and stops the removal.
pub async fn remove(ctx: &Context, layout: &PodLayout, marker: &str, folder: &Path) -> Result<(), String> {
    let marker = layout.markers().join(marker);
    ctx.host
        .remove_tree(&marker)
        .await
        .map_err(|error| format!("failed to remove ready dir [{}]: {}", marker.display(), reason(&error)))?;
    for _ in mounts_at(ctx, folder).await? {
        ctx.host.unmount(folder, false).await.map_err(|error| told("unmount", folder, &error))?;
    }
    ctx.host.remove_tree(folder).await.map_err(|error| told("remove", folder, &error))
}

/// The topmost mount of the folder.
async fn mounted_at(ctx: &Context, folder: &Path) -> Result<Option<Mounted>, String> {
    Ok(mounts_at(ctx, folder).await?.pop())
}

async fn mounts_at(ctx: &Context, folder: &Path) -> Result<Vec<Mounted>, String> {
    let mounts = ctx.host.mounts(folder).await;
    let mut mounts = mounts.map_err(|error| format!("error listing mount points: {}", reason(&error)))?;
    mounts.retain(|mounted| mounted.path == folder);
    Ok(mounts)
}

async fn mount(request: &Request<'_>, folder: &Path, fs: MemoryFs) -> Result<(), String> {
    if mounted_at(request.ctx, folder).await?.is_some_and(|mounted| mounted.fs_type == "tmpfs") {
        return Ok(());
    }
    request.ctx.host.mount(&fs, folder).await.map_err(|error| told("mount", folder, &error))
}

async fn mount_huge_pages(request: &Request<'_>, folder: &Path, wanted: Option<&str>) -> Result<(), String> {
    let parse = |text: &str| Quantity::parse(text).map_err(|error| error.to_string());
    if let Some(mounted) = mounted_at(request.ctx, folder).await?.filter(|m| m.fs_type == "hugetlbfs") {
        let Some(wanted) = wanted else { return Ok(()) };
        let found = mounted.options.split(',').find_map(|option| option.trim().strip_prefix("pagesize="));
        let (uid, folder) = (&request.id.uid, folder.display());
        let found = found.ok_or_else(|| format!("no pagesize option specified for {folder} mount"))?;
        // The kernel says `2M` for what a quantity calls `2Mi`.
        let found = parse(&if found.ends_with('i') { found.to_owned() } else { format!("{found}i") })?;
        let wanted = parse(wanted)?;
        return if found == wanted {
            Ok(())
        } else {
            Err(format!(
                "pod {uid}: mounted dir {folder} pagesize '{found}' and requested medium size '{wanted}' differ"
            ))
        };
    }
    let page_size = page_size(request.spec, wanted)?;
    let fs = MemoryFs::HugePages { page_size };
    request.ctx.host.mount(&fs, folder).await.map_err(|error| told("mount", folder, &error))
}

/// Requests and limits of huge pages are always equal, so requests decide.
fn page_size(spec: &api::PodSpec, wanted: Option<&str>) -> Result<String, String> {
    let of_pod = spec.resources.iter();
    let of_containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .filter_map(|c| c.resources.as_ref());
    let names = of_pod
        .chain(of_containers)
        .flat_map(|r| r.requests.iter().flatten())
        .filter_map(|(name, _)| name.strip_prefix("hugepages-"));
    let parse = |text: &str| Quantity::parse(text).map_err(|error| error.to_string());
    let mut sizes = BTreeSet::new();
    for name in names {
        sizes.insert(parse(name)?);
    }
    let medium = wanted.map_or("HugePages".to_owned(), |size| format!("HugePages-{size}"));
    let missing = || {
        format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    };
    match wanted {
        Some(wanted) => {
            let wanted = parse(wanted)?;
            sizes.get(&wanted).map(Quantity::to_string).ok_or_else(missing)
        }
        None if sizes.len() > 1 => {
            Err(format!("medium: {medium} can't be used if container requests multiple huge page sizes"))
        }
        None => sizes.first().map(Quantity::to_string).ok_or_else(missing),
    }
}

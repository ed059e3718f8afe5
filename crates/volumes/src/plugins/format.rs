//! Mounting a disk, with a new file system if it has none.

use std::path::Path;
use std::time::Duration;

use tracing::{info, warn};

use crate::port::{MountFrom, reason};
use crate::volumes::Context;

const DEFAULT: &str = "ext4";
const LOOK: Duration = Duration::from_secs(60);
/// Large disks take a while.
const MAKE: Duration = Duration::from_secs(600);

pub async fn mount(
    ctx: &Context,
    disk: &str,
    target: &Path,
    fs_type: &str,
    mut options: Vec<String>,
) -> Result<(), String> {
    let read_only = options.iter().any(|option| option == "ro");
    options.push("defaults".to_owned());
    let fs_type = if fs_type.is_empty() { DEFAULT } else { fs_type };
    let found = format_of(ctx, disk)
        .await
        .map_err(|error| format!("failed to get disk format of disk {disk}: {error}"))?;
    match found {
        None if read_only => {
            return Err(format!(
                "cannot mount unformatted disk {disk} as we are manipulating it in read-only mode"
            ));
        }
        None => make(ctx, disk, target, fs_type, &options).await?,
        Some(found) => {
            if found != fs_type {
                warn!(
                    disk,
                    wanted = fs_type,
                    found,
                    "The disk has another file system than the volume asks for"
                );
            }
            if !read_only {
                repair(ctx, disk).await?;
            }
        }
    }
    let wish = MountFrom { source: disk.to_owned(), fs_type: fs_type.to_owned(), options, outlives_us: true };
    ctx.host.mount_from(&wish, target).await
}

/// What is on the disk; `None` when nothing is.
async fn format_of(ctx: &Context, disk: &str) -> Result<Option<String>, String> {
    let args = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk];
    let end = ctx.host.run("blkid", &args, LOOK).await.map_err(|error| reason(&error))?;
    match end.code {
        0 => {}
        2 => return Ok(None),
        code => return Err(format!("exit status {code}")),
    }
    let (mut kind, mut table) = (None, None);
    for line in end.output.lines() {
        match line.split_once('=') {
            Some(("TYPE", value)) => kind = Some(value),
            Some(("PTTYPE", value)) => table = Some(value),
            _ => {}
        }
    }
    // A table of partitions is something that must not be overwritten.
    Ok(match (kind, table) {
        (_, Some(_)) => Some("unknown data, probably partitions".to_owned()),
        (kind, None) => kind.filter(|kind| !kind.is_empty()).map(str::to_owned),
    })
}

async fn make(
    ctx: &Context,
    disk: &str,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), String> {
    let args: &[&str] = match fs_type {
        "ext3" | "ext4" => &["-F", "-m0", disk],
        "xfs" => &["-f", disk],
        _ => &[disk],
    };
    info!(disk, fs_type, "Disk appears to be unformatted, attempting to format it");
    let (code, output) = match ctx.host.run(&format!("mkfs.{fs_type}"), args, MAKE).await {
        Ok(end) if end.is_success() => return Ok(()),
        Ok(end) => (format!("exit status {}", end.code), end.output),
        Err(error) => (reason(&error), String::new()),
    };
    let (target, options) = (target.display().to_string(), options.join(","));
    Err(format!(
        "format of disk {disk:?} failed: type:({fs_type:?}) target:({target:?}) options:({options:?}) \
         errcode:({code}) output:({output}) "
    ))
}

async fn repair(ctx: &Context, disk: &str) -> Result<(), String> {
    let end = match ctx.host.run("fsck", &["-a", disk], MAKE).await {
        Ok(end) => end,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            warn!(disk, "`fsck` is not there: the disk is mounted without a check");
            return Ok(());
        }
        Err(error) => return Err(reason(&error)),
    };
    match end.code {
        0 => {}
        1 => info!(disk, "Disk had errors which were corrected by fsck"),
        4 => {
            return Err(format!(
                "'fsck' found errors on device {disk} but could not correct them: {}.",
                end.output
            ));
        }
        code => info!(disk, code, output = end.output, "`fsck` error"),
    }
    Ok(())
}

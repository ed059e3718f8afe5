//! From a target to a device.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::warn;

use super::Disk;
use crate::plugins::scsi;
use crate::port::reason;
use crate::volumes::Context;

/// Tries for all ways to a disk; with at least two of them, fewer are enough.
const MOST_TRIES: usize = 5;
const ENOUGH_TRIES: usize = 2;
const ENOUGH_WAYS: usize = 2;
const LIMIT: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);
const DEVICE_SECONDS: u32 = 30;
const MULTIPATH_SECONDS: u32 = 10;
/// `iscsiadm`'s word for an interface that has a session already.
const SESSION_EXISTS: i32 = 15;

type Secret = BTreeMap<String, String>;

/// A run that failed: how, and what the tool said.
pub(super) struct Refused {
    pub code: Option<i32>,
    pub why: String,
    pub output: String,
}

pub(super) async fn iscsiadm(ctx: &Context, args: &[&str]) -> Result<String, Refused> {
    match ctx.host.run("iscsiadm", args, LIMIT).await {
        Ok(end) if end.is_success() => Ok(end.output),
        Ok(end) => {
            let why = format!("exit status {}", end.code);
            Err(Refused { code: Some(end.code), why, output: end.output })
        }
        Err(error) => Err(Refused { code: None, why: reason(&error), output: String::new() }),
    }
}

pub async fn login(ctx: &Context, disk: &Disk, secret: &Secret) -> Result<PathBuf, String> {
    let shown = iscsiadm(ctx, &["-m", "iface", "-I", &disk.first_interface, "-o", "show"]).await;
    let shown = shown.map_err(|refused| refused.why)?;
    let transport =
        transport(&shown).ok_or_else(|| format!("could not parse iface file for {}", disk.interface))?;
    if !disk.initiator.is_empty() {
        copy_interface(ctx, disk, &shown).await?;
    }
    let mut ways: BTreeMap<&str, PathBuf> = BTreeMap::new();
    let mut last_error = String::new();
    for round in 1..=MOST_TRIES {
        for portal in &disk.portals {
            if ways.contains_key(portal.as_str()) {
                continue;
            }
            match way(ctx, disk, portal, &transport, secret).await {
                Ok(device) => drop(ways.insert(portal, device)),
                Err(error) => last_error = error,
            }
        }
        if ways.is_empty() {
            let _ = iscsiadm(ctx, &["-m", "iface", "-I", &disk.interface, "-o", "delete"]).await;
            return Err(format!("failed to get any path for iscsi disk, last err seen:\n{last_error}"));
        }
        if ways.len() == disk.portals.len() || (ways.len() >= ENOUGH_WAYS && round >= ENOUGH_TRIES) {
            break;
        }
    }
    let seconds = if disk.portals.len() > 1 { MULTIPATH_SECONDS } else { 1 };
    for second in 0..seconds {
        for device in ways.values() {
            if let Some(map) = scsi::multipath(ctx, device).await {
                return Ok(map);
            }
        }
        if second + 1 < seconds {
            tokio::time::sleep(SECOND).await;
        }
    }
    ways.into_values().next().ok_or(last_error)
}

/// The device behind one portal.
async fn way(
    ctx: &Context,
    disk: &Disk,
    portal: &str,
    transport: &str,
    secret: &Secret,
) -> Result<PathBuf, String> {
    let host = match scsi::portals(ctx, &disk.target).await?.get(portal) {
        Some(host) => *host,
        None => {
            log_in(ctx, disk, portal, secret).await?;
            let portals = scsi::portals(ctx, &disk.target).await?;
            *portals.get(portal).ok_or_else(|| {
                format!("could not get SCSI host number for portal {portal} after logging in")
            })?
        }
    };
    // Only this unit: the kernel shall not know of others, which may go without a word.
    let scan = format!("/sys/class/scsi_host/host{host}/scan");
    let wanted = format!("0 0 {}", disk.unit);
    ctx.host.write_file(Path::new(&scan), wanted.as_bytes()).await.map_err(|error| reason(&error))?;
    device(ctx, disk, portal, transport).await
}

async fn log_in(ctx: &Context, disk: &Disk, portal: &str, secret: &Secret) -> Result<(), String> {
    let interface = disk.interface.as_str();
    let database = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", interface];
    let node = ["-m", "node", "-p", portal, "-T", &disk.target, "-I", interface];
    let _ = iscsiadm(ctx, &[&database[..], &["-o", "new"]].concat()).await;
    if disk.chap_discovery {
        let keys = "discovery.sendtargets.auth";
        chap(ctx, &database, keys, secret, "discoverydb").await.map_err(|error| {
            format!("iscsi: failed to update discoverydb to portal {portal} error: {error}")
        })?;
    }
    if let Err(refused) = iscsiadm(ctx, &[&database[..], &["--discover"]].concat()).await {
        let _ = iscsiadm(ctx, &[&database[..], &["-o", "delete"]].concat()).await;
        let Refused { why, output, .. } = refused;
        return Err(format!("iscsi: failed to sendtargets to portal {portal} output: {output}, err {why}"));
    }
    let manual = ["-o", "update", "-n", "node.session.scan", "-v", "manual"];
    if let Err(refused) = iscsiadm(ctx, &[&node[..], &manual].concat()).await {
        warn!(target = disk.target, output = refused.output, "Failed to set node.session.scan=manual");
    }
    if disk.chap_session {
        chap(ctx, &node, "node.session.auth", secret, "node session").await.map_err(|error| {
            format!("iscsi: failed to update iscsi node to portal {portal} error: {error}")
        })?;
    }
    if let Err(refused) = iscsiadm(ctx, &[&node[..], &["--login"]].concat()).await {
        let _ = iscsiadm(ctx, &[&node[..], &["-o", "delete"]].concat()).await;
        return Err(format!("iscsi: failed to attach disk: Error: {} ({})", refused.output, refused.why));
    }
    // A node that starts must not hang on a target that is gone.
    let startup = [
        "-m",
        "node",
        "-p",
        portal,
        "-T",
        &disk.target,
        "-o",
        "update",
        "-n",
        "node.startup",
        "-v",
        "manual",
    ];
    if let Err(refused) = iscsiadm(ctx, &startup).await {
        warn!(target = disk.target, output = refused.output, "Failed to set iSCSI login mode to manual");
    }
    Ok(())
}

/// What the tool says of a secret is not repeated.
async fn chap(ctx: &Context, record: &[&str], keys: &str, secret: &Secret, what: &str) -> Result<(), String> {
    let method = format!("{keys}.authmethod");
    let update = ["-o", "update", "-n", method.as_str(), "-v", "CHAP"];
    let done = iscsiadm(ctx, &[record, &update].concat()).await;
    done.map_err(|refused| format!("iscsi: failed to update {what} with CHAP, output: {}", refused.output))?;
    for key in ["username", "password", "username_in", "password_in"] {
        let key = format!("{keys}.{key}");
        let Some(value) = secret.get(&key).filter(|value| !value.is_empty()) else { continue };
        let update = ["-o", "update", "-n", key.as_str(), "-v", value.as_str()];
        let done = iscsiadm(ctx, &[record, &update].concat()).await;
        done.map_err(|refused| format!("iscsi: failed to update {what} key {key:?} error: {}", refused.why))?;
    }
    Ok(())
}

async fn device(ctx: &Context, disk: &Disk, portal: &str, transport: &str) -> Result<PathBuf, String> {
    let folder = Path::new("/dev/disk/by-path");
    let address = portal.replace(['[', ']'], "");
    let end = format!("ip-{address}-iscsi-{}-lun-{}", disk.target, disk.unit);
    for second in 0..DEVICE_SECONDS {
        let names = ctx.host.names(folder).await.map_err(|error| reason(&error))?;
        let fits = |name: &&String| match transport {
            "tcp" => **name == end,
            _ => name.starts_with("pci-") && name.ends_with(&format!("-{end}")),
        };
        if let Some(name) = names.iter().find(fits) {
            return Ok(folder.join(name));
        }
        if second + 1 < DEVICE_SECONDS {
            tokio::time::sleep(SECOND).await;
        }
    }
    let path = folder.join(end);
    Err(format!("Timed out waiting for device at path {} after {DEVICE_SECONDS}s", path.display()))
}

fn transport(shown: &str) -> Option<String> {
    let name = shown.lines().find_map(|line| line.strip_prefix("iface.transport_name = "))?;
    Some(if name == "<empty>" { "tcp".to_owned() } else { name.to_owned() })
}

/// An interface like the one that is there, with the volume's own initiator.
async fn copy_interface(ctx: &Context, disk: &Disk, shown: &str) -> Result<(), String> {
    let interface = disk.interface.as_str();
    if interface == disk.first_interface {
        return Err(format!("iscsi: cannot clone iface with same name: {interface}"));
    }
    let mut settings = BTreeMap::new();
    for line in shown.lines().filter(|line| line.starts_with("iface.") && !line.contains("<empty>")) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["iface.iscsi_ifacename", "=", _] => {}
            [key, "=", value] => drop(settings.insert(key, value)),
            _ => return Err(format!("iscsi: failed to parse iface records: {line}")),
        }
    }
    settings.insert("iface.initiatorname", &disk.initiator);
    match iscsiadm(ctx, &["-m", "iface", "-I", interface, "-o", "new"]).await {
        Ok(_) => {}
        Err(refused) if refused.code == Some(SESSION_EXISTS) => {}
        Err(refused) => {
            return Err(format!("iscsi: failed to create new iface: {} ({})", refused.output, refused.why));
        }
    }
    for (key, value) in settings {
        let update = ["-m", "iface", "-I", interface, "-o", "update", "-n", key, "-v", value];
        if let Err(refused) = iscsiadm(ctx, &update).await {
            let _ = iscsiadm(ctx, &["-m", "iface", "-I", interface, "-o", "delete"]).await;
            return Err(format!(
                "iscsi: failed to update iface records: {} ({})",
                refused.output, refused.why
            ));
        }
    }
    Ok(())
}

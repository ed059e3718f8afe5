//! One file per subcommand. Data goes to stdout, talk to stderr.

mod asking;
pub mod check;
pub mod config;
pub mod explain;
pub mod pulls;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::Context;

/// No config file comes near this; a device file would never end.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// The kernel's hostname, as upstream takes it. Empty when it cannot be read: then `--hostname-override` is asked for.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

pub fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB"));
    }
    Ok(bytes)
}

/// Prints to stdout. Who closed it early, like `head`, has read enough.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

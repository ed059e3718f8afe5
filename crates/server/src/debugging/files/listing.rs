//! A folder as a page, in the form of Go's file server.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{AtFlags, Dir, FileType};

use crate::mux::{escape, escape_html};

/// Sorting takes all names at once. No folder of logs has this many; one that has is not shown.
const MOST_NAMES: usize = 1 << 18;

pub fn page(folder: &File) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if names.len() == MOST_NAMES {
            return Err(io::Error::other("too many files"));
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                match rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    // Gone meanwhile.
                    Err(_) => continue,
                }
            }
            known => known,
        };
        let mut name = name.to_vec();
        if kind == FileType::Directory {
            name.push(b'/');
        }
        names.push(OsString::from_vec(name));
    }
    // By name alone: the slash is no part of it.
    names.sort_by(|a, b| bare(a).cmp(bare(b)));
    let mut page =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in &names {
        let shown = String::from_utf8_lossy(name.as_bytes());
        page.push_str(&format!("<a href=\"{}\">{}</a>\n", link(name.as_bytes()), escape_html(&shown)));
    }
    page.push_str("</pre>\n");
    Ok(page)
}

fn bare(name: &OsString) -> &[u8] {
    let bytes = name.as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes)
}

/// A colon in the first segment would make the rest of it a host.
fn link(name: &[u8]) -> String {
    let escaped = escape(name);
    if bare_first(&escaped).contains(':') { format!("./{escaped}") } else { escaped }
}

fn bare_first(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

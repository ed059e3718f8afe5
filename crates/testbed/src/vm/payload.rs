//! The files of one boot: a tar on a drive of its own, which the machine unpacks over its root file system before
//! containerd starts.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tar::{Builder, Header};

/// One file and where it goes.
#[derive(Debug, Clone)]
pub struct File {
    /// Absolute, in the machine.
    pub to: String,
    pub mode: u32,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Bytes(Vec<u8>),
    /// The bytes of a file on this machine.
    Of(PathBuf),
}

impl File {
    pub fn text(to: &str, text: impl Into<Vec<u8>>) -> File {
        File { to: to.into(), mode: 0o644, content: Content::Bytes(text.into()) }
    }

    pub fn program(to: &str, text: impl Into<Vec<u8>>) -> File {
        File { mode: 0o755, ..File::text(to, text) }
    }

    pub fn copy(to: &str, from: &Path, mode: u32) -> File {
        File { to: to.into(), mode, content: Content::Of(from.to_owned()) }
    }
}

/// Writes them in order: of two with the same place, the later one wins.
pub fn write(files: &[File], to: &Path) -> Result<()> {
    let out = fs::File::create(to).with_context(|| format!("cannot make `{}`", to.display()))?;
    let mut tar = Builder::new(BufWriter::new(out));
    for file in files {
        append(&mut tar, file).with_context(|| format!("cannot hand `{}` to the machine", file.to))?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append(tar: &mut Builder<impl Write>, file: &File) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(file.mode);
    header.set_uid(0);
    header.set_gid(0);
    let path = file.to.trim_start_matches('/');
    match &file.content {
        Content::Bytes(bytes) => {
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_slice())?;
        }
        Content::Of(from) => {
            let source = fs::File::open(from).with_context(|| format!("cannot read `{}`", from.display()))?;
            header.set_size(source.metadata()?.len());
            tar.append_data(&mut header, path, source)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn files_arrive_with_their_mode_below_the_root() {
        let path = std::env::temp_dir().join(format!("crablet-vm-payload-test-{}", std::process::id()));
        let deep = format!("/{}/end", "deep".repeat(60));
        write(&[File::program("/bin/a", "#!/bin/sh\n"), File::text(&deep, "x")], &path).unwrap();
        let mut archive = tar::Archive::new(fs::File::open(&path).unwrap());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), text));
        }
        assert_eq!(found[0], ("bin/a".into(), 0o755, "#!/bin/sh\n".into()));
        assert_eq!(found[1], (deep.trim_start_matches('/').into(), 0o644, "x".into()));
        assert_eq!(fs::metadata(&path).unwrap().len() % 512, 0, "a drive has whole sectors");
        fs::remove_file(&path).unwrap();
    }
}

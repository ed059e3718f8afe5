//! Writes a docker-archive: one layer, a config and `manifest.json` in a tar. Every time stamp is zero and entries
//! keep their order, so the same contents give the same digest on every machine.

use std::io::Write;

use anyhow::Result;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::sha256;

/// What an image holds and how it starts.
pub struct Image<'a> {
    /// Name with tag, e.g. `crablet.test/pause:1`.
    pub name: &'a str,
    pub entrypoint: &'a [&'a str],
    pub command: &'a [&'a str],
    pub files: Vec<File>,
}

/// One entry of the only layer; paths are relative to the image's root.
pub struct File {
    path: String,
    kind: Kind,
}

enum Kind {
    Folder { mode: u32 },
    Plain { mode: u32, data: Vec<u8> },
    Link { target: String },
}

impl File {
    pub fn folder(path: &str, mode: u32) -> File {
        File { path: format!("{path}/"), kind: Kind::Folder { mode } }
    }

    pub fn plain(path: &str, mode: u32, data: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), kind: Kind::Plain { mode, data: data.into() } }
    }

    pub fn link(path: &str, target: &str) -> File {
        File { path: path.into(), kind: Kind::Link { target: target.into() } }
    }
}

pub fn write(image: &Image<'_>, out: impl Write) -> Result<()> {
    let layer = layer(&image.files)?;
    let layer_digest = sha256::hex(&layer);
    let config = serde_json::to_vec(&json!({
        "architecture": go_architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
    }))?;
    let config_name = format!("{}.json", sha256::hex(&config));
    let layer_name = format!("{layer_digest}/layer.tar");
    let manifest = serde_json::to_vec(
        &json!([{ "Config": config_name, "RepoTags": [image.name], "Layers": [layer_name] }]),
    )?;

    let mut tar = Builder::new(out);
    for (path, data) in [(config_name, config), (layer_name, layer), ("manifest.json".into(), manifest)] {
        append(&mut tar, &File::plain(&path, 0o644, data))?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn layer(files: &[File]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for file in files {
        append(&mut tar, file)?;
    }
    Ok(tar.into_inner()?)
}

fn append(tar: &mut Builder<impl Write>, file: &File) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    match &file.kind {
        Kind::Folder { mode } => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(*mode);
            header.set_size(0);
            tar.append_data(&mut header, &file.path, &[][..])?;
        }
        Kind::Plain { mode, data } => {
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_size(data.len() as u64);
            tar.append_data(&mut header, &file.path, data.as_slice())?;
        }
        Kind::Link { target } => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, &file.path, target)?;
        }
    }
    Ok(())
}

/// Images name architectures as Go does.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_contents_make_the_same_bytes() {
        let image = || Image {
            name: "crablet.test/tiny:1",
            entrypoint: &["/hello"],
            command: &[],
            files: vec![
                File::folder("bin", 0o755),
                File::plain("hello", 0o755, "hi"),
                File::link("bin/hi", "/hello"),
            ],
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        write(&image(), &mut first).unwrap();
        write(&image(), &mut second).unwrap();
        assert_eq!(first, second);

        let mut archive = tar::Archive::new(first.as_slice());
        let names: Vec<String> =
            archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], "manifest.json");
        assert_eq!(names[1].split('/').next().unwrap().len(), 64);
    }
}

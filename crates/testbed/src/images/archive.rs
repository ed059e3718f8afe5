//! Writes docker-archives: configs, layers and `manifest.json` in a tar. One archive may hold many images, and a layer
//! that several of them share is in it once. Where a layer is made of [`File`]s, every time stamp is zero and entries
//! keep their order, so the same contents give the same digest on every machine.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tar::{Builder, EntryType, Header};

use crate::sha256;

/// An image of one layer.
pub struct Image<'a> {
    /// Name with tag, e.g. `crablet.test/pause:1`.
    pub name: &'a str,
    pub entrypoint: &'a [&'a str],
    pub command: &'a [&'a str],
    pub files: Vec<File>,
}

/// How an image starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Config<'a> {
    pub entrypoint: &'a [&'a str],
    pub command: &'a [&'a str],
    /// A name or a number, with or without a group; nothing is root.
    pub user: Option<&'a str>,
    /// As `80/tcp`.
    pub ports: &'a [&'a str],
    /// What ends it politely, as `SIGQUIT`; nothing is `SIGTERM`.
    pub stop_signal: Option<&'a str>,
    /// Makes images with the same contents differ, so that a runtime does not take their names for one image's.
    pub version: Option<&'a str>,
}

/// A tar of files, and its digest.
pub struct Layer {
    digest: String,
    tar: Vec<u8>,
}

impl Layer {
    pub fn of_tar(tar: Vec<u8>) -> Layer {
        Layer { digest: sha256::hex(&tar), tar }
    }

    pub fn of_files(files: &[File]) -> Result<Layer> {
        let mut tar = Builder::new(Vec::new());
        for file in files {
            append(&mut tar, file)?;
        }
        Ok(Layer::of_tar(tar.into_inner()?))
    }

    pub fn tar(&self) -> &[u8] {
        &self.tar
    }
}

/// One entry of a layer; paths are relative to the image's root.
#[derive(Debug, Clone)]
pub struct File {
    path: String,
    kind: Kind,
    owner: (u32, u32),
}

#[derive(Debug, Clone)]
enum Kind {
    Folder { mode: u32 },
    Plain { mode: u32, data: Vec<u8> },
    Link { target: String },
}

impl File {
    pub fn folder(path: &str, mode: u32) -> File {
        File { path: format!("{path}/"), kind: Kind::Folder { mode }, owner: (0, 0) }
    }

    pub fn plain(path: &str, mode: u32, data: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), kind: Kind::Plain { mode, data: data.into() }, owner: (0, 0) }
    }

    pub fn link(path: &str, target: &str) -> File {
        File { path: path.into(), kind: Kind::Link { target: target.into() }, owner: (0, 0) }
    }

    /// The same entry with another owner than root.
    pub fn owned_by(self, user: u32, group: u32) -> File {
        File { owner: (user, group), ..self }
    }
}

/// An archive that holds one image.
pub fn write(image: &Image<'_>, out: impl Write) -> Result<()> {
    let layer = Layer::of_files(&image.files)?;
    let config = Config { entrypoint: image.entrypoint, command: image.command, ..Config::default() };
    let mut archive = Archive::new(out);
    archive.add(image.name, &config, &[&layer])?;
    archive.finish()
}

/// An archive in the making.
pub struct Archive<W: Write> {
    tar: Builder<W>,
    manifest: Vec<Value>,
    layers: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Archive<W> {
        Archive { tar: Builder::new(out), manifest: Vec::new(), layers: BTreeSet::new() }
    }

    /// Puts an image in; the lowest layer comes first.
    pub fn add(&mut self, name: &str, config: &Config<'_>, layers: &[&Layer]) -> Result<()> {
        let config = config_json(config, layers)?;
        let config_name = format!("{}.json", sha256::hex(&config));
        append(&mut self.tar, &File::plain(&config_name, 0o644, config))?;
        let file_name = |layer: &Layer| format!("{}/layer.tar", layer.digest);
        for layer in layers {
            if self.layers.insert(layer.digest.clone()) {
                append_plain(&mut self.tar, &file_name(layer), 0o644, (0, 0), &layer.tar)?;
            }
        }
        let layer_names: Vec<String> = layers.iter().map(|layer| file_name(layer)).collect();
        self.manifest.push(json!({ "Config": config_name, "RepoTags": [name], "Layers": layer_names }));
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        let manifest = serde_json::to_vec(&self.manifest)?;
        append(&mut self.tar, &File::plain("manifest.json", 0o644, manifest))?;
        self.tar.into_inner()?.flush()?;
        Ok(())
    }
}

/// The image's config as the OCI image specification has it.
pub fn config_json(config: &Config<'_>, layers: &[&Layer]) -> Result<Vec<u8>> {
    let mut settings = json!({
        "Entrypoint": config.entrypoint,
        "Cmd": config.command,
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/",
    });
    if let Some(user) = config.user {
        settings["User"] = json!(user);
    }
    if let Some(signal) = config.stop_signal {
        settings["StopSignal"] = json!(signal);
    }
    if let Some(version) = config.version {
        settings["Labels"] = json!({ "org.opencontainers.image.version": version });
    }
    if !config.ports.is_empty() {
        let ports = config.ports.iter().map(|port| ((*port).to_owned(), json!({})));
        settings["ExposedPorts"] = Value::Object(ports.collect::<Map<_, _>>());
    }
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    Ok(serde_json::to_vec(&json!({
        "architecture": go_architecture(),
        "os": "linux",
        "config": settings,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    }))?)
}

fn append(tar: &mut Builder<impl Write>, file: &File) -> Result<()> {
    match &file.kind {
        Kind::Folder { mode } => {
            let mut header = header(EntryType::Directory, *mode, file.owner, 0);
            tar.append_data(&mut header, &file.path, &[][..])?;
        }
        Kind::Plain { mode, data } => append_plain(tar, &file.path, *mode, file.owner, data)?,
        Kind::Link { target } => {
            let mut header = header(EntryType::Symlink, 0o777, file.owner, 0);
            tar.append_link(&mut header, &file.path, target)?;
        }
    }
    Ok(())
}

fn append_plain(
    tar: &mut Builder<impl Write>,
    path: &str,
    mode: u32,
    owner: (u32, u32),
    data: &[u8],
) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, owner, data.len() as u64);
    Ok(tar.append_data(&mut header, path, data)?)
}

fn header(kind: EntryType, mode: u32, (user, group): (u32, u32), size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_uid(user.into());
    header.set_gid(group.into());
    header.set_mtime(0);
    header.set_mode(mode);
    header.set_size(size);
    header
}

/// Images name architectures as Go does.
pub fn go_architecture() -> &'static str {
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

        let names = names(&first);
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], "manifest.json");
        assert_eq!(names[1].split('/').next().unwrap().len(), 64);
    }

    #[test]
    fn a_shared_layer_is_stored_once_and_a_version_tells_equal_images_apart() {
        let layer = Layer::of_files(&[File::plain("file", 0o6755, "x").owned_by(1000, 50000)]).unwrap();
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        for version in ["1", "2"] {
            let config = Config { version: Some(version), ..Config::default() };
            archive.add(&format!("crablet.test/twin:{version}"), &config, &[&layer]).unwrap();
        }
        archive.finish().unwrap();

        let names = names(&bytes);
        assert_eq!(names.len(), 4, "two configs, one layer, one manifest: {names:?}");
        assert_eq!(names.iter().filter(|name| name.ends_with("layer.tar")).count(), 1);

        let mut layer = tar::Archive::new(layer.tar());
        let entry = layer.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o6755);
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (1000, 50000));
    }

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }
}

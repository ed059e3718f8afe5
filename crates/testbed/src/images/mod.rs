//! Images for pods without any registry: made from what the machine has, kept in the cache, imported by `ctr`.

mod archive;
pub mod e2e;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use self::archive::{File, Image};
use crate::process::output_of;
use crate::{cache, packages, say, sha256};

/// The sandbox's image.
pub const PAUSE: &str = "crablet.test/pause:1";
/// A shell and the usual tools.
pub const BUSYBOX: &str = "crablet.test/busybox:1";
/// A web server on [`WEB_PORT`] with one page.
pub const WEB: &str = "crablet.test/web:1";
pub const WEB_PORT: u16 = 8080;
/// The page's one line, which the demo fetches and shows.
pub const WEB_PAGE: &str = "Hello from a pod that Crablet looks after.\n";

/// The name server of clusters whose services must work.
pub const COREDNS: &str = "crablet.test/coredns:1";

pub const ALL: &[&str] = &[PAUSE, BUSYBOX, WEB];

const PAUSE_SOURCE: &str = include_str!("pause.c");
/// Part of the cache's key: raise it when the contents made below change.
const EDITION: u32 = 1;

/// The archives of all images, made when the cache lacks them.
pub fn ensure() -> Result<Vec<PathBuf>> {
    let busybox =
        packages::static_busybox().context("no static `busybox` found\nhint: package `busybox-static`")?;
    let busybox_bytes = fs::read(&busybox)?;
    let inputs = format!("{EDITION} {PAUSE_SOURCE} {WEB_PAGE} {}", sha256::hex(&busybox_bytes));
    let home = cache::dir()?.join(format!("images-{}", &sha256::hex(inputs.as_bytes())[..16]));
    cache::build_once(&home, |dir| {
        say::step("making the images");
        let applets = output_of(Command::new(&busybox).arg("--list"))?;
        write(dir, &pause_image(dir)?)?;
        write(dir, &shell_image(BUSYBOX, &busybox_bytes, &applets))?;
        write(dir, &web_image(&busybox_bytes, &applets))
    })?;
    Ok(ALL.iter().map(|name| home.join(archive_name(name))).collect())
}

/// The archive of CoreDNS's image, made of the given program.
pub fn coredns(program: &Path) -> Result<PathBuf> {
    let bytes = fs::read(program).with_context(|| format!("cannot read `{}`", program.display()))?;
    let home = cache::dir()?.join(format!("coredns-image-{}", &sha256::hex(&bytes)[..16]));
    cache::build_once(&home, |dir| {
        let files = vec![File::plain("coredns", 0o755, bytes)];
        write(dir, &Image { name: COREDNS, entrypoint: &["/coredns"], command: &[], files })
    })?;
    Ok(home.join(archive_name(COREDNS)))
}

fn write(dir: &Path, image: &Image<'_>) -> Result<()> {
    let path = dir.join(archive_name(image.name));
    archive::write(image, fs::File::create(&path)?)
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// `crablet.test/pause:1` is kept as `pause-1.tar`.
fn archive_name(image: &str) -> String {
    let short = image.rsplit('/').next().unwrap_or(image);
    format!("{}.tar", short.replace(':', "-"))
}

fn pause_image(dir: &Path) -> Result<Image<'static>> {
    let (source, binary) = (dir.join("pause.c"), dir.join("pause"));
    fs::write(&source, PAUSE_SOURCE)?;
    let mut compile = Command::new("cc");
    compile.args(["-static", "-Os", "-s", "-Wall", "-o"]).arg(&binary).arg(&source);
    output_of(&mut compile).context("cannot compile the pause program")?;
    let files = vec![File::plain("pause", 0o755, fs::read(&binary)?)];
    fs::remove_file(&binary)?;
    fs::remove_file(&source)?;
    Ok(Image { name: PAUSE, entrypoint: &["/pause"], command: &[], files })
}

fn shell_image<'a>(name: &'a str, busybox: &[u8], applets: &str) -> Image<'a> {
    let mut files = vec![
        File::folder("bin", 0o755),
        File::folder("etc", 0o755),
        File::folder("root", 0o700),
        File::folder("tmp", 0o1777),
        File::folder("var", 0o755),
        File::plain(
            "etc/passwd",
            0o644,
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        ),
        File::plain("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
        File::plain("bin/busybox", 0o755, busybox),
    ];
    let links = applets.lines().filter(|applet| !applet.is_empty() && *applet != "busybox");
    files.extend(links.map(|applet| File::link(&format!("bin/{applet}"), "busybox")));
    Image { name, entrypoint: &[], command: &["sh"], files }
}

fn web_image(busybox: &[u8], applets: &str) -> Image<'static> {
    let mut image = shell_image(WEB, busybox, applets);
    image.files.push(File::folder("www", 0o755));
    image.files.push(File::plain("www/index.html", 0o644, WEB_PAGE));
    image.entrypoint = &["/bin/httpd", "-f", "-v", "-p", "8080", "-h", "/www"];
    image.command = &[];
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_image_listens_where_it_says() {
        let image = web_image(b"", "sh\nhttpd\n");
        assert!(image.entrypoint.contains(&WEB_PORT.to_string().as_str()));
    }

    #[test]
    fn archives_are_named_after_their_image() {
        assert_eq!(archive_name(PAUSE), "pause-1.tar");
    }
}

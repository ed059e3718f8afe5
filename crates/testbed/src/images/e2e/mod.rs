//! The images that upstream's suites ask for, under the names of `test/utils/image/manifest.go` at [`kube::VERSION`],
//! made on the spot: BusyBox from its source, root file systems from Debian's packages, programs and files from
//! Kubernetes' own source. From cold it takes about two minutes beside the Go builds, then nothing.
//!
//! Upstream bases many of them on Alpine. Ours stand on Debian, with BusyBox's shell and its commands where Debian's are
//! missing, so that what specs call is there and behaves.
//!
//! Deliberately absent:
//! - node e2e also names its BusyBox by digest (`busybox@sha256:…`): only the registry's very bytes have that digest;
//! - `volume/nfs`, `volume/iscsi`, `apparmor-loader`: they drive kernel parts (nfsd, iSCSI, AppArmor) that the machines
//!   this runs on lack, so that no spec could use them;
//! - `resource-consumer`: its specs need a metrics server;
//! - `node-perf/*`, CSI drivers, `distroless-iptables`: not to be had from package registries.

mod busybox;
mod registry;
mod rootfs;
mod upstream;

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};

use self::busybox::Busybox;
use self::rootfs::Rootfs;
use self::upstream::Upstream;
use super::archive::{Archive, Config, File, Layer};
use crate::{cache, kube, packages, say, sha256};

const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";
const AGNHOST_PREVIOUS: &str = "registry.k8s.io/e2e-test-images/agnhost:2.55";
const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
const ETCD: &str = "registry.k8s.io/etcd:3.6.8-0";
const GLIBC_DNS_TESTING: &str = "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0";
const IPC_UTILS: &str = "registry.k8s.io/e2e-test-images/ipc-utils:1.4";
const KITTEN: &str = "registry.k8s.io/e2e-test-images/kitten:1.8";
const NAUTILUS: &str = "registry.k8s.io/e2e-test-images/nautilus:1.8";
const NGINX: &str = "registry.k8s.io/e2e-test-images/nginx:1.15-4";
const NGINX_NEW: &str = "registry.k8s.io/e2e-test-images/nginx:1.27-0";
const NONEWPRIVS: &str = "registry.k8s.io/e2e-test-images/nonewprivs:1.4";
const NONROOT: &str = "registry.k8s.io/e2e-test-images/nonroot:1.5";
const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
const PERL: &str = "registry.k8s.io/e2e-test-images/perl:5.26";
const REGRESSION_ISSUE_74839: &str = "registry.k8s.io/e2e-test-images/regression-issue-74839:1.4";
const SAMPLE_APISERVER: &str = "registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2";
const SAMPLE_DEVICE_PLUGIN: &str = "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7";

/// All of them.
pub const NAMES: &[&str] = &[
    AGNHOST,
    AGNHOST_PREVIOUS,
    BUSYBOX,
    ETCD,
    GLIBC_DNS_TESTING,
    IPC_UTILS,
    KITTEN,
    NAUTILUS,
    NGINX,
    NGINX_NEW,
    NONEWPRIVS,
    NONROOT,
    PAUSE,
    PERL,
    REGRESSION_ISSUE_74839,
    SAMPLE_APISERVER,
    SAMPLE_DEVICE_PLUGIN,
];

/// Part of the cache's key: raise it when the contents made below change.
const EDITION: u32 = 2;

const NGINX_CONF: &str = include_str!("nginx.conf");
const NGINX_DEFAULT_SITE: &str = include_str!("nginx-default.conf");

/// The specs of image volumes read the volume's `os-release` and expect the name of the system that upstream's image is
/// based on.
const KITTENS_OS_RELEASE: &str = "NAME=\"Alpine Linux\"\nID=alpine\n";

/// The user and the group that specs of supplemental groups know from agnhost's image.
const IMAGES_USER: &str = "user-defined-in-image";
const IMAGES_GROUP: &str = "group-defined-in-image";

const PAUSE_CONFIG: Config<'static> = Config {
    entrypoint: &["/pause"],
    command: &[],
    user: Some("65535:65535"),
    ports: &[],
    stop_signal: None,
    version: None,
};

/// The archives of all images (one, since they share layers), made when the cache lacks them.
pub fn ensure() -> Result<Vec<PathBuf>> {
    let inputs = [
        EDITION.to_string(),
        NAMES.join(" "),
        kube::VERSION.into(),
        super::PAUSE_SOURCE.into(),
        busybox::recipe(),
        rootfs::recipe(),
        [NGINX_CONF, NGINX_DEFAULT_SITE, KITTENS_OS_RELEASE].concat(),
    ];
    let home = cache::dir()?.join(format!("e2e-images-{}", &sha256::hex(inputs.join("\n").as_bytes())[..16]));
    let archive = Path::new("e2e.tar");
    cache::build_once(&home, |dir| {
        let parts = Parts::ensure(dir)?;
        say::step("making the suites' images");
        parts.write(&dir.join(archive))
    })?;
    Ok(vec![home.join(archive)])
}

/// What the images are made of.
struct Parts {
    busybox: Busybox,
    rootfs: Rootfs,
    upstream: Upstream,
    pause: Vec<File>,
}

impl Parts {
    fn ensure(dir: &Path) -> Result<Parts> {
        packages::ensure_runtime()?;
        // One waits for the network and the disk, the other computes.
        let (rootfs, busybox) = thread::scope(|scope| {
            let rootfs = scope.spawn(rootfs::ensure);
            let busybox = busybox::ensure();
            (rootfs.join(), busybox)
        });
        Ok(Parts {
            busybox: busybox?,
            rootfs: rootfs.map_err(|_| anyhow!("making the root file system panicked"))??,
            upstream: Upstream::ensure()?,
            pause: super::pause_image(dir)?.files,
        })
    }

    fn write(&self, path: &Path) -> Result<()> {
        let out = fs::File::create(path).with_context(|| format!("cannot make `{}`", path.display()))?;
        let mut archive = Archive::new(BufWriter::new(out));
        self.add_small_ones(&mut archive)?;
        self.add_debian_ones(&mut archive)?;
        self.add_agnhosts(&mut archive)?;
        archive.finish().with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Pause, BusyBox, and programs without libraries on top of BusyBox.
    fn add_small_ones(&self, archive: &mut Archive<impl std::io::Write>) -> Result<()> {
        add(archive, PAUSE, PAUSE_CONFIG, &[&Layer::of_files(&self.pause)?])?;
        let shell = Layer::of_files(&self.busybox.image_files())?;
        add(archive, BUSYBOX, command(&["sh"]), &[&shell])?;

        let upstream = &self.upstream;
        // The set-id bits are what its specs are about.
        let file = upstream.program(&kube::NONEWPRIVS, "usr/local/bin/nnp", 0o6000)?;
        add(archive, NONEWPRIVS, command(&["nnp"]), &[&shell, &Layer::of_files(&[file])?])?;
        let file = upstream.program(&kube::REGRESSION_ISSUE_74839, "regression-issue-74839", 0)?;
        let config = entrypoint(&["/regression-issue-74839"]);
        add(archive, REGRESSION_ISSUE_74839, config, &[&shell, &Layer::of_files(&[file])?])?;
        let config = entrypoint(&["/sample-apiserver"]);
        let file = upstream.sample_apiserver()?;
        add(archive, SAMPLE_APISERVER, config, &[&shell, &Layer::of_files(&[file])?])?;
        let file = upstream.program(&kube::SAMPLE_DEVICE_PLUGIN, "sampledeviceplugin", 0)?;
        let config = entrypoint(&["/sampledeviceplugin", "-alsologtostderr"]);
        add(archive, SAMPLE_DEVICE_PLUGIN, config, &[&shell, &Layer::of_files(&[file])?])
    }

    /// Those that are Debian, with or without servers.
    fn add_debian_ones(&self, archive: &mut Archive<impl std::io::Write>) -> Result<()> {
        let (base, servers) = (&self.rootfs.base, &self.rootfs.servers);
        add(archive, GLIBC_DNS_TESTING, command(&["bash"]), &[base])?;
        add(archive, PERL, command(&["perl", "-de0"]), &[base])?;
        add(archive, NONROOT, Config { user: Some("1234"), ..command(&["bash"]) }, &[base])?;
        let etcd = Layer::of_files(&[File::link("usr/local/bin/etcd", "/usr/bin/etcd")])?;
        add(archive, ETCD, Config { ports: &["2379/tcp"], ..Config::default() }, &[base, servers, &etcd])?;

        let nginx = Layer::of_files(&[
            File::plain("etc/nginx/nginx.conf", 0o644, NGINX_CONF),
            File::plain("etc/nginx/conf.d/default.conf", 0o644, NGINX_DEFAULT_SITE),
        ])?;
        let supplement = self.supplement()?;
        for name in [NGINX, NGINX_NEW] {
            let config = Config { ports: &["80/tcp"], ..command(&["nginx", "-g", "daemon off;"]) };
            add(archive, name, config, &[base, servers, &supplement, &nginx])?;
        }
        Ok(())
    }

    /// The server of many trades, and the images on top of it.
    fn add_agnhosts(&self, archive: &mut Archive<impl std::io::Write>) -> Result<()> {
        let supplement = self.supplement()?;
        add(archive, IPC_UTILS, command(&["sh"]), &[&self.rootfs.base, &supplement])?;
        let agnhost = Layer::of_files(&self.agnhost_files()?)?;
        let config = Config {
            ports: &["80/tcp", "5000/tcp", "8080/tcp", "8081/tcp", "9376/tcp"],
            ..entrypoint(&["/agnhost"])
        };
        let layers = [&self.rootfs.base, &supplement, &agnhost];
        for name in [AGNHOST, AGNHOST_PREVIOUS] {
            add(archive, name, Config { command: &["pause"], ..config }, &layers)?;
        }
        let config = Config { command: &["test-webserver"], ..config };
        let files = [
            self.upstream.file("kitten/html/kitten.jpg", "kitten.jpg")?,
            self.upstream.file("kitten/html/data.json", "data.json")?,
            File::plain("usr/lib/os-release", 0o644, KITTENS_OS_RELEASE),
        ];
        add(archive, KITTEN, config, &[layers[0], layers[1], layers[2], &Layer::of_files(&files)?])?;
        let files = [
            self.upstream.file("nautilus/html/nautilus.jpg", "nautilus.jpg")?,
            self.upstream.file("nautilus/html/data.json", "data.json")?,
        ];
        add(archive, NAUTILUS, config, &[layers[0], layers[1], layers[2], &Layer::of_files(&files)?])
    }

    fn supplement(&self) -> Result<Layer> {
        Layer::of_files(&self.busybox.supplement(|name| self.rootfs.has_command(name)))
    }

    fn agnhost_files(&self) -> Result<Vec<File>> {
        let passwd =
            format!("{}{IMAGES_USER}:x:1000:1000::/home/{IMAGES_USER}:/bin/sh\n", self.rootfs.passwd);
        let group =
            format!("{}{IMAGES_USER}:x:1000:\n{IMAGES_GROUP}:x:50000:{IMAGES_USER}\n", self.rootfs.group);
        let mut files = vec![
            self.upstream.program(&kube::AGNHOST, "agnhost", 0)?,
            File::link("agnhost-2", "agnhost"),
            self.upstream.coredns()?,
            self.upstream.file("agnhost/porter/localhost.crt", "localhost.crt")?,
            self.upstream.file("agnhost/porter/localhost.key", "localhost.key")?,
            File::folder("uploads", 0o755),
            File::plain("etc/passwd", 0o644, passwd),
            File::plain("etc/group", 0o644, group),
            File::folder(&format!("home/{IMAGES_USER}"), 0o755).owned_by(1000, 1000),
            File::link("usr/local/bin/iperf", "/usr/bin/iperf"),
        ];
        files.extend(registry::files(&PAUSE_CONFIG, &Layer::of_files(&self.pause)?)?);
        Ok(files)
    }
}

/// Adds an image whose config names its own tag: else a runtime takes two names with the same contents for one image,
/// and reports a container of one under the name of the other.
fn add(
    archive: &mut Archive<impl std::io::Write>,
    name: &str,
    config: Config<'_>,
    layers: &[&Layer],
) -> Result<()> {
    archive.add(name, &Config { version: Some(name), ..config }, layers)
}

fn entrypoint<'a>(words: &'a [&'a str]) -> Config<'a> {
    Config { entrypoint: words, ..Config::default() }
}

fn command<'a>(words: &'a [&'a str]) -> Config<'a> {
    Config { command: words, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_holds_exactly_the_named_images() {
        let dir = std::env::temp_dir().join(format!("crablet-e2e-images-test-{}", std::process::id()));
        let files = [
            "agnhost/porter/localhost.crt",
            "agnhost/porter/localhost.key",
            "kitten/html/kitten.jpg",
            "kitten/html/data.json",
            "nautilus/html/nautilus.jpg",
            "nautilus/html/data.json",
        ];
        let parts = Parts {
            busybox: busybox::tests::stand_in(),
            rootfs: rootfs::tests::stand_in(),
            upstream: upstream::tests::stand_in(&dir, &files),
            pause: vec![File::plain("pause", 0o755, "")],
        };
        let path = dir.join("e2e.tar");
        parts.write(&path).unwrap();

        let mut archive = tar::Archive::new(fs::File::open(&path).unwrap());
        let mut entries = archive.entries().unwrap().map(Result::unwrap);
        let manifest = entries.find(|entry| entry.path().unwrap() == Path::new("manifest.json")).unwrap();
        let manifest: Vec<serde_json::Value> = serde_json::from_reader(manifest).unwrap();
        let mut names: Vec<&str> =
            manifest.iter().map(|image| image["RepoTags"][0].as_str().unwrap()).collect();
        names.sort_unstable();
        let mut wanted = NAMES.to_vec();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        fs::remove_dir_all(&dir).unwrap();
    }
}

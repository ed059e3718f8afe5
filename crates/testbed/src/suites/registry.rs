//! A registry for one containerd: it hands out the images that the containerd was given. Read-only, and as much of the
//! protocol as containerd speaks when it pulls.
//!
//! In the place of `registry.k8s.io`, specs which insist on pulling (`imagePullPolicy: Always`, images removed before) have
//! something to pull from. Under a name of its own it may ask for a password.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Containerd;

/// The registry that the suites' images are named after.
const INSTEAD_OF: &str = "registry.k8s.io";
/// A client that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Manifests and configurations are smaller, layers larger.
pub const SMALL: u64 = 64 * 1024;

/// What can be handed out.
#[derive(Debug, Default)]
struct Shelf {
    /// Blobs by digest. Linked from the content store: an image that is removed there can be pulled again.
    blobs: PathBuf,
    /// Digests by `name:tag`, without the registry.
    tags: BTreeMap<String, String>,
    /// Media types of manifests by digest.
    types: BTreeMap<String, String>,
    /// The only `Authorization` that is good.
    wanted: Option<String>,
    /// Set for a registry that gives only half of a large blob at first.
    hold: Option<Arc<Hold>>,
}

/// Keeps a registry from giving more than half of a blob, until it is let go or dropped.
#[derive(Debug, Default)]
struct Hold {
    state: Mutex<HoldState>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct HoldState {
    /// Somebody has got half of a blob.
    reached: bool,
    over: bool,
}

/// Lets a registry go on when it is dropped.
#[derive(Debug)]
pub struct Held(Arc<Hold>);

impl Held {
    /// Waits until somebody has got half of a blob.
    pub fn wait_half_way(&self, limit: Duration) -> Result<()> {
        let state = self.0.lock();
        let (state, _) = self
            .0
            .told
            .wait_timeout_while(state, limit, |state| !state.reached)
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(state.reached, "nobody asked the registry for a blob within {} s", limit.as_secs());
        Ok(())
    }

    pub fn let_go(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.told.notify_all();
    }
}

impl Hold {
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn half_way(&self) {
        let mut state = self.lock();
        state.reached = true;
        self.told.notify_all();
        drop(self.told.wait_while(state, |state| !state.over));
    }
}

/// Starts it with what `containerd` has by now, and tells `containerd` about it. It serves until this process ends.
pub fn start(containerd: &Containerd) -> Result<()> {
    serve_as(containerd, INSTEAD_OF, INSTEAD_OF, None, None)
}

/// The same under another name, for those who know the password: images of the registry `of` can be had as `name/…`.
pub fn start_private(containerd: &Containerd, name: &str, of: &str, login: (&str, &str)) -> Result<()> {
    serve_as(containerd, name, of, Some(login), None)
}

/// The same under another name, for all, but blobs of more than [`SMALL`] bytes stop half-way until it is let go.
pub fn start_held(containerd: &Containerd, name: &str, of: &str) -> Result<Held> {
    let hold = Arc::new(Hold::default());
    serve_as(containerd, name, of, None, Some(hold.clone()))?;
    Ok(Held(hold))
}

fn serve_as(
    containerd: &Containerd,
    name: &str,
    of: &str,
    login: Option<(&str, &str)>,
    hold: Option<Arc<Hold>>,
) -> Result<()> {
    let blobs = containerd.scratch().dir().join("registry").join(name);
    let content = containerd.scratch().root().join("io.containerd.content.v1.content/blobs/sha256");
    link_all(&content, &blobs).context("cannot link the images' blobs")?;
    let wanted =
        login.map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
    let mut shelf = Shelf { blobs, wanted, hold, ..Shelf::default() };
    shelf.take(&containerd.ctr(&["images", "ls"])?, of);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let hosts = containerd.scratch().registry_hosts().join(name);
    fs::create_dir_all(&hosts)?;
    let host =
        format!("[host.\"http://{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n", listener.local_addr()?);
    fs::write(hosts.join("hosts.toml"), host)?;
    let shelf = Arc::new(shelf);
    thread::Builder::new().name("registry".into()).spawn(move || {
        for client in listener.incoming().filter_map(Result::ok) {
            let shelf = Arc::clone(&shelf);
            // A client that leaves half-way is its own problem.
            thread::spawn(move || drop(serve(&shelf, client)));
        }
    })?;
    Ok(())
}

fn link_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::hard_link(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

impl Shelf {
    /// `ctr images ls`: reference, media type and digest come first on each line.
    fn take(&mut self, listed: &str, registry: &str) {
        for line in listed.lines().skip(1) {
            let mut words = line.split_whitespace();
            let (Some(reference), Some(media_type), Some(digest)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            self.types.insert(digest.to_owned(), media_type.to_owned());
            if let Some(name) = reference.strip_prefix(registry).and_then(|rest| rest.strip_prefix('/')) {
                self.tags.insert(name.to_owned(), digest.to_owned());
            }
        }
    }

    /// The digest and media type that a path of the protocol asks for.
    fn find(&self, path: &str) -> Option<(String, String)> {
        let path = path.split('?').next()?.strip_prefix("/v2/")?;
        if let Some((_, digest)) = path.split_once("/blobs/") {
            return Some((digest.to_owned(), "application/octet-stream".to_owned()));
        }
        let (name, reference) = path.split_once("/manifests/")?;
        let digest = match self.tags.get(&format!("{name}:{reference}")) {
            Some(digest) => digest.clone(),
            None if reference.starts_with("sha256:") => reference.to_owned(),
            None => return None,
        };
        let media_type = self.types.get(&digest).cloned().or_else(|| self.told_type(&digest))?;
        Some((digest, media_type))
    }

    /// A manifest inside of another says itself what it is.
    fn told_type(&self, digest: &str) -> Option<String> {
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(self.file(digest)?).ok()?).ok()?;
        Some(
            manifest["mediaType"].as_str().unwrap_or("application/vnd.oci.image.manifest.v1+json").to_owned(),
        )
    }

    fn file(&self, digest: &str) -> Option<PathBuf> {
        let hex = digest.strip_prefix("sha256:")?;
        hex.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| self.blobs.join(hex))
    }
}

/// One request, one answer, the end of the connection.
fn serve(shelf: &Shelf, client: TcpStream) -> Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    let mut lines = BufReader::new(client.try_clone()?.take(64 * 1024)).lines();
    let request = lines.next().context("an empty request")??;
    let mut said = None;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            said = Some(value.trim().to_owned());
        }
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if shelf.wanted.is_some() && shelf.wanted != said {
        return refuse(client);
    }
    answer(shelf, method, path, client)
}

fn refuse(mut client: TcpStream) -> Result<()> {
    let challenge = "WWW-Authenticate: Basic realm=\"private\"";
    let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    Ok(write!(client, "HTTP/1.1 401 Unauthorized\r\n{challenge}\r\n{end}")?)
}

fn answer(shelf: &Shelf, method: &str, path: &str, mut client: TcpStream) -> Result<()> {
    let found = shelf.find(path).and_then(|(digest, media_type)| {
        let file = fs::File::open(shelf.file(&digest)?).ok()?;
        Some((digest, media_type, file))
    });
    let Some((digest, media_type, mut file)) = found else {
        let status = if path == "/v2/" { "200 OK" } else { "404 Not Found" };
        return Ok(write!(client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?);
    };
    let length = file.metadata()?.len();
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
         Docker-Content-Digest: {digest}\r\nConnection: close\r\n\r\n"
    )?;
    if method == "GET" {
        if let Some(hold) = &shelf.hold
            && length > SMALL
        {
            std::io::copy(&mut (&mut file).take(length / 2), &mut client)?;
            hold.half_way();
        }
        std::io::copy(&mut file, &mut client)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "\
REF TYPE DIGEST SIZE PLATFORMS LABELS
registry.k8s.io/pause:3.10.2 application/vnd.oci.image.manifest.v1+json sha256:aa 1.0 MiB linux/amd64 x=y
crablet.test/busybox:1 application/vnd.oci.image.index.v1+json sha256:bb 1.0 MiB linux/amd64 -
";

    fn shelf() -> Shelf {
        let mut shelf = Shelf { blobs: "/nowhere".into(), ..Shelf::default() };
        shelf.take(LISTED, INSTEAD_OF);
        shelf
    }

    #[test]
    fn tags_and_digests_of_its_registry_are_found() {
        let manifest = ("sha256:aa".to_owned(), "application/vnd.oci.image.manifest.v1+json".to_owned());
        assert_eq!(shelf().find("/v2/pause/manifests/3.10.2?ns=registry.k8s.io"), Some(manifest.clone()));
        assert_eq!(shelf().find("/v2/pause/manifests/sha256:aa"), Some(manifest));
        assert_eq!(shelf().find("/v2/pause/blobs/sha256:cc").unwrap().0, "sha256:cc");
        assert_eq!(shelf().find("/v2/busybox/manifests/1"), None);
        assert_eq!(shelf().find("/v2/pause/manifests/4"), None);
    }

    #[test]
    fn only_digests_are_files() {
        assert_eq!(shelf().file("sha256:../../etc/passwd"), None);
        assert_eq!(shelf().file("sha256:aa"), Some("/nowhere/aa".into()));
    }
}

//! A unix socket that is private from its first moment.
//!
//! A socket file gets its mode from the process-wide umask, and a later `chmod` leaves a moment in which others can
//! connect. So it is bound inside a fresh folder that only its owner may enter, made private there, and then renamed to
//! its place, which also replaces the leftover of an agent that died.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another agent already answers on {path:?}")]
    InUse { path: PathBuf },
    #[error("{path:?} exists and is not a socket; remove it or choose another root directory")]
    NotASocket { path: PathBuf },
    #[error("cannot listen on {path:?}")]
    Io { path: PathBuf, source: io::Error },
}

/// Bound, listening, mode 0600. The file is removed when this is dropped.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file: another agent's file at the same place is not ours to remove.
    identity: (u64, u64),
    /// Who owns the file is who runs this program.
    owner: u32,
}

/// A living agent accepts at once; one that does not is alive all the same.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// For a folder that is not there yet, as upstream makes its root directory.
const PARENT_MODE: u32 = 0o750;

impl LocalSocket {
    /// Takes the place of a socket that nobody listens on; refuses to take a living agent's.
    pub async fn bind(path: &Path) -> Result<Self, BindError> {
        let io = |source| BindError::Io { path: path.to_owned(), source };
        // It is bound under a shorter path: one that is too long would be noticed only by those who cannot connect.
        SocketAddr::from_pathname(path).map_err(io)?;
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(PARENT_MODE).create(parent).map_err(io)?;
        }
        refuse_if_taken(path).await?;
        let folder = private_folder(path).map_err(io)?;
        let bound = bind_in(&folder, path);
        // After the rename the folder is empty; after a failure it may hold the socket.
        let _ = fs::remove_file(folder.join(SOCKET));
        let _ = fs::remove_dir(&folder);
        bound.map_err(io)
    }

    /// The next peer that may ask: root, or the user that runs this program. `None`: somebody else, turned away. The mode
    /// of the file keeps others out already; this holds even if somebody changes the mode.
    pub(crate) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == 0 || peer.uid() == self.owner => Ok(Some(stream)),
            Ok(peer) => {
                warn!(uid = peer.uid(), "Refused a peer on the local socket");
                Ok(None)
            }
            Err(error) => {
                warn!(err = %error, "Refused a peer on the local socket whose user is unknown");
                Ok(None)
            }
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A leftover socket may be replaced; a living agent's socket and a file that is no socket may not.
async fn refuse_if_taken(path: &Path) -> Result<(), BindError> {
    let io = |source| BindError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => (),
    }
    match tokio::time::timeout(PROBE_TIMEOUT, UnixStream::connect(path)).await {
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(()),
            // Its queue is full: somebody listens.
            io::ErrorKind::WouldBlock => Err(BindError::InUse { path: path.to_owned() }),
            _ => Err(io(error)),
        },
        Ok(Ok(_)) | Err(_) => Err(BindError::InUse { path: path.to_owned() }),
    }
}

const SOCKET: &str = "s";

/// Beside the socket's place, so that the rename stays in one file system; with a short name, because the path of a
/// socket may not have more than 107 bytes.
fn private_folder(path: &Path) -> io::Result<PathBuf> {
    let folder = path.with_file_name(format!(".s{}", std::process::id()));
    // Process ids repeat: in a container the agent's may be the same each time.
    let _ = fs::remove_file(folder.join(SOCKET));
    let _ = fs::remove_dir(&folder);
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

fn bind_in(folder: &Path, path: &Path) -> io::Result<LocalSocket> {
    let inner = folder.join(SOCKET);
    let listener = UnixListener::bind(&inner)?;
    fs::set_permissions(&inner, Permissions::from_mode(0o600))?;
    let made = fs::symlink_metadata(&inner)?;
    fs::rename(&inner, path)?;
    Ok(LocalSocket { listener, path: path.to_owned(), identity: (made.dev(), made.ino()), owner: made.uid() })
}

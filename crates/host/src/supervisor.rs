//! Telling systemd how things are: `sd_notify(3)`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A way to the service manager, if one wants to be told.
#[derive(Debug)]
pub struct Supervisor(Option<UnixDatagram>);

impl Supervisor {
    /// Nobody wants to be told when `NOTIFY_SOCKET` is not set.
    pub fn from_environment() -> io::Result<Self> {
        match env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) {
            Some(path) => Self::connect(&path).map(Some).map(Self),
            None => Ok(Self(None)),
        }
    }

    /// For where it cannot be reached.
    pub fn nobody() -> Self {
        Self(None)
    }

    fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A service manager that does not read must not hold the agent up.
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// `READY=1` and the like.
    pub fn tell(&self, state: &str) -> io::Result<()> {
        match &self.0 {
            Some(socket) => socket.send(state.as_bytes()).map(drop),
            None => Ok(()),
        }
    }
}

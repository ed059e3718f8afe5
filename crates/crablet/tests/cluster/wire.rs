//! A line between the agent and its API server that can be cut, or go silent without being closed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;

/// Carries bytes both ways until it is dropped.
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// New connections are closed at once.
    is_cut: AtomicBool,
    stopping: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    ends: [TcpStream; 2],
    /// Bytes are taken and thrown away from now on.
    silent: Arc<AtomicBool>,
}

impl Wire {
    /// On a free port of `address`.
    pub fn start(address: Ipv4Addr, to: SocketAddr) -> Result<Wire> {
        let listener = TcpListener::bind((address, 0))?;
        let wire = Wire { address: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&wire.shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                if !shared.is_cut.load(Ordering::SeqCst)
                    && let Ok(server) = TcpStream::connect(to)
                {
                    // Without it there is nothing to carry, and both ends are closed.
                    let _ = shared.connect(client, server);
                }
            }
        });
        Ok(wire)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and lets nobody in.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.close_all();
    }

    pub fn mend(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// The connections of this moment stay open and carry nothing any more; later ones are whole.
    pub fn silence(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            connection.silent.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn connect(&self, client: TcpStream, server: TcpStream) -> std::io::Result<()> {
        let silent = Arc::new(AtomicBool::new(false));
        let copies = [client.try_clone()?, server.try_clone()?];
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            let silent = Arc::clone(&silent);
            thread::spawn(move || carry(from, to, &silent));
        }
        self.connections.lock().unwrap().push(Connection { ends: copies, silent });
        Ok(())
    }

    fn close_all(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            for end in &connection.ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !silent.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

//! The client against servers of this process, over real sockets.
//!
//! | module | what it is |
//! |---|---|
//! | `server` | an API server of which a test decides every answer |
//! | `pki` | certificates |
//! | `relay` | a way to the server that can go dead |
//! | `calls`, `watches`, `connections`, `credentials`, `kubeconfigs` | the tests |

mod calls;
mod connections;
mod credentials;
mod kubeconfigs;
mod pki;
mod relay;
mod server;
mod watches;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use self::pki::Pki;
use crate::transport::Pings;
use crate::{ApiClient, ClientSettings, Kubeconfig};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

fn settings() -> ClientSettings {
    ClientSettings { user_agent: "crablet/test".to_owned(), qps: -1, burst: 0, event_qps: -1, event_burst: 0 }
}

/// A kubeconfig with its files in a folder of its own.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new(pki: &Pki) -> Self {
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("ca.crt"), &pki.ca).expect("the authority");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect("a file");
    }

    /// `user` is YAML in one line.
    fn kubeconfig(&self, server: &str, user: &str) -> Kubeconfig {
        let authority = if server.starts_with("https") { "certificate-authority: ca.crt" } else { "" };
        let text = format!(
            "current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: '{server}', {authority}}}}}]
users: [{{name: u, user: {user}}}]
"
        );
        self.write("kubeconfig", &text);
        Kubeconfig::load(&self.path("kubeconfig")).expect("a kubeconfig")
    }

    fn client(&self, server: &str, user: &str) -> ApiClient {
        ApiClient::new(&self.kubeconfig(server, user), settings()).expect("a client")
    }

    /// With pings after so many milliseconds.
    fn pinging_client(&self, server: &str, user: &str, interval: u64) -> ApiClient {
        let pings = Pings { interval: Duration::from_millis(interval), timeout: Duration::from_secs(1) };
        ApiClient::with_pings(&self.kubeconfig(server, user), settings(), pings).expect("a client")
    }
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

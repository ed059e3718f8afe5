//! A small world to serve, and a client that sends bytes as they are.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod port;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use crablet_server::{ImagePulls, LocalSocket, ManifestRefusal, Manifests, PodView, Stored, local_router};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// Pods as a view would tell of them.
pub struct World {
    pub changed: watch::Sender<u64>,
    pub trouble: Mutex<Option<String>>,
}

impl Default for World {
    fn default() -> Self {
        Self { changed: watch::channel(0).0, trouble: Mutex::default() }
    }
}

impl World {
    pub fn change(&self) {
        self.changed.send_modify(|version| *version += 1);
    }
}

impl PodView for World {
    fn pods_json(&self) -> Vec<Bytes> {
        [r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"b"}}"#].map(Bytes::from).into()
    }

    fn summary_json(&self) -> Bytes {
        format!(r#"{{"version":{}}}"#, *self.changed.borrow()).into()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn explain_json(&self, namespace: &str, name: &str) -> Option<Bytes> {
        (namespace == "default" && name == "web").then(|| Bytes::from("[]"))
    }

    fn health(&self) -> Result<(), String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// Manifests in memory.
#[derive(Default)]
pub struct Shelf(Mutex<BTreeMap<String, Vec<u8>>>);

#[async_trait]
impl Manifests for Shelf {
    async fn put(&self, name: &str, body: &[u8]) -> Result<Stored, ManifestRefusal> {
        match body {
            b"wrong" => Err(ManifestRefusal::Invalid("spec.containers:\n  Required value".to_owned())),
            b"full" => Err(ManifestRefusal::Storage("no space left".to_owned())),
            _ => {
                let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let created = shelf.insert(name.to_owned(), body.to_vec()).is_none();
                Ok(Stored { created, warnings: vec!["odd".to_owned()] })
            }
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match name {
            "stuck" => Err("input/output error".to_owned()),
            _ => Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()),
        }
    }

    async fn list(&self) -> Result<Vec<String>, String> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect())
    }

    async fn delete(&self, name: &str) -> Result<bool, String> {
        match name {
            "stuck" => Err("read-only file system".to_owned()),
            _ => Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()),
        }
    }
}

/// An answer, whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: axum::http::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }
}

/// Asks a router without a connection. `heads` are lines like `Accept: text/plain`.
pub async fn ask(router: &Router, method: &str, target: &str, heads: &[&str], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(target);
    for head in heads {
        let (name, value) = head.split_once(": ").expect("a header");
        request = request.header(name, value);
    }
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let answering = async {
        let response = router.clone().oneshot(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes().to_vec();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    };
    tokio::time::timeout(Duration::from_secs(20), answering).await.expect("a timely answer")
}

/// One image is on its way.
pub struct OnePull;

#[async_trait]
impl ImagePulls for OnePull {
    async fn under_way_json(&self) -> Bytes {
        Bytes::from_static(br#"{"pulls":[{"image":"web:1"}]}"#)
    }
}

/// A served local socket in a folder of its own.
pub struct Local {
    pub world: Arc<World>,
    pub path: PathBuf,
    pub stop: oneshot::Sender<()>,
    pub serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Local {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("root/crablet.sock");
        let world = Arc::new(World::default());
        let router = local_router(world.clone(), Arc::new(Shelf::default()), Arc::new(OnePull));
        let socket = LocalSocket::bind(&path).await.expect("a socket");
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(socket.serve(router, async {
            let _ = stopped.await;
        }));
        Self { world, path, stop, serving, _folder: folder }
    }

    /// Sends a request and returns the status and the body.
    pub async fn ask(&self, method: &str, target: &str, body: &[u8]) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = exchange(&self.path, &[head.as_bytes(), body].concat()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("{method} {target}: {answer:?}")), body.to_owned())
    }
}

/// Sends bytes as they are and reads until the server closes.
pub async fn exchange(path: &Path, bytes: &[u8]) -> String {
    let (mut read, mut write) = UnixStream::connect(path).await.expect("a connection").into_split();
    let bytes = bytes.to_vec();
    // The server may answer and close before it has read everything.
    let sending = tokio::spawn(async move {
        let _ = write.write_all(&bytes).await;
        write
    });
    let mut answer = Vec::new();
    let reading = read.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("an end of the answer");
    sending.abort();
    String::from_utf8_lossy(&answer).into_owned()
}
